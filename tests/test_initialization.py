"""Draws: fresh, seeded, complete, and invisible from outside."""

from __future__ import annotations

import copy
import math
import pickle
import random
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from avalanche.models import IncrementalClassifier
from sklearn.datasets import load_digits
from torch import nn
from torchvision.models import alexnet, mobilenet_v2, resnet18

from avalanche_gmc.initialization import (
    Redrawn,
    derive_seed,
    draw_from,
    fresh_draws,
    looks_trained,
    reset_in_place,
    seeded,
)
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


def test_a_factory_draws_what_no_layer_can() -> None:
    model = WithScale()
    with torch.no_grad():
        model.scale.fill_(5.0)
    parameters = list(model.parameters())
    reset_in_place(model, 3, factory=WithScale)
    assert torch.equal(model.scale, torch.ones(3))
    assert torch.equal(model.head.weight, draw_from(WithScale, 3).head.weight)
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    with pytest.raises(ValueError, match=r"scale has the shape \(3,\) .* and None"):
        reset_in_place(model, 3, factory=lambda: mlp(3, 2))


def test_a_factory_does_not_overwrite_what_is_frozen() -> None:
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 4), nn.Linear(4, 2))
    model(torch.rand(8, 4))
    model[:2].requires_grad_(False)
    before = copy.deepcopy(model)
    reset_in_place(model, 0, factory=lambda: copy.deepcopy(before).apply(_fill_with_two))
    assert torch.equal(flat(before[:2]), flat(model[:2]))
    assert model[2].weight.eq(2).all()


def _fill_with_two(module: nn.Module) -> None:
    for tensor in [*module.parameters(), *module.buffers()]:
        tensor.data.fill_(2)


def transformer() -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, batch_first=True)
    return nn.Sequential(nn.TransformerEncoder(layer, 2), nn.Flatten(), nn.Linear(24, 4))


@pytest.mark.parametrize(
    "model", [nn.MultiheadAttention(8, 2), nn.MultiheadAttention(8, 2, kdim=4), transformer()]
)
def test_attention_is_drawn_as_its_constructor_does(model: nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(7.0)
    draw = fresh_draws(model, 1, 0)[0]
    attention = next(m for m in draw.modules() if isinstance(m, nn.MultiheadAttention))
    weights = (
        attention.in_proj_weight
        if attention.in_proj_weight is not None
        else (attention.q_proj_weight)
    )
    # Xavier's uniform distribution, and no biases.
    assert weights.var().item() == pytest.approx(2 / sum(weights.shape), rel=0.2)
    assert not attention.in_proj_bias.any() and not attention.out_proj.bias.any()
    assert attention.out_proj.weight.abs().max() <= 1 / math.sqrt(8)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_layers_are_drawn_and_run(kind: type[nn.RNNBase]) -> None:
    model = kind(3, 4)  # type: ignore[call-arg]
    one, other = fresh_draws(model, 2, 0)
    steps = torch.rand(5, 2, 3)
    assert not torch.equal(one(steps)[0], other(steps)[0])


def test_compiled_models_are_drawn_without_the_compiler() -> None:
    model = mlp(5, 3)
    exact = flat(fresh_draws(model, 1, 0)[0])
    for compiled in (torch.compile(model), nn.Sequential(torch.compile(model))):
        draw = fresh_draws(compiled, 1, 0)[0]
        assert not any(hasattr(module, "_orig_mod") for module in draw.modules())
        assert torch.equal(flat(draw), exact)
    before = model[0].weight.clone()
    reset_in_place(torch.compile(model), 1)
    assert not torch.equal(before, model[0].weight)
    reset_in_place(torch.compile(model), 1, factory=lambda: torch.compile(mlp(5, 3)))


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


class Backbone(nn.Module):
    """A pretrained body, in which batch norm has no weights, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8, affine=False), nn.ReLU())
        self.scale = nn.Parameter(torch.randn(8))
        self.fc = nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.fc(self.body(x) * self.scale)
        return output


def pretrained() -> Backbone:
    model = Backbone()
    for _ in range(20):
        model(torch.rand(8, 6))
    return model


@pytest.mark.parametrize("only", ["fc", ["fc.0", "fc.1"]])
def test_only_what_is_named_is_drawn_and_the_rest_is_kept_as_it_was(only: str | list[str]) -> None:
    model = pretrained()
    before = copy.deepcopy(model.state_dict())
    factory = Redrawn(model, only=only)
    reset_in_place(model, 5, factory=lambda: pretrained())  # as training would
    pickled = pickle.loads(pickle.dumps(factory))
    for draw in (*fresh_draws(factory, 2, 0), *fresh_draws(pickled, 2, 0)):
        kept = {name for name, t in draw.state_dict().items() if torch.equal(t, before[name])}
        assert {name for name in before if not name.startswith("fc")} <= kept
        assert not kept & {"fc.0.running_mean", "fc.1.weight", "fc.1.bias"}
        assert all(parameter.requires_grad for parameter in draw.parameters())
        assert draw.fc[0].num_batches_tracked == 0
    reset_in_place(model, 7, factory=factory)
    assert torch.equal(flat(model), flat(draw_from(factory, 7)))


def test_draws_share_what_is_kept_and_pickles_have_nothing_else() -> None:
    model = nn.Sequential(nn.Linear(1000, 500), nn.Linear(500, 1000), nn.Linear(1000, 2))
    model[0].requires_grad_(False)
    factory = Redrawn(model)
    one, other = fresh_draws(factory.sharing, 2, 0)
    assert torch.equal(flat(one), flat(fresh_draws(factory, 1, 0)[0]))
    assert factory()[0].weight.data_ptr() != one[0].weight.data_ptr()
    assert one[0].weight.data_ptr() == other[0].weight.data_ptr() != model[0].weight.data_ptr()
    assert one[1].weight.data_ptr() != other[1].weight.data_ptr()
    kept = model[0].weight.nbytes
    assert kept < len(pickle.dumps(Redrawn(model))) < kept + 20_000
    assert len(pickle.dumps(Redrawn(model.requires_grad_(True)))) < 20_000


def test_initialisers_do_not_reach_what_is_kept() -> None:
    model = nn.Sequential(nn.Linear(3, 2), WithInitialisedChild())
    model[0].bias.requires_grad_(False)
    model[1].head.weight.requires_grad_(False)
    before = copy.deepcopy(model)
    factory = Redrawn(model)
    for draw in fresh_draws(factory, 2, 0):
        assert torch.equal(draw[0].bias, before[0].bias)
        assert torch.equal(draw[1].head.weight, before[1].head.weight)
        assert not torch.equal(draw[0].weight, before[0].weight)
    assert torch.equal(flat(model), flat(before))


@pytest.mark.parametrize(
    ("only", "message"),
    [
        ("head", r"only='head' is no submodule of Backbone; it has \['body', 'fc'\]"),
        ("body.1", r"only='body.1' has no trainable parameters"),
    ],
)
def test_names_of_nothing_to_draw_are_refused(only: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Redrawn(Backbone(), only=only)


def trained_on_digits(model: nn.Module) -> nn.Module:
    digits = load_digits()
    inputs, targets = torch.tensor(digits.data).float() / 16, torch.tensor(digits.target)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(5):
        for rows in torch.randperm(len(inputs)).split(32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs[rows]), targets[rows]).backward()
            optimizer.step()
    return model


TRAINABLE: dict[str, Callable[[], nn.Module]] = {
    "plain": lambda: mlp(64, 10),
    "batch norm": lambda: nn.Sequential(nn.Linear(64, 4), nn.BatchNorm1d(4), nn.Linear(4, 10)),
    "layer norm": lambda: nn.Sequential(nn.Linear(64, 4), nn.LayerNorm(4), nn.Linear(4, 10)),
}


@pytest.mark.parametrize("kind", list(TRAINABLE))
def test_a_model_that_looks_trained_is_not_drawn_without_a_warning(kind: str) -> None:
    fresh = TRAINABLE[kind]()
    trained = trained_on_digits(TRAINABLE[kind]())
    with pytest.warns(UserWarning, match=r"looks trained.*Redrawn\(model, only='fc'\)"):
        fresh_draws(trained, 1, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fresh_draws(fresh, 1, 0)
        fresh_draws(Redrawn(trained), 1, 0)
        fresh_draws(trained[:-1].requires_grad_(False), 1, 0)


@pytest.mark.parametrize("make", [resnet18, alexnet, mobilenet_v2, transformer, cnn, Backbone])
def test_fresh_models_do_not_look_trained(make: Callable[[], nn.Module]) -> None:
    assert not looks_trained(make())


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
