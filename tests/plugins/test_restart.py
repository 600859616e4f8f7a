"""What a restart leaves behind, however a training ends, and where its models come from."""

from __future__ import annotations

import gc
import random
import warnings

import numpy as np
import pytest
import torch
from avalanche.models import IncrementalClassifier
from avalanche.training.plugins import LRSchedulerPlugin, SupervisedPlugin
from small_streams import (
    FEATURES,
    FirstComeBuffer,
    Recorder,
    StartRecorder,
    class_incremental,
    mlp,
    naive,
    parameters,
    run,
    train,
)
from torch import nn
from torch.optim.lr_scheduler import StepLR

from avalanche_gmc import CoresetGDumbPlugin, GradientMatchingBuffer
from avalanche_gmc.initialization import Redrawn
from avalanche_gmc.plugins.redraw import redraw

HOOKS = [
    "before_training_epoch",
    "before_training_iteration",
    "after_forward",
    "after_update",
    "after_training_epoch",
]
"""Everything that happens while a training has its own random numbers."""


def global_state():
    return torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()


def fails_in(hook):
    """A plugin that uses random numbers and fails in a hook, until it is disarmed."""

    def fail(self, strategy, **kwargs):
        if self.armed:
            torch.rand(1), random.random(), np.random.rand()
            raise KeyboardInterrupt

    return type("Failing", (SupervisedPlugin,), {hook: fail, "armed": True})()


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("first", [True, False], ids=["before ours", "after ours"])
def test_a_training_that_fails_gives_the_random_state_back_at_once(hook, first):
    failing, own = fails_in(hook), CoresetGDumbPlugin(10, FirstComeBuffer(10))
    strategy = naive(mlp(middle=nn.Dropout(0.5)), *([failing, own] if first else [own, failing]))
    before = global_state()
    with pytest.raises(KeyboardInterrupt):
        strategy.train(class_incremental()[0])
    assert global_state() == before
    failing.armed = False
    strategy.train(class_incremental()[1])  # it can go on
    assert global_state() == before
    assert "_train_exp" not in vars(strategy)


def test_a_strategy_that_failed_can_be_deleted_without_a_trace():
    strategy = naive(mlp(), CoresetGDumbPlugin(10, FirstComeBuffer(10)), fails_in("after_update"))
    with pytest.raises(KeyboardInterrupt):
        strategy.train(class_incremental()[0])
    torch.rand(1)
    before = global_state()
    del strategy
    gc.collect()
    assert global_state() == before


def test_a_training_loop_of_the_users_is_kept():
    strategy = naive(mlp(), CoresetGDumbPlugin(10, FirstComeBuffer(10)))
    calls, plain = [], strategy._train_exp
    own = strategy._train_exp = lambda *args, **kwargs: (calls.append(1), plain(*args, **kwargs))
    train(strategy, class_incremental())
    assert len(calls) == 3
    assert strategy._train_exp is own


class WithToken(nn.Module):
    """A small transformer: attention, and a token that only the constructor initialises."""

    def __init__(self, head=None):
        super().__init__()
        self.token = nn.Parameter(0.1 * torch.randn(1, 1, FEATURES))
        self.layer = nn.TransformerEncoderLayer(FEATURES, 2, 8, batch_first=True)
        self.head = nn.Linear(FEATURES, 6) if head is None else head

    def forward(self, x):
        tokens = torch.cat([self.token.expand(len(x), -1, -1), x[:, None]], dim=1)
        return self.head(self.layer(tokens)[:, 0])


def growing():
    return WithToken(IncrementalClassifier(FEATURES, initial_out_features=2))


def starts():
    """The parameters at the start of each training, by name."""
    return StartRecorder(lambda s: {n: p.clone() for n, p in s.model.state_dict().items()})


@pytest.mark.parametrize("make", [WithToken, growing])
def test_a_factory_draws_what_no_module_does(make):
    def trained(seed):
        torch.manual_seed(0)
        plugin = CoresetGDumbPlugin(20, FirstComeBuffer(20), seed=seed, model_factory=make)
        recorder = starts()
        end = run(plugin, class_incremental(), recorder, model=make())
        return recorder.values, end

    (first, end), (again, end_again), (other, _) = trained(0), trained(0), trained(1)
    assert torch.equal(end, end_again)
    for a, b, c in zip(first, again, other, strict=True):
        assert all(torch.equal(a[name], b[name]) for name in a)
        assert not torch.equal(a["token"], c["token"])
    assert not torch.equal(first[0]["token"], first[1]["token"])


def test_the_default_memory_draws_from_the_factory_too():
    plugin = CoresetGDumbPlugin(12, model_factory=WithToken)
    train(naive(WithToken(), plugin, train_epochs=1), class_incremental())
    assert isinstance(plugin.storage_policy, GradientMatchingBuffer)
    assert len(plugin.storage_policy.buffer) == 12


@pytest.mark.parametrize("make", [WithToken, growing])
def test_without_a_factory_the_message_says_where_to_give_it(make):
    strategy = naive(make(), CoresetGDumbPlugin(12, FirstComeBuffer(12)))
    with pytest.raises(ValueError, match=r"token.*model_factory=lambda: MyModel\(\)"):
        strategy.train(class_incremental()[0])


def test_a_factory_of_other_models_is_refused_and_changes_nothing():
    model = mlp()
    before = parameters(model)
    plugin = CoresetGDumbPlugin(12, FirstComeBuffer(12), model_factory=lambda: mlp(classes=5))
    with pytest.raises(ValueError, match=r"3\.weight has the shape \(6, 8\) .* and \(5, 8\)"):
        naive(model, plugin).train(class_incremental()[0])
    assert torch.equal(parameters(model), before)


def test_a_pretrained_model_returns_to_its_weights_with_a_fresh_head():
    model, recorder = mlp(), starts()
    pretrained = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    plugin = CoresetGDumbPlugin(
        12, FirstComeBuffer(12), model_factory=Redrawn(model, only="3"), seed=1
    )
    run(plugin, class_incremental(), recorder, model=model)
    assert len(recorder.values) == 3
    for start in recorder.values:
        assert torch.equal(start["0.weight"], pretrained["0.weight"])
        assert not torch.equal(start["3.weight"], pretrained["3.weight"])


@pytest.mark.parametrize(("options", "warned"), [({}, 1), ({"init": "same"}, 0)])
def test_a_model_that_looks_trained_is_not_drawn_anew_without_a_word(options, warned):
    model = mlp(middle=nn.BatchNorm1d(8))
    model[1].num_batches_tracked += 100
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(
            CoresetGDumbPlugin(12, FirstComeBuffer(12), **options), class_incremental(), model=model
        )
    assert sum("looks trained" in str(warning.message) for warning in caught) == warned


@pytest.mark.parametrize("factory", [mlp(), 3, "MyModel"])
def test_what_is_no_factory_is_refused(factory):
    with pytest.raises(ValueError, match="model_factory must be a callable"):
        CoresetGDumbPlugin(12, FirstComeBuffer(12), model_factory=factory)


def test_a_factory_that_returns_no_model_is_refused():
    with pytest.raises(ValueError, match=r"must return a torch\.nn\.Module, but it returned dict"):
        redraw(growing(), 3, dict)


@pytest.mark.parametrize("factory", [None, growing])
def test_frozen_parameters_of_a_growing_model_stay(factory):
    model = growing()
    model.token.requires_grad_(False)
    model.layer.requires_grad_(False)
    kept = {name: p.clone() for name, p in model.named_parameters() if not p.requires_grad}
    head = model.head.classifier.weight.clone()
    redraw(model, 3, factory)
    for name, value in kept.items():
        assert torch.equal(model.get_parameter(name), value)
    assert not torch.equal(model.head.classifier.weight, head)


def test_parameter_groups_that_are_added_later_have_their_schedule_too():
    model = mlp()
    rates = Recorder(
        "before_training_epoch", lambda s: [group["lr"] for group in s.optimizer.param_groups]
    )
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    scheduler = LRSchedulerPlugin(StepLR(optimizer, 1, gamma=0.5))
    plugin = CoresetGDumbPlugin(10, FirstComeBuffer(10), init="same")
    strategy = naive(model, rates, scheduler, plugin, optimizer=optimizer)
    stream = class_incremental()
    strategy.train(stream[0])
    extra = nn.Parameter(torch.zeros(1))
    optimizer.add_param_group({"params": [extra], "lr": 0.8})
    strategy.train(stream[1])
    strategy.train(stream[2])
    assert rates.values == [[0.1], [0.05], [0.1, 0.8], [0.05, 0.4], [0.1, 0.8], [0.05, 0.4]]
