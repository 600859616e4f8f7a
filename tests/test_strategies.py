"""The ready-made strategies: the plugins with their options passed on."""

from __future__ import annotations

import pytest
import torch
from avalanche.training import Replay
from avalanche.training.plugins import GDumbPlugin, SupervisedPlugin
from avalanche.training.storage_policy import ClassBalancedBuffer, ExperienceBalancedBuffer
from small_streams import FirstComeBuffer, class_incremental, mlp, naive, parameters, train, uneven
from torch import nn

from avalanche_gmc.buffers import GradientMatchingBuffer
from avalanche_gmc.plugins import CoresetGDumbPlugin, CoresetReplayPlugin
from avalanche_gmc.strategies import CoresetGDumb, CoresetReplay


def make(strategy, **options):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    defaults = {"train_mb_size": 7, "train_epochs": 2, "evaluator": None}
    return strategy(
        model=model,
        optimizer=optimizer,
        criterion=nn.CrossEntropyLoss(),
        **{**defaults, **options},
    )


def trained(strategy, seed=0):
    torch.manual_seed(seed)
    return parameters(train(strategy, class_incremental()))


def test_gdumb_is_naive_with_the_plugin():
    def policy():
        return FirstComeBuffer(12, uneven)

    plugin = CoresetGDumbPlugin(12, policy(), train_on="last", seed=4, model_factory=mlp)
    options = {"train_on": "last", "seed": 4, "model_factory": mlp}
    ours = make(CoresetGDumb, mem_size=12, storage_policy=policy(), **options)
    assert torch.equal(trained(ours), trained(naive(mlp(), plugin)))


def test_gdumb_with_the_stock_policy_is_stock_gdumb():
    ours = make(CoresetGDumb, mem_size=12, storage_policy=ClassBalancedBuffer(12), init="same")
    assert torch.equal(trained(ours), trained(naive(mlp(), GDumbPlugin(12))))


def test_replay_is_naive_with_the_plugin():
    def policy():
        return FirstComeBuffer(12, uneven)

    plugin = CoresetReplayPlugin(12, None, 5, storage_policy=policy(), memory_share=0.4)
    options = {"batch_size_mem": 5, "memory_share": 0.4}
    ours = make(CoresetReplay, mem_size=12, storage_policy=policy(), **options)
    assert torch.equal(trained(ours), trained(naive(mlp(), plugin)))


def test_replay_with_the_stock_policy_is_stock_replay():
    policy = ExperienceBalancedBuffer(12)
    ours = make(CoresetReplay, mem_size=12, storage_policy=policy, memory_share="batch")
    assert torch.equal(trained(ours), trained(make(Replay, mem_size=12)))


@pytest.mark.parametrize("strategy", [CoresetGDumb, CoresetReplay])
def test_gradient_matching_is_the_default(strategy):
    tested = make(strategy, mem_size=12)
    start = parameters(tested.model)
    assert not torch.equal(trained(tested), start)
    (policy,) = (p.storage_policy for p in tested.plugins if hasattr(p, "storage_policy"))
    assert isinstance(policy, GradientMatchingBuffer)
    assert len(policy.buffer) == policy.max_size == 12
    assert policy.num_seen == 60


@pytest.mark.parametrize("strategy", [CoresetGDumb, CoresetReplay])
@pytest.mark.parametrize("seed", [0, 7])
def test_the_seed_is_that_of_the_default_memory(strategy, seed):
    tested = make(strategy, mem_size=12, seed=seed)
    trained(tested)
    (policy,) = (p.storage_policy for p in tested.plugins if hasattr(p, "storage_policy"))
    expected = GradientMatchingBuffer(12, seed=seed)
    for experience in class_incremental():
        expected.update_from_dataset(experience.dataset, tested)
    assert torch.equal(policy.target, expected.target)


@pytest.mark.parametrize("strategy", [CoresetGDumb, CoresetReplay])
def test_options_of_the_template_are_passed_on(strategy):
    options = {"train_mb_size": 9, "train_epochs": 3, "eval_every": 2}
    tested = make(strategy, storage_policy=FirstComeBuffer(200), **options)
    assert {name: getattr(tested, name) for name in options} == options
    assert tested.eval_mb_size == 9
    assert make(strategy, storage_policy=FirstComeBuffer(200), eval_mb_size=4).eval_mb_size == 4


@pytest.mark.parametrize("strategy", [CoresetGDumb, CoresetReplay])
def test_the_list_of_plugins_stays_the_users(strategy):
    plugins = [SupervisedPlugin()]
    make(strategy, plugins=plugins, storage_policy=FirstComeBuffer(200))
    assert len(plugins) == 1


@pytest.mark.parametrize("strategy", [CoresetGDumb, CoresetReplay])
def test_a_misspelt_option_is_refused(strategy):
    with pytest.raises(Exception, match="mem_sise"):
        make(strategy, mem_sise=3)
