"""The transforms between a sample's leaf and an AvalancheDataset, taken off and put on again.

An AvalancheDataset is a tree. Every node may carry frozen and plain transform groups, applied on
the way from the leaf to the root; a *level* is one node's pair of them. Avalanche keeps this tree
private, so a new version of it may need changes here.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from typing import Any, NamedTuple

from avalanche.benchmarks.utils import AvalancheDataset
from avalanche.benchmarks.utils.data import _FlatDataWithTransform
from avalanche.benchmarks.utils.transform_groups import TransformGroups
from avalanche.benchmarks.utils.transforms import MultiParamCompose, TupleTransform


class Level(NamedTuple):
    """The transform groups of one node, applied in this order."""

    frozen: TransformGroups
    plain: TransformGroups


Levels = tuple[Level, ...]
"""From the leaf outwards."""


def locate(dataset: AvalancheDataset, index: int) -> tuple[Any, int, Levels]:
    """Follow a sample to its leaf.

    :return: the leaf, the sample's index in it, and the levels that transform something.
    """
    node: Any = dataset._flat_data
    levels: list[Level] = []
    while isinstance(node, _FlatDataWithTransform):
        level = Level(node._frozen_transform_groups, node._transform_groups)
        if not all(_is_empty(groups) for groups in level):
            levels.append(level)
        child, index = node._get_idx(index)
        node = node._datasets[child]
    return node, index, tuple(reversed(levels))


def lay_over(leaf: Any, levels: Levels) -> AvalancheDataset:
    """A dataset of the leaf's samples, transformed by `levels`."""
    dataset = AvalancheDataset([leaf])
    for level in levels:
        # Copies: building a dataset sets the current group of the objects it is given.
        dataset = AvalancheDataset(
            [dataset],
            frozen_transform_groups=copy.copy(level.frozen),
            transform_groups=copy.copy(level.plain),
        )
    return dataset


def key(levels: Levels) -> tuple[Any, ...]:
    """Equal for equal transforms; Avalanche's wrappers are opened, others compared by identity."""
    return tuple(_groups_key(groups) for level in levels for groups in level)


def current_group(dataset: AvalancheDataset) -> str:
    """The name of the transform group in use."""
    return str(dataset._flat_data._transform_groups.current_group)


def _is_empty(groups: TransformGroups) -> bool:
    transforms = groups.transform_groups
    return _default(transforms) is None and all(t is None for t in transforms.values())


def _default(transforms: dict[str, Any]) -> Any:
    """The transform of the groups that are not listed."""
    factory = getattr(transforms, "default_factory", None)
    return None if factory is None else factory()


def _groups_key(groups: TransformGroups) -> tuple[Any, ...]:
    transforms = groups.transform_groups
    default = _transform_key(_default(transforms))
    keys = ((name, _transform_key(transform)) for name, transform in sorted(transforms.items()))
    if isinstance(transforms, defaultdict):
        # Reading a group of a defaultdict adds it, so groups equal to the default are left out.
        keys = ((name, key) for name, key in keys if key != default)
    return (type(groups), default, *keys)


def _transform_key(transform: Any) -> Any:
    if isinstance(transform, (TupleTransform, MultiParamCompose)):
        return (type(transform), *(_transform_key(part) for part in transform.transforms))
    return None if transform is None else id(transform)
