"""Minibatches of one or several datasets, each read at once, and their weights.

Avalanche reads a minibatch item by item, about 15 µs each before any transform. Owned exemplars do
not change, so a row of a :class:`_Part` that always reads the same is read once per experience and
then gathered.

Letters: N rows of a part, B rows of a minibatch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from avalanche.benchmarks.utils import AvalancheDataset
from torch import Tensor
from torch.utils.data import Dataset, default_collate

from avalanche_gmc.exemplars import WEIGHTS
from avalanche_gmc.exemplars.fixed_items import has_fixed_items
from avalanche_gmc.plugins.weighted_loss import joint_weights

Collate = Callable[[list[Any]], Any]

MAX_CACHED_BYTES = 2**30
"""A part whose rows take more than this is read item by item."""


class Minibatches(Dataset[Any]):
    """Datasets laid end to end; a list of indices gives a collated minibatch and its weights.

    :param datasets: those without the data attribute ``WEIGHTS`` are current data and come first.
    :param collate: from a list of items to a minibatch, which may be of any type.
    :param share: the memory's part of the loss, see :func:`.weighted_loss.joint_weights`.
    """

    def __init__(
        self, datasets: Sequence[AvalancheDataset], collate: Collate, share: float | None
    ) -> None:
        self._parts = [_Part(dataset) for dataset in datasets]
        self._collate = collate
        self._share = share
        self._weighted = any(part.weights is not None for part in self._parts)
        self._by_columns = collate is default_collate  # others may pad, and need all items at once

    def __len__(self) -> int:
        return sum(len(part) for part in self._parts)

    def __getitems__(self, indices: list[int]) -> tuple[Any, Tensor | None]:
        rows = self._split(indices)
        return self._collated(rows), self._weights(rows) if self._weighted else None

    def _split(self, indices: list[int]) -> list[Tensor]:
        """The indices by part, counted from the start of the part."""
        if len(self._parts) == 1:
            return [torch.tensor(indices)]
        rows, start = [], 0
        for part in self._parts:
            stop = start + len(part)
            own = [i - start for i in indices if start <= i < stop]
            rows.append(torch.tensor(own, dtype=torch.long))
            start = stop
        return rows

    def _collated(self, rows: list[Tensor]) -> Any:
        pairs = list(zip(self._parts, rows, strict=True))
        if self._by_columns:
            parts = [part.columns(own) for part, own in pairs if len(own)]
            if len(parts) == 1:
                return parts[0]
            if all(isinstance(column, Tensor) for part in parts for column in part):
                return [torch.cat(columns) for columns in zip(*parts, strict=True)]
            self._by_columns = False
        return self._collate([part.dataset[i] for part, own in pairs for i in own.tolist()])

    def _weights(self, rows: list[Tensor]) -> Tensor:
        """B weights."""
        current, memory = 0, []
        for part, own in zip(self._parts, rows, strict=True):
            if part.weights is None:
                current += len(own)
            else:
                memory.append(part.weights.index_select(0, own))
        weights = memory[0] if len(memory) == 1 else torch.cat(memory)
        return joint_weights(current, weights, self._share)


class _Part:
    """One dataset: its items without the weights, and the weights.

    Rows that always read the same are kept as first read, in one tensor of N rows per column.
    """

    def __init__(self, dataset: AvalancheDataset) -> None:
        self.dataset = dataset._shallow_clone_dataset()
        attributes = self.dataset._data_attributes = dataset._data_attributes.copy()
        weights = attributes.pop(WEIGHTS, None)
        self.weights = None if weights is None else torch.tensor([float(w) for w in weights])
        self._kept: list[Tensor] | None = [] if has_fixed_items(dataset) else None
        self._missing = torch.ones(len(dataset), dtype=torch.bool)
        self._complete = False

    def __len__(self) -> int:
        return len(self.dataset)

    def columns(self, rows: Tensor) -> list[Tensor]:
        """The collated columns of some rows."""
        if self._kept is not None and not self._complete:
            self._keep(rows[self._missing[rows]])
        if self._kept is None:
            return self._read(rows)
        return [column.index_select(0, rows) for column in self._kept]

    def _keep(self, rows: Tensor) -> None:
        """Read rows for the first time, if they can be kept."""
        if len(rows) == 0:
            return
        columns = self._read(rows)
        if not self._kept:
            self._kept = self._room_for(columns)
        for kept, column in zip(self._kept or (), columns, strict=False):
            kept[rows] = column
        self._missing[rows] = False
        self._complete = not self._missing.any()

    def _room_for(self, columns: list[Any]) -> list[Tensor] | None:
        """Columns of N rows like the given ones; None if they are no tensors or too large."""
        size = len(self)
        if not all(isinstance(column, Tensor) for column in columns):
            return None
        if sum(column[0].nbytes for column in columns) * size > MAX_CACHED_BYTES:
            return None
        return [column.new_empty((size, *column.shape[1:])) for column in columns]

    def _read(self, rows: Tensor) -> list[Tensor]:
        return list(default_collate([self.dataset[i] for i in rows.tolist()]))
