"""What samples are made of: tensors, arrays, images, numbers, and containers of them."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, MutableMapping
from typing import Any

import numpy as np
import torch
from PIL import Image

_IMMUTABLE = (type(None), int, float, complex, str, bytes, np.generic)


def copied(value: Any) -> Any:
    """A copy that shares no data with `value`, which may be a view of something larger."""
    if isinstance(value, _IMMUTABLE):
        return value
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, (np.ndarray, Image.Image)):
        return value.copy()  # Image.fromarray shares the array's data
    if isinstance(value, MutableMapping):
        twin = copy.copy(value)
        twin.update({name: copied(item) for name, item in value.items()})
        return twin
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(copied(item) for item in value))
    if type(value) in (tuple, list):
        return type(value)(copied(item) for item in value)
    return copy.deepcopy(value)


class OwnedValues:
    """A sequence that hands out copies, so that in-place transforms do not change the originals."""

    def __init__(self, values: Iterable[Any]) -> None:
        self._values = list(values)

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: int) -> Any:
        return copied(self._values[index])

    def original(self, index: int) -> Any:
        """The value itself, for those who neither change it nor hand it out."""
        return self._values[index]


def digest(values: Iterable[Any]) -> str:
    """Short, and equal for equal values in equal order."""
    state = hashlib.sha256()
    for part in _parts(values):
        state.update(part)
    return state.hexdigest()[:12]


def _parts(value: Any) -> Iterable[bytes]:
    """The bytes of a value and of the values in it, each behind its type and size.

    Of objects of other types only the type is known.
    """
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().contiguous()
        yield f"{value.dtype} {tuple(value.shape)}".encode()
        yield value.flatten().view(torch.uint8).numpy().tobytes()
    elif isinstance(value, (np.ndarray, Image.Image)):
        value = np.asarray(value)
        yield f"{value.dtype} {value.shape}".encode()
        yield value.tobytes()
    elif isinstance(value, MutableMapping):
        yield from _parts(list(value.items()))
    elif isinstance(value, (tuple, list)):
        yield f"{len(value)} values".encode()
        for item in value:
            yield from _parts(item)
    else:
        yield repr(value if isinstance(value, _IMMUTABLE) else type(value)).encode()
