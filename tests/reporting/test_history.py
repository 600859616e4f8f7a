"""The history has what was in the memory after each experience, whatever the memory."""

import pickle
from itertools import pairwise

import numpy as np
import pytest
import torch
from avalanche.benchmarks.utils import AvalancheDataset
from avalanche.training.plugins import EvaluationPlugin, ReplayPlugin
from avalanche.training.storage_policy import (
    ClassBalancedBuffer,
    ExperienceBalancedBuffer,
    ReservoirSamplingBuffer,
)
from PIL import Image
from reported_memories import dataset, first_come, images, window_history
from small_streams import class_incremental, mlp, naive
from torch.utils.data import TensorDataset

from avalanche_gmc import GradientMatchingBuffer, MemoryHistory, SlidingWindowBuffer
from avalanche_gmc.reporting import history as history_module


def train(buffer, history, *, others=()):
    plugin = ReplayPlugin(buffer.max_size, storage_policy=buffer)
    evaluator = EvaluationPlugin(history, loggers=[])
    strategy = naive(mlp(), plugin, *others, evaluator=evaluator, train_epochs=1)
    for experience in class_incremental():
        strategy.train(experience)
    return strategy


@pytest.mark.parametrize(
    "make",
    [
        GradientMatchingBuffer,
        SlidingWindowBuffer,
        ReservoirSamplingBuffer,
        lambda size: ClassBalancedBuffer(size, adaptive_size=True),
        lambda size: ExperienceBalancedBuffer(size, adaptive_size=True),
    ],
)
def test_records_every_experience_of_any_memory(make):
    buffer, history = make(12), MemoryHistory()
    train(buffer, history)
    assert [one.name for one in history.snapshots] == [f"experience {i}" for i in (1, 2, 3)]
    assert [len(set(one.ids)) for one in history.snapshots] == [12, 12, 12]
    now = history.snapshots[-1]
    labels = [history.exemplars[key].label for key in now.ids]
    assert labels == [int(target) for target in buffer.buffer._data_attributes["targets"]]
    if isinstance(buffer, GradientMatchingBuffer):
        assert now.weights == buffer.weights.double().tolist()
        assert now.residual == buffer.residual_norm
        assert now.effective_size == pytest.approx(buffer.effective_size)
        assert now.num_seen == 60
    else:
        assert (now.weights, now.residual, now.effective_size) == (None, None, 12)


def test_exemplars_that_stay_keep_their_id():
    _, history = window_history()
    one, two, three = (snapshot.ids for snapshot in history.snapshots)
    assert two[:2] == one[2:]
    assert three[:2] == two[4:]
    assert len(history.exemplars) == 12


def test_equal_examples_are_told_apart():
    data = dataset(torch.zeros(3, 1, 8, 8, dtype=torch.uint8), [0, 0, 1])
    memory, history = SlidingWindowBuffer(3), MemoryHistory()
    memory.update_from_dataset(data)
    history.record(memory)
    assert len(set(history.snapshots[0].ids)) == 3
    history.record(memory)
    assert history.snapshots[0].ids == history.snapshots[1].ids


def test_ids_do_not_depend_on_avalanche_transforms():
    class Noise:
        def __call__(self, x):
            return x + torch.rand(x.shape)

    data = images([0, 1]).replace_current_transform_group(Noise())
    memory, history = ReservoirSamplingBuffer(2), MemoryHistory()
    memory.update_from_dataset(data)
    history.record(memory)
    history.record(memory)
    assert history.snapshots[0].ids == history.snapshots[1].ids


@pytest.mark.parametrize(
    ("target", "label", "text"),
    [(3, 3, "3"), (1.25, None, "1.25"), (torch.tensor([1.0, 2.0]), None, "[1.0, 2.0]")],
)
def test_targets_need_not_be_class_labels(target, label, text):
    from avalanche.benchmarks.utils.data_attribute import DataAttribute

    attribute = DataAttribute([target] * 2, "targets")
    data = AvalancheDataset(
        [TensorDataset(torch.rand(2, 5), torch.rand(2))], data_attributes=[attribute]
    )
    history = MemoryHistory()
    history.record(first_come(data, 2))
    assert {(one.label, one.target) for one in history.exemplars.values()} == {(label, text)}


def test_memories_without_targets_and_empty_ones():
    history = MemoryHistory()
    history.record(SlidingWindowBuffer(3))
    history.record(first_come(AvalancheDataset([TensorDataset(torch.rand(2, 5))]), 2))
    assert [len(one.ids) for one in history.snapshots] == [0, 2]
    assert {(one.label, one.target) for one in history.exemplars.values()} == {(None, "")}


def shown(value, **options):
    class Leaf:
        def __len__(self):
            return 1

        def __getitem__(self, index):
            return value, 0

    history = MemoryHistory(**options)
    history.record(first_come(AvalancheDataset([Leaf()]), 1))
    (exemplar,) = history.exemplars.values()
    return exemplar


def test_what_is_shown_of_an_input():
    assert shown(Image.new("RGB", (6, 5), "red")).picture.shape == (5, 6, 3)
    assert shown(torch.rand(3, 5, 6)).picture.shape == (5, 6, 3)
    assert shown(np.zeros((5, 6, 1), dtype=np.uint8)).picture.shape == (5, 6)
    assert shown(torch.rand(1, 300, 200)).picture.shape == (64, 43)
    assert shown(torch.tensor([1.0, 2.5])).values == ["1", "2.5"]
    assert shown(torch.arange(100)).values == [str(i) for i in range(8)]
    assert shown("a text").values == ["a text"]
    assert shown({"tokens": "x" * 500}).values[0].endswith("…")
    assert shown(torch.arange(16.0), display=lambda x: x.reshape(4, 4)).picture.shape == (4, 4)


def test_a_long_stream_does_not_let_it_grow(monkeypatch):
    monkeypatch.setattr(history_module, "MOST_SNAPSHOTS", 8)
    monkeypatch.setattr(history_module, "MOST_PICTURES", 5)
    memory, history = SlidingWindowBuffer(3), MemoryHistory()
    for step in range(100):
        memory.update_from_dataset(images([0, 1, 2], seed=step))
        history.record(memory)
    assert 4 <= len(history.snapshots) <= 8
    numbers = [int(one.name.split()[1]) for one in history.snapshots]
    assert len({after - before for before, after in pairwise(numbers)}) == 1
    assert set(history.exemplars) == {key for one in history.snapshots for key in one.ids}
    with_picture = [key for key, one in history.exemplars.items() if one.picture is not None]
    assert len(with_picture) <= 8
    assert set(history.snapshots[-1].ids) <= set(with_picture)


@pytest.mark.parametrize("updates", range(6, 20))
def test_however_long_the_stream_the_last_step_is_the_memory_now(monkeypatch, updates):
    monkeypatch.setattr(history_module, "MOST_SNAPSHOTS", 8)
    memory, history = SlidingWindowBuffer(3), MemoryHistory()
    for step in range(updates):
        memory.update_from_dataset(images([0, 1, 2], seed=step))
        history.record(memory)
    now = MemoryHistory().with_now(memory).snapshots[0]
    ended = history.with_now(memory)
    assert ended.snapshots[-1].ids == now.ids
    assert ended.snapshots[-1].name == f"experience {updates}"
    assert all(ended.exemplars[key].picture is not None for key in now.ids)


def test_it_ends_with_the_memory_as_it_is_now():
    memory, history = window_history()
    assert history.with_now(memory).snapshots == history.snapshots
    memory.update_from_dataset(images([5], seed=9))
    ended = history.with_now(memory)
    assert [one.name for one in ended.snapshots][-2:] == ["experience 3", "now"]
    assert len(history.snapshots) == 3, "the history itself is not changed"


def test_several_memories_must_be_named():
    one, two = SlidingWindowBuffer(5), SlidingWindowBuffer(7)
    plugin = ReplayPlugin(7, storage_policy=two)
    with pytest.raises(ValueError, match="with 2 of them; give the storage policy itself"):
        train(one, MemoryHistory(), others=[plugin])
    history = MemoryHistory(plugin)
    train(one, history, others=[plugin])
    assert [len(snapshot.ids) for snapshot in history.snapshots] == [7, 7, 7]


def test_a_history_can_be_pickled_and_started_anew():
    _, history = window_history()
    assert pickle.loads(pickle.dumps(history)).snapshots == history.snapshots
    history.reset()
    assert (history.result(), history.exemplars) == ([], {})
