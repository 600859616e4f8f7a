"""AvalancheDatasets that own their samples and carry weights.

A subset of an AvalancheDataset keeps the whole source alive. What this module returns instead holds
copies of the chosen samples and nothing else of their source, in the state *before* any Avalanche
transform; the source's transform groups (plain and frozen, at every level of nesting) are laid over
the copies again, so that ``.train()``, ``.eval()``, ``freeze_transforms()`` and
``replace_current_transform_group()`` mean for a replayed sample what they meant for the original.

Avalanche does not know a transform that belongs to the leaf itself
(``torchvision.datasets.MNIST(transform=...)``): such samples are stored as the leaf returns them,
*after* that transform. Give random augmentations to Avalanche's transform groups, not to the leaf.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from avalanche.benchmarks.utils import AvalancheDataset
from avalanche.benchmarks.utils.data_attribute import DataAttribute

from avalanche_gmc.exemplars.transform_levels import Levels, current_group, key, lay_over, locate
from avalanche_gmc.exemplars.values import OwnedValues, copied, digest

WEIGHTS = "exemplar_weights"
"""The data attribute in which :func:`with_weights` puts the weights."""

_TASK_LABELS = "targets_task_labels"


def materialize(dataset: AvalancheDataset, indices: Sequence[int]) -> AvalancheDataset:
    """Copy the samples of `dataset` at `indices` into a dataset that owns them.

    Targets, task labels and every other data attribute are kept, in their order, and so are the
    class of the dataset, its collate function, its transform groups and the group in use.

    :param dataset: an AvalancheDataset of ``(x, y, ...)`` samples.
    :param indices: the samples to copy, in the order of the result.
    :return: a dataset of ``len(indices)`` samples that refers to nothing of `dataset`.
    """
    return Exemplars.copy_of(dataset, indices).dataset()


def with_weights(
    dataset: AvalancheDataset, weights: float | Sequence[float] | torch.Tensor
) -> AvalancheDataset:
    """Attach one weight per example: minibatches then read ``[x, y, ..., weights, task labels]``.

    Avalanche takes the last element of a minibatch for the task labels, so these stay last. Weights
    are float32 there. Weights already attached are replaced.

    :param dataset: any AvalancheDataset, left as it is.
    :param weights: one weight for all examples, or a sequence or tensor with one for each.
    :return: a dataset over the same samples with the data attribute ``WEIGHTS``.
    """
    if isinstance(weights, (int, float)):
        weights = [weights] * len(dataset)
    # NumPy scalars collate to float32, where Python floats would collate to float64.
    values = list(torch.as_tensor(weights, dtype=torch.float32).cpu().numpy())
    if len(values) != len(dataset):
        raise ValueError(
            f"got {len(values)} weights for {len(dataset)} examples; "
            "give one weight for each example or a single number"
        )
    if len(dataset) == 0:
        return dataset
    attribute = DataAttribute(values, WEIGHTS, use_in_getitem=True)
    weighted = type(dataset)([dataset], data_attributes=[attribute])
    if _TASK_LABELS in weighted._data_attributes:
        weighted._data_attributes.move_to_end(_TASK_LABELS)
    return weighted.with_transforms(current_group(dataset))


class _Exemplar(NamedTuple):
    sample: tuple[Any, ...]
    attributes: tuple[Any, ...]  # in the order of the layout
    levels: Levels


class _Layout(NamedTuple):
    """What a dataset is besides its samples."""

    dataset_class: type[AvalancheDataset]
    collate_fn: Callable[[list[Any]], Any]
    transform_group: str
    attributes: dict[str, bool]  # name → whether minibatches show it

    @classmethod
    def of(cls, dataset: AvalancheDataset) -> _Layout:
        shown = {name: a.use_in_getitem for name, a in dataset._data_attributes.items()}
        return cls(type(dataset), dataset.collate_fn, current_group(dataset), shown)


_EMPTY = _Layout.of(AvalancheDataset([]))


class Exemplars:
    """Owned samples, to be taken from and joined like the atoms of a dictionary.

    Never changed in place: every operation returns a new object, and samples are shared.
    """

    def __init__(self, items: Sequence[_Exemplar] = (), layout: _Layout = _EMPTY) -> None:
        self._items = list(items)
        self._layout = layout
        self._dataset: AvalancheDataset | None = None

    @classmethod
    def copy_of(cls, dataset: AvalancheDataset, indices: Iterable[int]) -> Exemplars:
        """Copies of the samples at `indices`, in that order."""
        check_dataset(dataset)
        items = [_copy_exemplar(dataset, int(index)) for index in indices]
        return cls(_with_shared_levels(items), _Layout.of(dataset))

    def __len__(self) -> int:
        return len(self._items)

    def take(self, indices: Iterable[int]) -> Exemplars:
        """Those at `indices`, in that order."""
        return Exemplars([self._items[int(index)] for index in indices], self._layout)

    def concat(self, other: Exemplars) -> Exemplars:
        """These, then the others; the others' dataset decides class, collate function and group.

        :raises ValueError: if their data attributes differ. Avalanche would drop, without
            a warning, an attribute that only one side has.
        """
        if not len(other):
            return self
        if not len(self):
            return other
        mine, theirs = self._layout, other._layout
        if mine.attributes.keys() != theirs.attributes.keys():
            raise ValueError(
                f"the exemplars have the data attributes {sorted(mine.attributes)} and the new "
                f"examples {sorted(theirs.attributes)}; give every experience the same attributes"
            )
        own = self._items
        places = [list(mine.attributes).index(name) for name in theirs.attributes]
        if places != sorted(places):
            own = [e._replace(attributes=tuple(e.attributes[p] for p in places)) for e in own]
        return Exemplars(_with_shared_levels([*own, *other._items]), theirs)

    def digest(self) -> str:
        """A short text, equal for equal samples and attributes in equal order."""
        return digest([(item.sample, item.attributes) for item in self._items])

    def dataset(self) -> AvalancheDataset:
        """The exemplars as an AvalancheDataset, the same object at every call."""
        if self._dataset is None:
            self._dataset = self._build() if self._items else AvalancheDataset([])
        return self._dataset

    def _build(self) -> AvalancheDataset:
        layout = self._layout
        attributes = [
            DataAttribute(
                OwnedValues(e.attributes[k] for e in self._items), name, use_in_getitem=shown
            )
            for k, (name, shown) in enumerate(layout.attributes.items())
        ]
        owned = layout.dataset_class(
            [_transformed(self._items)], data_attributes=attributes, collate_fn=layout.collate_fn
        )
        return owned.with_transforms(layout.transform_group)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_dataset": None}


def check_dataset(dataset: Any) -> None:
    """Refuse what is not an AvalancheDataset."""
    if not isinstance(dataset, AvalancheDataset):
        raise ValueError(
            f"expected an AvalancheDataset, got {type(dataset).__name__}; "
            "wrap it with avalanche.benchmarks.utils.as_classification_dataset"
        )


def _copy_exemplar(dataset: AvalancheDataset, index: int) -> _Exemplar:
    leaf, position, levels = locate(dataset, index)
    if isinstance(leaf, OwnedValues):
        sample = leaf.original(position)
    else:
        sample = _own_sample(leaf[position])
    attributes = tuple(copied(attribute[index]) for attribute in dataset._data_attributes.values())
    return _Exemplar(sample, attributes, levels)


def _own_sample(sample: Any) -> tuple[Any, ...]:
    if not isinstance(sample, (tuple, list)):
        raise ValueError(
            f"a sample must be a tuple (x, y, ...), got {type(sample).__name__}; "
            "other samples cannot be kept in a memory"
        )
    # A tuple, because AvalancheDataset.__getitem__ appends attributes to list samples in place.
    return tuple(copied(value) for value in sample)


def _with_shared_levels(items: list[_Exemplar]) -> list[_Exemplar]:
    """Equal levels become one object, which then tells exemplars with equal transforms."""
    by_key: dict[Any, Levels] = {}
    distinct = {id(item.levels): item.levels for item in items}
    shared = {known: by_key.setdefault(key(one), one) for known, one in distinct.items()}
    return [
        item
        if shared[id(item.levels)] is item.levels
        else item._replace(levels=shared[id(item.levels)])
        for item in items
    ]


def _transformed(items: list[_Exemplar]) -> AvalancheDataset:
    """One leaf for all samples with the same transforms, so that leaves do not multiply."""
    members: dict[int, list[int]] = defaultdict(list)
    for i, item in enumerate(items):
        members[id(item.levels)].append(i)
    leaves = [
        lay_over(OwnedValues(items[i].sample for i in group), items[group[0]].levels)
        for group in members.values()
    ]
    if len(leaves) == 1:
        return leaves[0]
    order = [i for group in members.values() for i in group]
    return AvalancheDataset(leaves).subset(np.argsort(order).tolist())
