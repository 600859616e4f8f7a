"""Draws: fresh, seeded, complete, and invisible from outside."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from avalanche.models import IncrementalClassifier
from torch import nn

from avalanche_gmc.initialization import derive_seed, fresh_draws, reset_in_place, seeded
from benchmarks.streams.models import cnn, mlp


def flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([tensor.flatten().double() for tensor in model.state_dict().values()])


@pytest.mark.parametrize("given", [cnn, cnn()], ids=["callable", "module"])
def test_draws_differ_from_each_other_and_repeat_with_the_seed(
    given: nn.Module | Callable[[], nn.Module],
) -> None:
    first, again, other = (fresh_draws(given, 3, seed) for seed in (5, 5, 6))
    values = [flat(model) for model in first]
    assert all(
        torch.equal(a, flat(model)) and model is not draw
        for a, model, draw in zip(values, again, first, strict=True)
    )
    distinct = values + [flat(model) for model in other]
    assert all(not torch.equal(a, b) for i, a in enumerate(distinct) for b in distinct[:i])


def test_a_prefix_of_the_draws_does_not_depend_on_their_number() -> None:
    model = mlp(5, 3)
    assert torch.equal(flat(fresh_draws(model, 1, 0)[0]), flat(fresh_draws(model, 4, 0)[0]))


def test_draws_have_the_scale_of_the_initialisation_distribution() -> None:
    trained = mlp(400, 10)
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.fill_(7.0)
    weights = torch.stack([draw[0].weight for draw in fresh_draws(trained, 4, 0)])
    # PyTorch's default for linear layers is uniform in ±1/sqrt(inputs).
    assert weights.abs().max() <= 1 / 20
    assert weights.var().item() == pytest.approx((1 / 20) ** 2 / 3, rel=0.02)


def test_nothing_global_and_nothing_of_the_model_changes() -> None:
    model = cnn().train()
    model(torch.rand(4, 1, 28, 28)).sum().backward()
    before = copy.deepcopy(model.state_dict())
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    states = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    draws = fresh_draws(model, 2, 0)
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == np.random.get_state()[1].tolist()
    assert states[2] == random.getstate()
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert all(
        torch.equal(old, new.grad) for old, new in zip(gradients, model.parameters(), strict=True)
    )
    assert all(module.training for module in model.modules())
    assert all(parameter.grad is None for draw in draws for parameter in draw.parameters())


def test_batch_norm_statistics_are_reset() -> None:
    model = cnn().train()
    model(torch.rand(8, 1, 28, 28) * 9)
    norm = fresh_draws(model, 1, 0)[0][0][1]
    assert torch.equal(norm.running_mean, torch.zeros(64))
    assert torch.equal(norm.running_var, torch.ones(64))
    assert norm.num_batches_tracked == 0


class WithScale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.head = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.head(x * self.scale)
        return output


class WithInitialisedChild(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 2)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.head.weight)


def test_a_parameter_that_nothing_resets_is_named() -> None:
    with pytest.raises(ValueError, match=r"parameter\(s\) inner\.scale .* pass a callable"):
        fresh_draws(nn.ModuleDict({"inner": WithScale()}), 1, 0)
    with pytest.raises(ValueError, match=r"parameter\(s\) scale"):
        reset_in_place(WithScale(), 0)
    assert len(fresh_draws(WithScale, 2, 0)) == 2


def test_a_container_has_the_last_word_about_its_children() -> None:
    assert not fresh_draws(WithInitialisedChild(), 1, 0)[0].head.weight.any()


def test_frozen_parameters_and_their_statistics_are_kept() -> None:
    backbone = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    backbone(torch.rand(4, 1, 5, 5))
    backbone.requires_grad_(False)
    model = nn.Sequential(backbone, nn.Flatten(), nn.Linear(18, 2))
    draw = fresh_draws(model, 1, 0)[0]
    for name, tensor in backbone.state_dict().items():
        assert torch.equal(tensor, draw[0].state_dict()[name])
    assert not torch.equal(model[2].weight, draw[2].weight)


def test_reset_in_place_keeps_the_objects_and_draws_new_numbers() -> None:
    model = cnn().train()
    model(torch.rand(4, 1, 28, 28)).sum().backward()
    parameters, old = list(model.parameters()), flat(model)
    state = torch.get_rng_state()
    reset_in_place(model, 3)
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    assert torch.equal(state, torch.get_rng_state())
    new = flat(model)
    assert not torch.equal(old, new)
    reset_in_place(model, 4)
    assert not torch.equal(new, flat(model))
    reset_in_place(model, 3)
    assert torch.equal(new, flat(model))


def test_heads_that_grow_are_refused_with_advice() -> None:
    model = nn.Sequential(nn.Linear(4, 8), IncrementalClassifier(8))
    advice = r"dynamic module '1' \(IncrementalClassifier\).*fix the number of outputs.*callable"
    with pytest.raises(ValueError, match=advice):
        fresh_draws(model, 1, 0)
    with pytest.raises(ValueError, match="IncrementalClassifier"):
        fresh_draws(lambda: model, 1, 0)


@pytest.mark.parametrize(
    ("model", "count", "message"),
    [
        (mlp(2, 2), 0, "at least 1, got 0"),
        (mlp(2, 2), 2.0, "at least 1, got 2.0"),
        (3, 1, "torch.nn.Module or a callable that returns one, got int"),
        (lambda: None, 1, "it returned NoneType"),
    ],
)
def test_bad_arguments_are_refused(model: object, count: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fresh_draws(model, count, 0)  # type: ignore[arg-type]


def test_neighbouring_seeds_share_nothing() -> None:
    seeds = {derive_seed(seed, draw) for seed in range(50) for draw in range(50)}
    assert len(seeds) == 2500


def test_seeded_blocks_restore_all_generators_even_after_an_error() -> None:
    states = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    with pytest.raises(KeyError), seeded(1):
        torch.rand(3), np.random.rand(), random.random()
        raise KeyError
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == np.random.get_state()[1].tolist()
    assert states[2] == random.getstate()
