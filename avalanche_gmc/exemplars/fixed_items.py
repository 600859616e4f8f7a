"""Does a dataset give the same item every time it is read?

Only what is known to be fixed counts as fixed: leaves that hold tensors or owned exemplars, under
transforms of the list below. A wrong yes would freeze an augmentation; a wrong no costs time only.
"""

from __future__ import annotations

from typing import Any

from avalanche.benchmarks.utils import AvalancheDataset
from avalanche.benchmarks.utils.data import _FlatDataWithTransform
from avalanche.benchmarks.utils.transforms import (
    MultiParamCompose,
    MultiParamTransformCallable,
    TupleTransform,
)
from torch import nn
from torch.utils.data import TensorDataset

from avalanche_gmc.exemplars.values import OwnedValues

_FIXED_TORCHVISION = frozenset(
    {
        "CenterCrop",
        "ConvertImageDtype",
        "Grayscale",
        "Normalize",
        "PILToTensor",
        "Pad",
        "Resize",
        "ToDtype",
        "ToImage",
        "ToPureTensor",
        "ToTensor",
    }
)


def has_fixed_items(dataset: AvalancheDataset) -> bool:
    """True if reading an item twice, in the transform group in use, gives the same values."""
    flat = dataset._flat_data
    return _is_fixed(flat, flat._transform_groups.current_group)


def _is_fixed(source: Any, group: str) -> bool:
    if isinstance(source, _FlatDataWithTransform):
        levels = (source._frozen_transform_groups, source._transform_groups)
        return all(_is_fixed_transform(groups[group]) for groups in levels) and all(
            _is_fixed(part, group) for part in source._datasets
        )
    # A subclass may do anything in __getitem__.
    return type(source) in (TensorDataset, OwnedValues)


def _is_fixed_transform(transform: Any) -> bool:
    if transform is None or type(transform) in (nn.Flatten, nn.Identity):
        return True
    if isinstance(transform, MultiParamTransformCallable):
        return _is_fixed_transform(transform.transform)
    name, module = type(transform).__name__, type(transform).__module__
    from_torchvision = module.split(".")[:2] == ["torchvision", "transforms"]
    if isinstance(transform, (MultiParamCompose, TupleTransform, nn.Sequential)) or (
        from_torchvision and name == "Compose"
    ):
        parts = getattr(transform, "transforms", transform)
        return all(_is_fixed_transform(part) for part in parts)
    return from_torchvision and name in _FIXED_TORCHVISION
