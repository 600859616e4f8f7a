"""The paper's simple memories against slow list-based readings of their definitions."""

import random
from collections import Counter

import pytest
import torch
from avalanche.benchmarks.utils import AvalancheDataset
from avalanche.benchmarks.utils.data_attribute import DataAttribute
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import TensorDataset

from avalanche_gmc.buffers import GreedyClassBalancedBuffer, SlidingWindowBuffer


def dataset(labels, first=0):
    """Examples whose input is their number in the stream."""
    x = torch.arange(first, first + len(labels)).reshape(-1, 1).float()
    y = torch.tensor(labels, dtype=torch.long)
    attributes = [DataAttribute(list(labels), "targets")]
    return AvalancheDataset([TensorDataset(x, y)], data_attributes=attributes)


def numbers(buffer):
    return [int(sample[0]) for sample in buffer.buffer]


def feed(buffer, batches):
    seen = 0
    for labels in batches:
        buffer.update_from_dataset(dataset(labels, seen))
        seen += len(labels)
    return buffer


def greedy_sampler(labels, size, generator):
    """GDumb's sampler, one example at a time on a plain list, in the order of the stream."""
    memory, seen = [], set()
    for number, label in enumerate(labels):
        seen.add(label)
        counts = Counter(kept for _, kept in memory)
        if len(memory) >= size:
            if counts[label] >= size / len(seen):
                continue
            largest = min(c for c in counts if counts[c] == max(counts.values()))
            victims = [example for example in memory if example[1] == largest]
            memory.remove(victims[generator.randrange(len(victims))])
        memory.append((number, label))
    return [number for number, _ in memory]


streams = st.lists(st.lists(st.integers(0, 4), max_size=12), max_size=6)


@given(streams, st.integers(0, 9))
def test_sliding_window_is_the_end_of_the_stream(batches, size):
    buffer = feed(SlidingWindowBuffer(size), batches)
    seen = list(range(sum(map(len, batches))))
    assert numbers(buffer) == seen[max(0, len(seen) - size) :]


@given(streams, st.integers(1, 9), st.integers(0, 3))
def test_greedy_sampler_equals_the_plain_loop(batches, size, seed):
    buffer = feed(GreedyClassBalancedBuffer(size, seed), batches)
    labels = [label for batch in batches for label in batch]
    assert numbers(buffer) == greedy_sampler(labels, size, random.Random(seed))


@given(streams, st.integers(1, 9))
def test_the_division_into_updates_does_not_matter(batches, size):
    labels = [label for batch in batches for label in batch]
    whole = feed(GreedyClassBalancedBuffer(size), [labels])
    assert numbers(feed(GreedyClassBalancedBuffer(size), batches)) == numbers(whole)


def test_classes_are_balanced_as_far_as_they_can_be():
    buffer = feed(GreedyClassBalancedBuffer(12), [[0] * 50, [1] * 50, [2] * 2, [3] * 50])
    assert buffer.class_counts[2] == 2
    assert sorted(buffer.class_counts.values()) == [2, 3, 3, 4]
    feed(buffer, [[2] * 50])
    assert buffer.class_counts == {0: 3, 1: 3, 2: 3, 3: 3}


def test_full_even_if_one_class_is_rare():
    buffer = feed(GreedyClassBalancedBuffer(10), [[0, 1] + [0] * 30])
    assert buffer.class_counts == {0: 9, 1: 1}


def test_another_seed_evicts_others_and_not_always_the_same_place():
    batches = [[0] * 40, [1] * 20]
    by_seed = {
        tuple(numbers(feed(GreedyClassBalancedBuffer(20, seed), batches))) for seed in (1, 2)
    }
    assert len(by_seed) == 2
    left = [n for n in numbers(feed(GreedyClassBalancedBuffer(20), batches)) if n < 40]
    assert len(left) == 10
    assert left != list(range(10))


def test_shrinking_keeps_the_balance():
    buffer = feed(GreedyClassBalancedBuffer(12), [[0] * 9 + [1] * 2 + [2]])
    buffer.resize(None, 6)
    assert buffer.class_counts == {0: 3, 1: 2, 2: 1}


def test_shrinking_the_window_keeps_the_newest():
    buffer = feed(SlidingWindowBuffer(6), [[0] * 9])
    buffer.resize(None, 2)
    assert numbers(buffer) == [7, 8]


@pytest.mark.parametrize("targets", [[0.5, 1.5], [torch.tensor([0, 1]), torch.tensor([1, 0])]])
def test_greedy_needs_class_labels(targets):
    leaf = TensorDataset(torch.zeros(2, 1), torch.zeros(2))
    data = AvalancheDataset([leaf], data_attributes=[DataAttribute(targets, "targets")])
    with pytest.raises(ValueError, match="one integer class label"):
        GreedyClassBalancedBuffer(1).update_from_dataset(data)
    with pytest.raises(ValueError, match="no `targets`"):
        GreedyClassBalancedBuffer(1).update_from_dataset(AvalancheDataset([leaf]))
    buffer = SlidingWindowBuffer(1)
    buffer.update_from_dataset(AvalancheDataset([leaf]))
    assert repr(buffer) == "SlidingWindowBuffer(1 of 1 exemplars)"
