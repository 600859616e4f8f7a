"""What every memory must do, ours and Avalanche's reservoir alike."""

import copy
import gc
import pickle
import random
import warnings
import weakref
from types import SimpleNamespace

import dill
import numpy as np
import pytest
import torch
from avalanche.benchmarks.utils import AvalancheDataset, make_avalanche_dataset
from avalanche.benchmarks.utils.data_attribute import DataAttribute, TaskLabels
from avalanche.training import ER_ACE
from avalanche.training.plugins import GDumbPlugin, ReplayPlugin, SupervisedPlugin
from avalanche.training.storage_policy import ReservoirSamplingBuffer
from avalanche.training.supervised.der import DER, compute_dataset_logits
from small_streams import class_incremental, mlp, naive
from torch.utils.data import TensorDataset

from avalanche_gmc.buffers import GradientMatchingBuffer
from avalanche_gmc.buffers.baselines import BASELINES
from avalanche_gmc.checkpointing import maybe_load_checkpoint, save_checkpoint

OURS = {
    "gradient matching": GradientMatchingBuffer,
    "gradient matching, local": lambda n: GradientMatchingBuffer(n, "local"),
    "gradient matching, chunked": lambda n: GradientMatchingBuffer(n, chunk_size=25),
    **BASELINES,
    "herding, local": lambda n: BASELINES["herding"](n, "local"),
}
ALL = {**OURS, "Avalanche's reservoir": ReservoirSamplingBuffer}

every_buffer = pytest.mark.parametrize("make", ALL.values(), ids=ALL)
our_buffers = pytest.mark.parametrize("make", OURS.values(), ids=OURS)

FEATURES = 6
CLASSES = 6
SHAPES = {
    "large experiences": [60, 70, 50],
    "online": [5] * 12,
    "single examples": [1] * 24,
    "empty and tiny between large": [0, 1, 40, 0, 2, 3, 60, 1],
    "never full": [3, 0, 4],
}


def experience(size, *, number=0, task=0):
    """Examples that can be told apart by their first feature."""
    generator = torch.Generator().manual_seed(number)
    x = torch.randn(size, FEATURES, generator=generator)
    x[:, 0] = number + torch.arange(size) / 1000
    y = torch.randint(CLASSES, (size,), generator=generator)
    data = AvalancheDataset(
        [TensorDataset(x, y)],
        data_attributes=[DataAttribute(y.tolist(), "targets"), TaskLabels([task] * size)],
    )
    return SimpleNamespace(dataset=data)


def stream(sizes):
    return [experience(size, number=t, task=t % 2) for t, size in enumerate(sizes)]


def agent():
    return SimpleNamespace(model=mlp(CLASSES))


def feed(buffer, experiences):
    strategy = agent()
    for exp in experiences:
        buffer.post_adapt(strategy, exp)
    return buffer


def names(buffer):
    """The exemplars' first features, in the order of the memory."""
    return [round(float(buffer.buffer[i][0][0]), 3) for i in range(len(buffer.buffer))]


def contents(buffer):
    data = buffer.buffer
    rows = [(data[i][0].tolist(), int(data[i][1]), data[i][2]) for i in range(len(data))]
    weights = getattr(buffer, "weights", None)
    return rows, None if weights is None else weights.tolist()


@every_buffer
@pytest.mark.parametrize("sizes", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("max_size", [1, 20])
def test_full_but_never_above_max_size(make, sizes, max_size):
    buffer, strategy, seen = make(max_size), agent(), 0
    for exp in stream(sizes):
        buffer.post_adapt(strategy, exp)
        seen += len(exp.dataset)
        assert len(buffer.buffer) == min(seen, max_size)
        assert buffer.max_size == max_size


@every_buffer
@pytest.mark.parametrize("sizes", SHAPES.values(), ids=SHAPES)
def test_exemplars_are_distinct_examples_of_the_stream_with_their_labels(make, sizes):
    experiences = stream(sizes)
    buffer = feed(make(20), experiences)
    data = buffer.buffer
    assert len(set(names(buffer))) == len(data)
    for i, name in enumerate(names(buffer)):
        source = experiences[int(name)].dataset
        x, y, task = source[round(name % 1 * 1000)]
        torch.testing.assert_close(data[i][0], x)
        assert data[i][1] == y == data.targets[i]
        assert data[i][2] == task == data.targets_task_labels[i]


@every_buffer
def test_nothing_seen(make):
    buffer = make(5)
    assert len(buffer.buffer) == 0
    buffer.resize(None, 3)
    buffer.post_adapt(agent(), SimpleNamespace(dataset=AvalancheDataset([])))
    assert len(buffer.buffer) == 0
    assert buffer.max_size == 3


@every_buffer
def test_resizing_down_and_up(make):
    buffer = feed(make(20), stream([60, 50]))
    before = set(names(buffer))
    buffer.resize(None, 8)
    once = names(buffer)
    assert len(once) == 8
    assert set(once) <= before | set(names(feed(make(20), stream([60, 50]))))
    buffer.resize(None, 8)
    assert names(buffer) == once
    buffer.resize(None, 30)
    assert buffer.max_size == 30
    assert set(once) <= set(names(buffer))
    feed(buffer, [experience(50, number=2)])
    assert len(buffer.buffer) == 30


@every_buffer
def test_growing_never_loses(make):
    buffer = feed(make(10), stream([40, 5]))
    before = names(buffer)
    for size in (10, 11, 40):
        buffer.resize(None, size)
        assert set(before) <= set(names(buffer))


@every_buffer
def test_resizing_to_nothing_and_back(make):
    buffer = feed(make(10), stream([40]))
    buffer.resize(None, 0)
    assert len(buffer.buffer) == 0
    feed(buffer, [experience(5, number=1)])
    assert len(buffer.buffer) == 0
    buffer.resize(None, 4)
    feed(buffer, [experience(30, number=2)])
    assert 0 < len(buffer.buffer) <= 4


@every_buffer
@pytest.mark.parametrize("task_balanced", [False, True])
def test_in_the_stock_replay_plugin(make, task_balanced):
    plugin = ReplayPlugin(
        12,
        batch_size_mem=6,
        storage_policy=make(12),
        task_balanced_dataloader=task_balanced,
    )
    strategy = naive(mlp(), plugin, train_epochs=1)
    for exp in class_incremental():
        strategy.train(exp)
    assert len(plugin.storage_policy.buffer) == 12


class TrainedOn(SupervisedPlugin):
    def before_training_epoch(self, strategy, **kwargs):
        self.data = strategy.adapted_dataset


@every_buffer
def test_in_the_stock_gdumb_plugin(make):
    plugin = GDumbPlugin(12)
    plugin.storage_policy = make(12)
    trained_on = TrainedOn()
    strategy = naive(mlp(), plugin, trained_on, train_epochs=1)
    for exp in class_incremental():
        strategy.train(exp)
        assert trained_on.data is plugin.storage_policy.buffer
    assert len(plugin.storage_policy.buffer) == 12


@every_buffer
def test_in_er_ace(make):
    model = mlp()
    strategy = ER_ACE(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        mem_size=12,
        batch_size_mem=5,
        train_mb_size=7,
        evaluator=None,
    )
    strategy.storage_policy = make(12)
    for exp in class_incremental():
        strategy.train(exp)
    assert len(strategy.storage_policy.buffer) == 12


class WithLogits:
    """DER's habit of storing the model's outputs with each exemplar, for any memory."""

    def __init__(self, memory):
        self.memory = memory

    @property
    def buffer(self):
        return self.memory.buffer

    def update(self, strategy, **kwargs):
        data = strategy.experience.dataset
        logits = compute_dataset_logits(data.eval(), strategy.model, 16, strategy.device)
        attribute = DataAttribute(logits, "logits", use_in_getitem=True)
        data = make_avalanche_dataset(data, data_attributes=[attribute])
        self.memory.post_adapt(strategy, SimpleNamespace(dataset=data))


@every_buffer
def test_in_der_with_stored_logits(make):
    model = mlp()
    strategy = DER(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        mem_size=12,
        batch_size_mem=5,
        train_mb_size=7,
        evaluator=None,
    )
    strategy.storage_policy = WithLogits(make(12))
    for exp in class_incremental():
        strategy.train(exp)
    assert strategy.storage_policy.buffer[0][3].shape == (6,)
    assert len(strategy.storage_policy.buffer) == 12


@every_buffer
def test_same_seed_and_stream_give_the_same_memory(make):
    results = []
    for _ in range(2):
        torch.manual_seed(0)
        results.append(contents(feed(make(20), stream([30, 4, 4, 40]))))
    assert results[0] == results[1]


COPIES = {
    "pickle": lambda b: pickle.loads(pickle.dumps(b)),
    "dill": lambda b: dill.loads(dill.dumps(b)),
    "deepcopy": copy.deepcopy,
}


@every_buffer
@pytest.mark.parametrize("clone", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("before", [[], [4], [30, 4, 4]], ids=["empty", "not full", "full"])
def test_a_copy_goes_on_to_the_same_memory(make, clone, before):
    after = [experience(4, number=7), experience(40, number=8)]
    buffer = feed(make(20), stream(before))
    twin = clone(buffer)
    if before:
        assert contents(twin) == contents(buffer)
    torch.manual_seed(0)
    feed(buffer, after)
    torch.manual_seed(0)
    feed(twin, after)
    assert contents(twin) == contents(buffer)


@every_buffer
def test_a_checkpointed_strategy_goes_on_to_the_same_memory(make, tmp_path, capsys):
    def fresh():
        return naive(mlp(), ReplayPlugin(12, storage_policy=make(12)), train_epochs=1)

    experiences = list(class_incremental())
    strategy = fresh()
    for exp in experiences[:2]:
        strategy.train(exp)
    save_checkpoint(strategy, tmp_path / "checkpoint")
    torch.manual_seed(0)
    strategy.train(experiences[2])
    expected = contents(strategy.plugins[0].storage_policy)
    resumed, done = maybe_load_checkpoint(fresh(), tmp_path / "checkpoint")
    assert done == 2
    torch.manual_seed(0)
    resumed.train(experiences[2])
    assert contents(resumed.plugins[0].storage_policy) == expected


@our_buffers
def test_update_is_post_adapt_without_a_warning(make):
    direct = feed(make(10), stream([20, 15]))
    through_update, strategy = make(10), agent()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for exp in stream([20, 15]):
            strategy.experience = exp
            through_update.update(strategy, num_workers=0)
    assert contents(through_update) == contents(direct)


@our_buffers
def test_update_from_dataset_with_and_without_the_strategy(make):
    buffer, strategy = make(10), agent()
    for exp in stream([20, 15]):
        buffer.update_from_dataset(exp.dataset, strategy)
    assert contents(buffer) == contents(feed(make(10), stream([20, 15])))


@our_buffers
def test_global_randomness_is_neither_used_nor_changed(make):
    states = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    buffer = feed(make(10), stream([30, 3, 3]))
    buffer.resize(None, 5)
    after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    assert torch.equal(states[0], after[0])
    assert states[1:] == after[1:]


@our_buffers
def test_the_stream_is_free(make):
    buffer, strategy, sources = make(10), agent(), []
    for number in range(60):
        exp = experience(20, number=number)
        sources.append(weakref.ref(exp.dataset._flat_data._datasets[0]))
        buffer.post_adapt(strategy, exp)
        del exp
    gc.collect()
    assert [source for source in sources if source() is not None] == []
    assert len(pickle.dumps(buffer.buffer)) < 10 * (FEATURES * 4 + 1000)


@our_buffers
def test_a_failed_update_changes_nothing(make):
    class Broken(TensorDataset):
        reads = 0

        def __getitem__(self, index):
            self.reads += 1
            if self.reads == 3:
                raise OSError("unreadable")
            return super().__getitem__(index)

    good = experience(40, number=1).dataset
    leaf = good._flat_data._datasets[0]
    bad = AvalancheDataset(
        [Broken(*leaf.tensors)], data_attributes=list(good._data_attributes.values())
    )
    buffer = feed(make(35), stream([50, 3]))
    twin = copy.deepcopy(buffer)
    with pytest.raises(OSError, match="unreadable"):
        buffer.post_adapt(agent(), SimpleNamespace(dataset=bad))
    assert contents(buffer) == contents(twin)
    more = [experience(40, number=5)]
    assert contents(feed(buffer, more)) == contents(feed(twin, more))


@our_buffers
def test_the_buffer_is_one_object_until_something_changes_and_cannot_be_set(make):
    buffer = feed(make(10), stream([30]))
    assert buffer.buffer is buffer.buffer
    with pytest.raises(AttributeError, match="update_from_dataset"):
        buffer.buffer = AvalancheDataset([])


@our_buffers
def test_a_torch_dataset_is_refused(make):
    with pytest.raises(ValueError, match="as_classification_dataset"):
        make(3).update_from_dataset(TensorDataset(torch.zeros(3, 1)), agent())


@our_buffers
@pytest.mark.parametrize("size", [-1, 2.5, True, "10"])
def test_sizes_that_are_none(make, size):
    with pytest.raises(ValueError, match="size"):
        make(size)
    with pytest.raises(ValueError, match="size"):
        make(3).resize(None, size)


@our_buffers
def test_repr_shows_size_and_classes(make):
    text = repr(feed(make(10), stream([30])))
    assert "10 of 10 exemplars" in text
    assert "classes {0:" in text
    assert len(text) < 200
    assert "0 of 10" in repr(make(10))
