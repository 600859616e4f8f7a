"""Datasets that own their samples: equal to the source sample by sample, and free of it."""

import gc
import pickle
import weakref
from collections import OrderedDict
from typing import NamedTuple

import numpy as np
import pytest
import torch
from avalanche.benchmarks.utils import (
    AvalancheDataset,
    as_classification_dataset,
    as_taskaware_classification_dataset,
    make_avalanche_dataset,
)
from avalanche.benchmarks.utils.data_attribute import DataAttribute, TaskLabels
from avalanche.benchmarks.utils.transform_groups import DefaultTransformGroups, TransformGroups
from PIL import Image
from torch.utils.data import DataLoader, Dataset, TensorDataset

from avalanche_gmc.exemplars import WEIGHTS, Exemplars, materialize, with_weights


class Add:
    def __init__(self, amount):
        self.amount = amount

    def __call__(self, x):
        return x + self.amount


class Times(Add):
    def __call__(self, x):
        return x * self.amount


def tensor_data(size=12, start=0, transforms=None, task=0):
    """A task-aware dataset of `size` distinct 2-vectors with targets 0, 1, 2."""
    x = (torch.arange(2.0 * size) + start).reshape(size, 2)
    y = torch.arange(size) % 3
    return AvalancheDataset(
        [TensorDataset(x, y)],
        data_attributes=[DataAttribute(y.tolist(), "targets"), TaskLabels([task] * size)],
        transform_groups=transforms,
    )


def rows(dataset):
    return [[torch.as_tensor(v).tolist() for v in dataset[i]] for i in range(len(dataset))]


def count_leaves(node):
    children = getattr(node, "_datasets", None)
    return 1 if children is None else sum(count_leaves(child) for child in children)


def layered():
    """Frozen and plain transforms on two levels that do not commute, in both groups."""
    data = tensor_data(transforms=TransformGroups({"train": Add(1), "eval": Add(2)}))
    data = make_avalanche_dataset(
        data.subset(list(range(10))), frozen_transform_groups=DefaultTransformGroups(Times(3))
    )
    return make_avalanche_dataset(
        data, transform_groups=TransformGroups({"train": Times(5), "eval": Add(7)})
    )


VIEWS = {
    "as is": lambda d: d,
    "train": lambda d: d.train(),
    "eval": lambda d: d.eval(),
    "frozen, eval": lambda d: d.freeze_transforms().eval(),
    "replaced": lambda d: d.replace_current_transform_group(Add(100)),
    "eval replaced": lambda d: d.eval().replace_current_transform_group(Add(100)),
    "removed": lambda d: d.remove_current_transform_group(),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("source", [tensor_data, layered], ids=["plain", "layered"])
def test_every_view_of_the_copy_equals_that_of_the_source(source, view):
    data = source()
    picks = [7, 0, 3, 3]
    assert rows(view(materialize(data, picks))) == [rows(view(data))[i] for i in picks]


def test_a_copy_of_a_copy_is_the_same_and_shares_samples():
    once = materialize(layered(), range(10))
    twice = materialize(once, [4, 2])
    assert rows(twice) == [rows(once)[i] for i in (4, 2)]
    assert twice.remove_current_transform_group()[0][0] is not None
    assert count_leaves(twice._flat_data) == 1


def test_the_group_in_use_is_kept():
    data = tensor_data(transforms=TransformGroups({"train": Add(1), "eval": Add(2)})).eval()
    assert rows(materialize(data, [1]))[0][0] == [4.0, 5.0]


def test_samples_with_different_transforms_keep_their_own():
    first = tensor_data(transforms=TransformGroups({"train": Add(1), "eval": Add(2)}))
    second = tensor_data(start=50, transforms=TransformGroups({"train": Times(3), "eval": None}))
    joined = Exemplars.copy_of(first, [1, 3]).concat(Exemplars.copy_of(second, [0, 2]))
    owned = joined.take([2, 0, 3, 1]).dataset()
    picks = [(second, 0), (first, 1), (second, 2), (first, 3)]
    assert rows(owned) == [rows(d)[i] for d, i in picks]
    assert rows(owned.eval()) == [rows(d.eval())[i] for d, i in picks]
    assert rows(materialize(owned, [3, 0])) == [rows(owned)[3], rows(owned)[0]]


def test_leaves_do_not_multiply_on_a_long_stream():
    stream = tensor_data(60, transforms=TransformGroups({"train": Add(1), "eval": None}))
    memory = Exemplars()
    for i in range(60):
        # a fresh subset with fresh wrappers around the same transforms, and a lookup in between
        memory = memory.concat(Exemplars.copy_of(stream.subset([i]).train(), [0]))
        memory.dataset().eval()[0]
    assert rows(memory.dataset()) == rows(stream)
    assert count_leaves(memory.dataset()._flat_data) == 1


def test_default_groups_are_the_same_before_and_after_a_lookup():
    groups = DefaultTransformGroups(Times(2))
    used = make_avalanche_dataset(tensor_data(), frozen_transform_groups=groups)
    used[0], used.with_transforms("other")[0]
    fresh = make_avalanche_dataset(
        tensor_data(), frozen_transform_groups=DefaultTransformGroups(groups["train"])
    )
    both = Exemplars.copy_of(used, [0]).concat(Exemplars.copy_of(fresh, [1])).dataset()
    assert count_leaves(both._flat_data) == 1
    assert rows(both.with_transforms("other")) == [[[0, 2], 0, 0], [[4, 6], 1, 0]]


def test_attributes_keep_order_values_and_place_in_the_minibatch():
    data = tensor_data(6, task=4)
    data = AvalancheDataset(
        [data],
        data_attributes=[
            DataAttribute(list("abcdef"), "name"),
            DataAttribute([torch.ones(2) * i for i in range(6)], "logits", use_in_getitem=True),
        ],
    )
    owned = materialize(data, [5, 1])
    assert list(owned._data_attributes) == list(data._data_attributes)
    assert list(owned.targets) == [2, 1]
    assert list(owned.targets_task_labels) == [4, 4]
    assert list(owned.name) == ["f", "b"]
    x, y, task, logits = next(iter(DataLoader(owned, batch_size=2)))
    assert task.tolist() == [4, 4]
    assert y.tolist() == [2, 1]
    assert logits.tolist() == [[5, 5], [1, 1]]
    assert x.tolist() == [[10, 11], [2, 3]]


@pytest.mark.parametrize(
    "wrap", [as_classification_dataset, as_taskaware_classification_dataset, lambda d: d]
)
def test_the_class_of_the_dataset_is_kept(wrap):
    data = wrap(tensor_data())
    owned = materialize(data, [2, 0])
    assert type(owned) is type(data)
    assert list(owned.targets) == [2, 0]


def test_mixed_attributes_are_refused_not_dropped():
    plain = tensor_data()
    richer = AvalancheDataset([plain], data_attributes=[DataAttribute([0] * 12, "difficulty")])
    with pytest.raises(ValueError, match="difficulty"):
        Exemplars.copy_of(plain, [0]).concat(Exemplars.copy_of(richer, [0]))


def test_attributes_in_another_order_keep_their_values():
    y = [2, 0, 1]
    attributes = [DataAttribute(y, "targets"), DataAttribute(list("abc"), "name")]
    leaf = TensorDataset(torch.zeros(3, 1), torch.tensor(y))
    one = AvalancheDataset([leaf], data_attributes=attributes)
    two = AvalancheDataset([leaf], data_attributes=attributes[::-1])
    both = Exemplars.copy_of(one, [0, 1]).concat(Exemplars.copy_of(two, [2])).dataset()
    assert list(both._data_attributes) == ["name", "targets"]
    assert list(both.name) == ["a", "b", "c"]
    assert list(both.targets) == [2, 0, 1]


class ListSamples(Dataset):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        return [torch.full((2,), float(index)), index]


def test_list_samples_do_not_grow_when_read_again():
    data = AvalancheDataset([ListSamples()], data_attributes=[TaskLabels([0, 1, 2])])
    owned = materialize(data, [0, 1, 2])
    assert [len(owned[1]) for _ in range(3)] == [3, 3, 3]


class Images(Dataset):
    """As torchvision's MNIST does it: one big array, each image a view of it."""

    def __init__(self):
        self.data = np.arange(1000 * 64, dtype=np.uint8).reshape(1000, 8, 8)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return Image.fromarray(self.data[index]), index % 10


@pytest.mark.parametrize("kind", ["tensor", "array", "image"])
def test_the_source_is_free_and_the_pickle_small(kind):
    if kind == "tensor":
        big = torch.randn(1000, 64)
        leaf = TensorDataset(big, torch.arange(1000))
    else:
        leaf = Images()
        big = leaf.data
    if kind == "array":
        leaf = [(big[i], i) for i in range(1000)]
    data = AvalancheDataset([leaf], data_attributes=[DataAttribute(list(range(1000)), "targets")])
    expected = np.asarray(data[17][0]).copy()
    owned = materialize(data, [3, 17])
    alive = weakref.ref(big)
    size = len(pickle.dumps(owned))
    del big, leaf, data
    gc.collect()
    assert alive() is None
    assert size < 6000
    np.testing.assert_array_equal(np.asarray(owned[1][0]), expected)
    np.testing.assert_array_equal(np.asarray(pickle.loads(pickle.dumps(owned))[1][0]), expected)


def test_a_change_in_the_source_does_not_reach_the_copy():
    x = torch.zeros(4, 2)
    data = AvalancheDataset([TensorDataset(x, torch.arange(4))])
    owned = materialize(data, [0, 1])
    x += 1
    assert owned[0][0].tolist() == [0, 0]


def test_empty_selection():
    assert len(materialize(tensor_data(), [])) == 0


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (TensorDataset(torch.zeros(2, 1)), "as_classification_dataset"),
        (AvalancheDataset([[{"x": 0}]]), "tuple"),
    ],
    ids=["torch dataset", "dict samples"],
)
def test_other_data_is_refused(data, message):
    with pytest.raises(ValueError, match=message):
        materialize(data, [0])


@pytest.mark.parametrize("view", [lambda d: d, lambda d: d.eval()], ids=["train", "eval"])
def test_weights_sit_before_the_task_labels_in_float32(view):
    data = view(tensor_data(4, transforms=TransformGroups({"train": Add(1), "eval": None}), task=3))
    weighted = with_weights(data, torch.tensor([0.1, 2.0, 0.0, 1.0], dtype=torch.float64))
    x, _, weights, task = next(iter(DataLoader(weighted, batch_size=4)))
    assert weights.dtype == torch.float32
    torch.testing.assert_close(weights, torch.tensor([0.1, 2.0, 0.0, 1.0]))
    assert task.tolist() == [3] * 4
    assert x.tolist() == [row[0] for row in rows(data)]
    assert not hasattr(data, WEIGHTS)


def test_weights_follow_subset_concat_and_transform_groups():
    data = tensor_data(4)
    both = with_weights(data, [1, 2, 3, 4]).subset([3, 1]).concat(with_weights(data, 0.5)).eval()
    _, _, weights, _ = next(iter(DataLoader(both, batch_size=6)))
    assert weights.tolist() == [4, 2, 0.5, 0.5, 0.5, 0.5]
    assert weights.dtype == torch.float32


def test_weights_are_replaced_everywhere():
    twice = with_weights(with_weights(tensor_data(2), [1, 2]), [3, 4])
    assert list(getattr(twice, WEIGHTS)) == [3, 4]
    assert [row[2] for row in rows(twice)] == [3, 4]
    assert len(twice[0]) == 4


def test_weights_without_task_labels_and_on_classification_datasets():
    leaf = TensorDataset(torch.zeros(2, 1), torch.arange(2))
    leaf.targets = [0, 1]
    weighted = with_weights(as_classification_dataset(leaf), [1, 2])
    assert [row[2] for row in rows(weighted)] == [1, 2]
    assert list(weighted.targets) == [0, 1]


def test_weights_survive_materialization_and_pickle():
    owned = materialize(with_weights(tensor_data(4), [1, 2, 3, 4]), [2, 0])
    again = pickle.loads(pickle.dumps(owned))
    assert [row[2] for row in rows(again)] == [3, 1]


def test_wrong_number_of_weights():
    with pytest.raises(ValueError, match="got 3 weights for 4 examples"):
        with_weights(tensor_data(4), [1, 2, 3])
    assert len(with_weights(AvalancheDataset([]), [])) == 0


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


class Holder:
    def __init__(self, value):
        self.value = value


SAMPLES = {
    "tensor": (lambda: torch.ones(3), lambda x: x.add_(1)),
    "array": (lambda: np.ones(3), lambda x: x.__iadd__(1)),
    "image": (lambda: Image.new("L", (2, 2), 1), lambda x: x.putpixel((0, 0), 9)),
    "dict": (lambda: {"a": torch.ones(3)}, lambda x: x["a"].add_(1)),
    "ordered dict": (lambda: OrderedDict(a=[torch.ones(3)]), lambda x: x["a"].append(0)),
    "list": (lambda: [torch.ones(3)], lambda x: x[0].add_(1)),
    "named tuple": (lambda: Pair(torch.ones(3), torch.ones(1)), lambda x: x.second.add_(1)),
    "set": (lambda: {1, 2}, lambda x: x.add(3)),
    "other object": (lambda: Holder(torch.ones(3)), lambda x: x.value.add_(1)),
}


def as_text(value):
    if isinstance(value, Holder):
        return as_text(value.value)
    return str(value.tobytes() if isinstance(value, Image.Image) else value)


def in_place(change):
    def transform(value):
        change(value)
        return value

    return transform


@pytest.mark.parametrize(("make", "change"), SAMPLES.values(), ids=SAMPLES)
def test_in_place_transforms_do_not_reach_the_copies(make, change):
    leaf = [(make(), 0), (make(), 1)]
    data = AvalancheDataset(
        [leaf], transform_groups=TransformGroups({"train": in_place(change), "eval": None})
    )
    owned = materialize(data, [0, 1])
    reads = [as_text(owned[1][0]) for _ in range(3)]
    assert reads == [reads[0]] * 3
    assert reads[0] != as_text(make())
    assert as_text(owned.eval()[1][0]) == as_text(leaf[1][0]) == as_text(make())
    again = materialize(owned, [1])
    assert as_text(again[0][0]) == reads[0]
    assert as_text(again.eval()[0][0]) == as_text(make())


@pytest.mark.parametrize(("make", "change"), SAMPLES.values(), ids=SAMPLES)
def test_attributes_are_handed_out_as_copies(make, change):
    given = make()
    attribute = DataAttribute([given, make()], "extra", use_in_getitem=True)
    data = AvalancheDataset([[(0, 0), (1, 1)]], data_attributes=[attribute])
    owned = materialize(data, [0, 1])
    change(given)
    for read in (lambda: owned[0][2], lambda: owned.extra[0], lambda: owned.subset([0])[0][2]):
        change(read())
        assert as_text(read()) == as_text(make())


def test_digests_tell_values_order_and_attributes_apart():
    def digest(data, indices=(0, 1)):
        return Exemplars.copy_of(data, indices).digest()

    assert digest(tensor_data()) == digest(tensor_data(20))
    others = [
        digest(tensor_data(start=1)),
        digest(tensor_data(), (1, 0)),
        digest(tensor_data(), (0,)),
        digest(tensor_data(task=1)),
    ]
    for make, _ in SAMPLES.values():
        others.append(digest(AvalancheDataset([[(make(), 0), (make(), 1)]])))
    assert len({digest(tensor_data()), *others}) == 1 + len(others)
