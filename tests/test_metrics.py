"""Metrics of memories, read back from Avalanche's loggers."""

import io

import pytest
import torch
from avalanche.evaluation.metrics import loss_metrics
from avalanche.logging import TextLogger
from avalanche.training import ER_ACE
from avalanche.training.plugins import EvaluationPlugin, GDumbPlugin, ReplayPlugin
from avalanche.training.storage_policy import ReservoirSamplingBuffer
from small_streams import class_incremental, mlp, naive, online, task_free

from avalanche_gmc.buffers import GradientMatchingBuffer, SlidingWindowBuffer
from avalanche_gmc.metrics import coreset_metrics


def train(experiences, *plugins, metrics=None, loggers=()):
    evaluator = EvaluationPlugin(
        *(coreset_metrics() if metrics is None else metrics), loggers=list(loggers)
    )
    strategy = naive(mlp(), *plugins, evaluator=evaluator, train_epochs=1)
    for exp in experiences:
        strategy.train(exp)
    return evaluator.get_all_metrics()


def last(metrics, prefix):
    """The last value whose name starts with `prefix` and a slash."""
    (values,) = (values for name, (_, values) in metrics.items() if name.startswith(f"{prefix}/"))
    return values[-1]


def test_values_are_those_of_the_memory_after_each_experience():
    buffer = GradientMatchingBuffer(12)
    metrics = train(class_incremental(), ReplayPlugin(12, storage_policy=buffer))
    steps, sizes = metrics["Memory_Size/train_phase/train_stream"]
    assert sizes == [12, 12, 12]
    assert steps == sorted(set(steps))
    assert last(metrics, "Memory_Residual") == buffer.residual_norm > 0
    weights = buffer.weights.double()
    effective = float(weights.sum() ** 2 / (weights**2).sum())
    assert last(metrics, "Memory_EffectiveSize") == pytest.approx(effective)
    counts = {label: last(metrics, f"Memory_Class{label:03}") for label in buffer.class_counts}
    assert counts == buffer.class_counts
    assert sum(counts.values()) == 12


@pytest.mark.parametrize("stream", [online, task_free])
def test_other_streams(stream):
    buffer = GradientMatchingBuffer(12)
    metrics = train(stream(), ReplayPlugin(12, storage_policy=buffer))
    assert last(metrics, "Memory_Residual") == buffer.residual_norm


def test_memories_without_weights_and_residual():
    plugin = GDumbPlugin(10)
    plugin.storage_policy = ReservoirSamplingBuffer(10)
    metrics = train(class_incremental(), plugin)
    assert last(metrics, "Memory_Size") == 10
    assert last(metrics, "Memory_EffectiveSize") == 10
    assert not any("Residual" in name for name in metrics)


def test_a_class_that_left_shows_as_zero():
    plugin = ReplayPlugin(5, storage_policy=SlidingWindowBuffer(5))
    metrics = train(class_incremental(), plugin)
    assert metrics["Memory_Class000/train_phase/train_stream"][1][1:] == [0, 0]
    assert last(metrics, "Memory_Class005") > 0


def test_several_memories():
    one, two = SlidingWindowBuffer(5), SlidingWindowBuffer(7)
    plugins = [ReplayPlugin(5, storage_policy=one), ReplayPlugin(7, storage_policy=two)]
    metrics = train(class_incremental(), *plugins, metrics=[*coreset_metrics(), loss_metrics()])
    assert last(metrics, "Memory1_Size") == 5
    assert last(metrics, "Memory2_Size") == 7


def test_the_memory_of_a_strategy():
    model = mlp()
    strategy = ER_ACE(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        mem_size=9,
        batch_size_mem=5,
        train_mb_size=7,
        evaluator=EvaluationPlugin(*coreset_metrics(), loggers=[]),
    )
    strategy.storage_policy = GradientMatchingBuffer(9)
    for exp in class_incremental():
        strategy.train(exp)
    assert last(strategy.evaluator.get_all_metrics(), "Memory_Size") == 9


def test_no_memory_no_metrics():
    assert train(class_incremental()) == {}


def test_a_text_logger_prints_them():
    text = io.StringIO()
    plugin = ReplayPlugin(12, storage_policy=GradientMatchingBuffer(12))
    train(class_incremental(), plugin, loggers=[TextLogger(text)])
    assert "Memory_Residual/train_phase/train_stream = " in text.getvalue()


def test_only_what_is_asked_for():
    metrics = coreset_metrics(size=False, residual=False, class_counts=False)
    plugin = ReplayPlugin(12, storage_policy=GradientMatchingBuffer(12))
    found = train(class_incremental(), plugin, metrics=metrics)
    assert list(found) == ["Memory_EffectiveSize/train_phase/train_stream"]
