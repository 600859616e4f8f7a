"""One door for tensors and datasets: examples to be read a batch at a time, in order.

Letters: N examples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor


class MapDataset(Protocol):
    """Anything with a length whose items are (x, y, ...)."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class Examples:
    """N inputs and targets, held as two tensors or read from a dataset.

    :param inputs: a tensor N×..., or a map-style dataset of (x, y, ...) items, of which only the
        first two entries are read.
    :param targets: a tensor N or N×..., with a tensor of inputs only.
    """

    def __init__(self, inputs: Tensor | MapDataset, targets: Tensor | None = None) -> None:
        if isinstance(inputs, Tensor) != isinstance(targets, Tensor):
            raise ValueError(
                "embed takes two tensors, embed(inputs, targets), or one dataset, embed(dataset); "
                f"got {type(inputs).__name__} and {type(targets).__name__}."
            )
        if isinstance(targets, Tensor) and len(inputs) != len(targets):
            raise ValueError(
                f"there must be one target per input, got {len(inputs)} inputs and "
                f"{len(targets)} targets."
            )
        self._inputs = inputs
        self._targets = targets

    def __len__(self) -> int:
        return len(self._inputs)

    def batches(self, size: int) -> Iterator[slice]:
        """Consecutive slices of at most ``size`` examples."""
        return (slice(a, min(a + size, len(self))) for a in range(0, len(self), size))

    def spread(self, count: int) -> list[int]:
        """At most ``count`` positions, evenly spaced, so that both ends of sorted data are seen."""
        count = min(count, len(self))
        return [position * len(self) // count for position in range(count)]

    def read(self, where: slice | Sequence[int]) -> tuple[Tensor, Tensor]:
        """Inputs and targets at a slice or at some positions."""
        if isinstance(self._inputs, Tensor) and self._targets is not None:
            index = where if isinstance(where, slice) else torch.as_tensor(where)
            return self._inputs[index], self._targets[index]
        positions = range(len(self))[where] if isinstance(where, slice) else where
        items = [self._inputs[position] for position in positions]
        inputs = _stack(
            [item[0] for item in items],
            "items",
            "give it a transform that turns every input into a tensor of one shape, such as "
            "torchvision's ToTensor",
        )
        targets = _stack(
            [item[1] for item in items],
            "targets",
            "give every example a class label as an integer, or target numbers of one shape",
        )
        return inputs, targets


def _stack(values: list[Any], what: str, advice: str) -> Tensor:
    try:
        return torch.stack([torch.as_tensor(value) for value in values])
    except (TypeError, RuntimeError, ValueError) as error:
        kinds = ", ".join(sorted({type(value).__name__ for value in values}))
        raise ValueError(
            f"the dataset's {what}, of type {kinds}, cannot be stacked into a batch ({error}); "
            f"{advice}."
        ) from error
