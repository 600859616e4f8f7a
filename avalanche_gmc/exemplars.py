"""AvalancheDatasets that own their samples and carry weights.

A subset of an AvalancheDataset keeps the whole source alive. What this module returns instead holds
copies of the chosen samples and nothing else of their source, in the state *before* any Avalanche
transform; the source's transform groups (plain and frozen, at every level of nesting) are laid over
the copies again, so that ``.train()``, ``.eval()``, ``freeze_transforms()`` and
``replace_current_transform_group()`` mean for a replayed sample what they meant for the original.

A transform that belongs to the leaf itself (``torchvision.datasets.MNIST(transform=...)``) is out
of Avalanche's sight: such samples are stored as the leaf returns them, *after* that transform. Give
random augmentations to Avalanche's transform groups, not to the leaf.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from avalanche.benchmarks.utils import AvalancheDataset
from avalanche.benchmarks.utils.data import _FlatDataWithTransform
from avalanche.benchmarks.utils.data_attribute import DataAttribute
from avalanche.benchmarks.utils.transform_groups import TransformGroups
from avalanche.benchmarks.utils.transforms import MultiParamCompose, TupleTransform
from PIL import Image

WEIGHTS = "exemplar_weights"
"""The data attribute in which :func:`with_weights` puts the weights."""

_TASK_LABELS = "targets_task_labels"


class _OwnedSamples(list[Any]):
    """A leaf whose samples are copies already: they need not be copied again."""


class _Level(NamedTuple):
    """The transforms of one level of a dataset's tree, applied in this order."""

    frozen: TransformGroups
    plain: TransformGroups


class _Exemplar(NamedTuple):
    sample: tuple[Any, ...]
    levels: tuple[_Level, ...]  # innermost first
    attributes: dict[str, Any]


def materialize(dataset: AvalancheDataset, indices: Sequence[int]) -> AvalancheDataset:
    """Copy the samples of `dataset` at `indices` into a dataset that owns them.

    Targets, task labels and every other data attribute are kept, in their order, and so are the
    class of the dataset, its collate function, its transform groups and the group in use.

    :param dataset: an AvalancheDataset of ``(x, y, ...)`` samples.
    :param indices: the samples to copy, in the order of the result.
    :return: a dataset of ``len(indices)`` samples that refers to nothing of `dataset`.
    """
    return gather([(dataset, int(i)) for i in indices], like=dataset)


def gather(
    picks: Sequence[tuple[AvalancheDataset, int]], *, like: AvalancheDataset
) -> AvalancheDataset:
    """Copy single samples of several datasets into one dataset that owns them.

    :param picks: pairs of a dataset and an index into it; all must have the same data attributes.
    :param like: the dataset that decides the class, the order of the attributes, the collate
        function and the transform group in use.
    :return: a dataset of ``len(picks)`` samples, in the order of `picks`.
    """
    if not picks:
        return AvalancheDataset([])
    exemplars = [_copy_exemplar(dataset, index) for dataset, index in picks]
    owned = type(like)(
        [_with_transforms(exemplars)],
        data_attributes=_joint_attributes(exemplars, like),
        collate_fn=like.collate_fn,
    )
    return owned.with_transforms(like._flat_data._transform_groups.current_group)


def with_weights(dataset: AvalancheDataset, weights: float | Sequence[float]) -> AvalancheDataset:
    """Attach one weight per example: minibatches then read ``[x, y, ..., weights, task labels]``.

    Avalanche takes the last element of a minibatch for the task labels, hence the place. Weights
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
    return weighted.with_transforms(dataset._flat_data._transform_groups.current_group)


def _copy_exemplar(dataset: AvalancheDataset, index: int) -> _Exemplar:
    if not isinstance(dataset, AvalancheDataset):
        raise ValueError(
            f"expected an AvalancheDataset, got {type(dataset).__name__}; "
            "wrap it with avalanche.benchmarks.utils.as_classification_dataset"
        )
    node: Any = dataset._flat_data
    position = index
    levels: list[_Level] = []
    while isinstance(node, _FlatDataWithTransform):
        level = _Level(node._frozen_transform_groups, node._transform_groups)
        if not all(_is_empty(groups) for groups in level):
            levels.append(level)
        child, position = node._get_idx(position)
        node = node._datasets[child]
    sample = node[position]
    if not isinstance(node, _OwnedSamples):
        sample = _own_sample(sample)
    attributes = {name: _own(a[index]) for name, a in dataset._data_attributes.items()}
    return _Exemplar(sample, tuple(reversed(levels)), attributes)


def _own_sample(sample: Any) -> tuple[Any, ...]:
    if not isinstance(sample, (tuple, list)):
        raise ValueError(
            f"a sample must be a tuple (x, y, ...), got {type(sample).__name__}; "
            "other samples cannot be kept in a memory"
        )
    # A tuple, because AvalancheDataset.__getitem__ appends attributes to list samples in place.
    return tuple(_own(value) for value in sample)


def _own(value: Any) -> Any:
    """Copy what may be a view of something larger."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, (np.ndarray, Image.Image)):
        return value.copy()  # Image.fromarray shares the array's memory
    if isinstance(value, dict):
        return {key: _own(item) for key, item in value.items()}
    if type(value) in (tuple, list):
        return type(value)(_own(item) for item in value)
    return value


def _is_empty(groups: TransformGroups) -> bool:
    transforms = groups.transform_groups
    return _default(transforms) is None and all(t is None for t in transforms.values())


def _default(transforms: dict[str, Any]) -> Any:
    """The transform of the groups that are not listed."""
    factory = getattr(transforms, "default_factory", None)
    return None if factory is None else factory()


def _with_transforms(exemplars: list[_Exemplar]) -> AvalancheDataset:
    """One leaf for all exemplars with the same transforms, so that leaves do not multiply."""
    members: dict[Any, list[int]] = defaultdict(list)
    for i, exemplar in enumerate(exemplars):
        members[_key(exemplar.levels)].append(i)
    leaves = []
    for group in members.values():
        leaf = AvalancheDataset([_OwnedSamples(exemplars[i].sample for i in group)])
        for level in exemplars[group[0]].levels:
            # Copies: building a dataset sets the current group of the objects it is given.
            leaf = AvalancheDataset(
                [leaf],
                frozen_transform_groups=copy.copy(level.frozen),
                transform_groups=copy.copy(level.plain),
            )
        leaves.append(leaf)
    if len(leaves) == 1:
        return leaves[0]
    position = {i: k for k, i in enumerate(i for group in members.values() for i in group)}
    return AvalancheDataset(leaves).subset([position[i] for i in range(len(exemplars))])


def _key(levels: tuple[_Level, ...]) -> tuple[Any, ...]:
    """Equal for equal transforms; Avalanche's wrappers are opened, the rest goes by identity."""
    return tuple(_groups_key(groups) for level in levels for groups in level)


def _groups_key(groups: TransformGroups) -> tuple[Any, ...]:
    transforms = groups.transform_groups
    default = _transform_key(_default(transforms))
    keys = ((name, _transform_key(transform)) for name, transform in sorted(transforms.items()))
    if isinstance(transforms, defaultdict):
        # Looking a group up in a defaultdict lists it: what equals the default says nothing.
        keys = ((name, key) for name, key in keys if key != default)
    return (type(groups), default, *keys)


def _transform_key(transform: Any) -> Any:
    if isinstance(transform, (TupleTransform, MultiParamCompose)):
        return (type(transform), *(_transform_key(part) for part in transform.transforms))
    return None if transform is None else id(transform)


def _joint_attributes(exemplars: list[_Exemplar], like: AvalancheDataset) -> list[DataAttribute]:
    expected = set(like._data_attributes)
    for exemplar in exemplars:
        if exemplar.attributes.keys() != expected:
            raise ValueError(
                f"some exemplars have the data attributes {sorted(exemplar.attributes)} and others "
                f"{sorted(expected)}; give the datasets of all experiences the same attributes"
            )
    return [
        DataAttribute(
            [exemplar.attributes[name] for exemplar in exemplars],
            name,
            use_in_getitem=attribute.use_in_getitem,
        )
        for name, attribute in like._data_attributes.items()
    ]
