"""What Avalanche asks of its own replay memories, asked of ours.

The situations are those of its suites for replay, for the strategies Replay and GDumb, and for
online streams: ten classes in five experiences, with and without task labels, on models with a
fixed head, a growing head and a head per task. Streams, models and checks are our own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from avalanche.benchmarks import (
    nc_benchmark,
    split_online_stream,
    with_classes_timeline,
    with_task_labels,
)
from avalanche.evaluation.metrics import accuracy_metrics
from avalanche.models import IncrementalClassifier, MTSimpleMLP, SimpleMLP, as_multitask
from avalanche.training import Naive, Replay
from avalanche.training.plugins import EvaluationPlugin, ReplayPlugin
from avalanche.training.plugins import replay as stock_replay
from small_streams import FEATURES
from torch import nn
from torch.utils.data import TensorDataset

from avalanche_gmc import (
    CoresetGDumbPlugin,
    CoresetReplayPlugin,
    GradientMatchingBuffer,
    GrowingHeadEmbedding,
    LastLayerEmbedding,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*ignores the weights")

CLASSES, EXPERIENCES, HIDDEN = 10, 5, 16


def blobs(per_class: int, seed: int) -> TensorDataset:
    targets = torch.arange(CLASSES).repeat(per_class)
    centres = 4 * torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(7))
    noise = torch.randn(len(targets), FEATURES, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(centres[targets] + noise, targets)


def benchmark(*, task_labels: bool, per_class: int = 20, **options: Any) -> Any:
    return nc_benchmark(
        blobs(per_class, 0), blobs(10, 1), EXPERIENCES, task_labels=task_labels, seed=3, **options
    )


def fixed() -> nn.Module:
    return SimpleMLP(CLASSES, FEATURES, HIDDEN, drop_rate=0.1)


def growing() -> nn.Module:
    model = fixed()
    model.classifier = IncrementalClassifier(HIDDEN)
    return model


def several() -> nn.Module:
    return MTSimpleMLP(FEATURES, HIDDEN)


def decorated() -> nn.Module:
    return as_multitask(fixed(), "classifier")


MODELS: dict[str, tuple[Callable[[], nn.Module], bool]] = {
    "fixed": (fixed, False),
    "fixed, with task labels": (fixed, True),
    "growing": (growing, False),
    "growing, with task labels": (growing, True),
    "several": (several, True),
    "decorated": (decorated, True),
}

PLUGINS: dict[str, Callable[[int], Any]] = {
    "stock": lambda size: ReplayPlugin(size, storage_policy=GradientMatchingBuffer(size)),
    "ours": lambda size: CoresetReplayPlugin(size),
    "balanced": lambda size: CoresetReplayPlugin(
        size, storage_policy=GradientMatchingBuffer(size, target="balanced")
    ),
}


def strategy_of(model: nn.Module, *plugins: Any, kind: Any = Naive, **options: Any) -> Any:
    defaults: dict[str, Any] = dict(train_mb_size=32, train_epochs=2, eval_mb_size=50)
    return kind(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9),
        criterion=nn.CrossEntropyLoss(),
        plugins=list(plugins),
        evaluator=EvaluationPlugin(accuracy_metrics(stream=True)),
        **{**defaults, **options},
    )


def accuracy(strategy: Any, stream: Any) -> float:
    values = [v for name, v in strategy.eval(stream).items() if name.startswith("Top1_Acc_Stream")]
    return sum(values) / len(values)


@pytest.mark.parametrize("plugin", PLUGINS)
@pytest.mark.parametrize("name", MODELS)
def test_the_memory_is_always_full_and_the_past_is_remembered(name: str, plugin: str) -> None:
    make, task_labels = MODELS[name]
    stream = benchmark(task_labels=task_labels)
    replay = PLUGINS[plugin](50)
    strategy = strategy_of(make(), replay, train_epochs=8)
    seen: set[int] = set()
    for place, experience in enumerate(stream.train_stream):
        strategy.train(experience)
        memory = replay.storage_policy
        seen |= set(experience.classes_in_this_experience)
        assert len(memory.buffer) == min(50, 40 * (place + 1))
        assert set(memory.class_counts) == seen
        assert memory.weights.sum() == pytest.approx(40 * (place + 1), rel=0.25)
    assert accuracy(strategy, stream.test_stream) > 0.6
    if task_labels:
        assert {task for *_, task in memory.buffer} == set(range(EXPERIENCES))


@pytest.mark.parametrize("name", MODELS)
def test_memory_is_filled_without_any_training(name: str) -> None:
    make, task_labels = MODELS[name]
    replay = PLUGINS["stock"](30)
    strategy = strategy_of(make(), replay, train_epochs=0)
    for experience in benchmark(task_labels=task_labels).train_stream:
        strategy.train(experience)
        assert len(replay.storage_policy.buffer) == 30


@pytest.mark.parametrize("name", MODELS)
def test_the_strategy_replay_with_our_memory_as_its_default(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[GradientMatchingBuffer] = []

    def default(max_size: int, adaptive_size: bool) -> GradientMatchingBuffer:
        made.append(GradientMatchingBuffer(max_size))
        return made[-1]

    monkeypatch.setattr(stock_replay, "ExperienceBalancedBuffer", default)
    make, task_labels = MODELS[name]
    stream = benchmark(task_labels=task_labels)
    strategy = strategy_of(make(), kind=Replay, mem_size=10, train_mb_size=64)
    for experience in stream.train_stream:
        strategy.train(experience, eval_streams=[stream.test_stream])
    (memory,) = made
    assert memory.num_seen == 200
    assert len(memory.buffer) == 10


@pytest.mark.parametrize("name", MODELS)
def test_gdumb_restarts_with_our_memory(name: str) -> None:
    make, task_labels = MODELS[name]
    stream = benchmark(task_labels=task_labels)
    gdumb = CoresetGDumbPlugin(50)
    strategy = strategy_of(make(), gdumb, train_epochs=15)
    for experience in stream.train_stream:
        strategy.train(experience)
    assert len(gdumb.storage_policy.buffer) == 50
    assert accuracy(strategy, stream.test_stream) > 0.6


@pytest.mark.parametrize("embedding", [LastLayerEmbedding, GrowingHeadEmbedding])
def test_a_policy_is_updated_by_a_strategy_that_only_has_an_experience(embedding: Any) -> None:
    model = fixed() if embedding is LastLayerEmbedding else several()
    policy = GradientMatchingBuffer(10, embedding(model))
    for experience in benchmark(task_labels=True).train_stream:
        policy.update(MagicMock(experience=experience))
        assert len(policy.buffer) == 10


@pytest.mark.parametrize("boundaries", [True, False], ids=["boundaries", "no boundaries"])
@pytest.mark.parametrize("plugin", ["stock", "ours"])
@pytest.mark.parametrize("name", ["fixed", "growing", "several"])
def test_online_streams(name: str, plugin: str, boundaries: bool) -> None:
    make, task_labels = MODELS[name]
    model = make()
    if name == "several":
        model.classifier.masking = False  # it cannot handle the sets of classes of this stream
    stream = benchmark(task_labels=task_labels)
    online = with_classes_timeline(
        split_online_stream(stream.train_stream, 20, access_task_boundaries=boundaries, seed=1)
    )
    replay = PLUGINS[plugin](40)
    strategy = strategy_of(model, replay, train_mb_size=5, train_epochs=4)
    if boundaries:
        for experience in with_task_labels(online):
            strategy.train(experience)
    else:
        strategy.train(with_task_labels(online))
    assert strategy.clock.train_exp_counter == 10
    memory = replay.storage_policy
    assert memory.num_seen == 200
    assert len(memory.buffer) == 40
    assert len(memory.class_counts) == CLASSES
    assert accuracy(strategy, stream.test_stream) > 0.6
