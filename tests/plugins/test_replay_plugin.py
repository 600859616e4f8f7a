"""CoresetReplayPlugin against stock replay, hand-computed gradients and its own promises."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from avalanche.evaluation.metrics import accuracy_metrics
from avalanche.models import MTSimpleMLP
from avalanche.training.plugins import (
    EarlyStoppingPlugin,
    EvaluationPlugin,
    LRSchedulerPlugin,
    ReplayPlugin,
)
from avalanche.training.storage_policy import ClassBalancedBuffer, ReservoirSamplingBuffer
from small_streams import (
    FEATURES,
    STREAMS,
    FirstComeBuffer,
    Recorder,
    class_incremental,
    dataset,
    mlp,
    naive,
    parameters,
    run,
    stacked,
    stream_of,
    train,
    uneven,
)
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import StepLR

from avalanche_gmc.plugins import CoresetReplayPlugin

SHARES = ["stream", "batch", 0.3]


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize(
    "sizes",
    [{}, {"batch_size": 5, "batch_size_mem": 9}],
    ids=["default batches", "batches of 5 and 9"],
)
def test_the_share_of_the_batch_is_stock_replay_bit_for_bit(stream, sizes):
    stock = run(
        ReplayPlugin(15, storage_policy=ReservoirSamplingBuffer(15), **sizes), STREAMS[stream]()
    )
    ours = run(
        CoresetReplayPlugin(
            15, storage_policy=ReservoirSamplingBuffer(15), memory_share="batch", **sizes
        ),
        STREAMS[stream](),
    )
    assert torch.equal(stock, ours)


def test_stock_replay_bit_for_bit_with_dropout_and_task_balance():
    stream = stream_of(*(dataset([0, 1], 20, task=t, seed=t) for t in range(3)))
    results = []
    for plugin in (ReplayPlugin, CoresetReplayPlugin):
        own = {"memory_share": "batch"} if plugin is CoresetReplayPlugin else {}
        memory = ClassBalancedBuffer(15)
        tested = plugin(15, task_balanced_dataloader=True, storage_policy=memory, **own)
        results.append(run(tested, stream, model=mlp(middle=nn.Dropout(0.5))))
    assert torch.equal(*results)


@pytest.mark.parametrize("share", SHARES)
def test_equal_weights_change_no_bit(share):
    plain, equal = (
        run(
            CoresetReplayPlugin(15, storage_policy=FirstComeBuffer(15, w), memory_share=share),
            class_incremental(),
        )
        for w in (None, lambda i: 0.3)
    )
    assert torch.equal(plain, equal)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("weigh", [None, uneven], ids=["plain", "weighted"])
def test_one_full_batch_steps_along_the_hand_computed_gradient(share, weigh):
    """Current and memory each give a (weighted) mean; the share joins the two."""
    first, second = class_incremental()[:2]
    memory = FirstComeBuffer(12, weigh)
    model = mlp(seed=5)
    plugin = CoresetReplayPlugin(12, 20, 12, storage_policy=memory, memory_share=share)
    strategy = naive(
        model, plugin, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), train_epochs=1
    )
    strategy.train(first)
    expected = copy.deepcopy(model)

    def loss_of(experience, size, weights):
        inputs, targets = stacked(experience.dataset, size)
        losses = -F.log_softmax(expected(inputs), 1)[torch.arange(size), targets]
        return (weights * losses).sum() / weights.sum()

    weights = torch.tensor([uneven(i) if weigh else 1.0 for i in range(12)])
    part = {"stream": 20 / 40, "batch": 12 / 32, 0.3: 0.3}[share]
    current, past = loss_of(second, 20, torch.ones(20)), loss_of(first, 12, weights)
    ((1 - part) * current + part * past).backward()
    with torch.no_grad():
        for parameter in expected.parameters():
            parameter -= 0.1 * parameter.grad
    strategy.train(second)
    torch.testing.assert_close(parameters(model), parameters(expected), atol=1e-6, rtol=1e-6)


def batches():
    """How many rows each minibatch had and how many were of old classes."""

    def look(strategy):
        old = strategy.mb_y < 2 * strategy.clock.train_exp_counter
        return len(old), int(old.sum())

    return Recorder("before_forward", look)


@pytest.mark.parametrize("share", SHARES)
def test_the_epoch_follows_the_current_data(share):
    recorder = batches()
    plugin = CoresetReplayPlugin(
        40, 8, 6, storage_policy=FirstComeBuffer(40, uneven), memory_share=share
    )
    strategy = naive(mlp(), recorder, plugin, train_epochs=1, train_mb_size=10)
    stream = class_incremental()
    strategy.train(stream[0])
    assert recorder.values == [(10, 0)] * 2
    recorder.values.clear()
    strategy.train(stream[1])  # 20 rows of current data; 20 of memory in batches of 6, 6, 6, 2
    assert recorder.values == [(14, 6), (14, 6), (10, 6)]


def test_the_share_of_the_stream_counts_everything_seen():
    plugin = CoresetReplayPlugin(5, storage_policy=FirstComeBuffer(5))
    recorder = Recorder("before_training_exp", plugin._share)
    stream = stream_of(dataset([0, 1], 30), dataset([2, 3], 10), dataset([4, 5], 40))
    train(naive(mlp(), recorder, plugin, train_epochs=1), stream)
    assert recorder.values == [0, 30 / 40, 40 / 80]


def test_the_memory_is_updated_after_training():
    memory = FirstComeBuffer(25)
    sizes = Recorder("after_training_epoch", lambda _: len(memory.buffer))
    run(CoresetReplayPlugin(25, storage_policy=memory), class_incremental(), sizes)
    assert sizes.values == [0, 0, 20, 20, 25, 25]
    assert len(memory.buffer) == 25


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("stream", STREAMS)
def test_it_learns_on_every_kind_of_stream(stream, share):
    torch.manual_seed(0)
    memory = ReservoirSamplingBuffer(40)
    model = mlp()
    plugin = CoresetReplayPlugin(40, storage_policy=memory, memory_share=share)
    train(naive(model, plugin, train_epochs=10), STREAMS[stream]())
    inputs, targets = stacked(memory.buffer)
    assert (model(inputs).argmax(1) == targets).float().mean() > 0.6


def test_several_heads():
    stream = stream_of(*(dataset([0, 1], 20, task=t, seed=t) for t in range(3)))
    model = MTSimpleMLP(input_size=FEATURES, hidden_size=8)
    model.classifier.masking = False  # it cannot handle the set of classes of this stream
    plugin = CoresetReplayPlugin(30, storage_policy=FirstComeBuffer(30, lambda i: 1.0 + i % 2))
    train(naive(model, plugin, train_epochs=30), stream)
    inputs, targets = stacked(stream[0].dataset)
    outputs = model(inputs, torch.zeros(20, dtype=torch.long))
    assert (outputs[:, :2].argmax(1) == targets).float().mean() > 0.8


def test_early_stopping_and_schedulers_compose():
    stream = class_incremental()
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    strategy = naive(
        model,
        CoresetReplayPlugin(12, storage_policy=FirstComeBuffer(12, uneven)),
        EarlyStoppingPlugin(2, "train_stream"),
        LRSchedulerPlugin(StepLR(optimizer, 1, 0.9)),
        optimizer=optimizer,
        evaluator=EvaluationPlugin(accuracy_metrics(stream=True), loggers=[]),
        eval_every=1,
        train_epochs=60,
    )
    for experience in stream:
        strategy.train(experience, eval_streams=[stream[:1]])
        assert 0 < strategy.clock.train_exp_epochs < 60


def test_a_memory_filled_before_the_stream_counts():
    memory = FirstComeBuffer(10)
    memory.post_adapt(None, class_incremental()[0])
    plugin = CoresetReplayPlugin(10, storage_policy=memory)
    recorder = batches()
    naive(mlp(), recorder, plugin, train_epochs=1).train(class_incremental()[1])
    assert recorder.values[0][0] == 14


def test_a_function_is_as_good_as_a_criterion():
    """Weighted loss and embedding alike."""
    results = [
        run(CoresetReplayPlugin(12), class_incremental(), criterion=criterion)
        for criterion in (nn.CrossEntropyLoss(), F.cross_entropy)
    ]
    torch.testing.assert_close(*results)
    smooth = [
        run(CoresetReplayPlugin(12), class_incremental(), criterion=criterion)
        for criterion in (
            nn.CrossEntropyLoss(label_smoothing=0.2),
            partial(F.cross_entropy, label_smoothing=0.2),
        )
    ]
    torch.testing.assert_close(*smooth)
    assert not torch.allclose(results[0], smooth[0], atol=1e-3)


def test_a_criterion_without_reduction_is_refused_only_with_weights():
    options = {"criterion": lambda output, target: F.cross_entropy(output, target)}
    plain = CoresetReplayPlugin(10, storage_policy=FirstComeBuffer(10), memory_share="batch")
    run(plain, class_incremental(), **options)
    with pytest.raises(ValueError, match="the criterion <lambda>"):
        run(
            CoresetReplayPlugin(10, storage_policy=FirstComeBuffer(10)),
            class_incremental(),
            **options,
        )


@pytest.mark.parametrize("share", ["half", -0.1, 1.5, True, float("nan")])
def test_an_impossible_share_is_refused(share):
    with pytest.raises(ValueError, match="memory_share must be 'stream', 'batch' or a number"):
        CoresetReplayPlugin(5, storage_policy=FirstComeBuffer(5), memory_share=share)


def test_a_size_mismatch_is_refused():
    with pytest.raises(ValueError, match="mem_size is 5 and the storage policy's max_size is 7"):
        CoresetReplayPlugin(5, storage_policy=FirstComeBuffer(7))


@pytest.mark.parametrize("name", ["batch_size", "batch_size_mem"])
@pytest.mark.parametrize("size", [0, -3, True, 2.5])
def test_an_impossible_batch_size_is_refused(name, size):
    with pytest.raises(ValueError, match=f"{name} must be an integer of at least 1, got {size}"):
        CoresetReplayPlugin(5, storage_policy=FirstComeBuffer(5), **{name: size})
