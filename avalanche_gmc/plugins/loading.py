"""Minibatches of current data and memory: Avalanche's order, fetched a batch at a time.

Avalanche reads a minibatch item by item, about 15 µs each before any transform. Owned exemplars do
not change, so a row of a :class:`_Part` that always reads the same is read once per experience and
then gathered. Samplers, their order and the random numbers they draw stay Avalanche's, but for one
thing: in distributed training Avalanche would shuffle every epoch alike; here each has its order.

The weights of the memory (data attribute ``WEIGHTS``) travel beside the items, as one more column
``[x, y, ..., weights, task labels]``, filled for rows of the current experience too.

Letters: N rows of a part, B rows of a minibatch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from avalanche.benchmarks.utils import AvalancheDataset
from avalanche.benchmarks.utils.data_loader import (
    MultiDatasetDataLoader,
    _make_data_loader_with_batched_sampler,
    return_identity,
)
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    RandomSampler,
    default_collate,
)

from avalanche_gmc.exemplars import WEIGHTS
from avalanche_gmc.exemplars.fixed_items import has_fixed_items
from avalanche_gmc.plugins.weighted_loss import joint_weights, weights_column

Collate = Callable[[list[Any]], Any]

MAX_CACHED_BYTES = 2**30
"""A part whose rows take more than this is read item by item."""


def gathering(loader: Any, share: float | None = None) -> Any:
    """The minibatches of `loader`, in its order, fetched a batch at a time.

    :param loader: a loader made by an Avalanche strategy or plugin; others come back as they are.
    :param share: the memory's part of the loss, see :func:`.weighted_loss.joint_weights`.
    """
    if type(loader) is DataLoader and loader.batch_size is not None:
        loader = _as_multi_dataset(loader)
    if not isinstance(loader, MultiDatasetDataLoader):
        return loader
    return GatheringLoader(loader, share)


class GatheringLoader(MultiDatasetDataLoader):
    """An existing loader of Avalanche's with another way to fetch."""

    def __init__(self, loader: MultiDatasetDataLoader, share: float | None) -> None:
        # Not super().__init__(): the samplers, lengths and options are taken over as they are.
        self.__dict__.update(loader.__dict__)
        self._minibatches = _Minibatches(self.datasets, self.loader_kwargs["collate_fn"], share)
        self._num_epochs = 0

    def _get_loader(self) -> Any:
        self._num_epochs += 1
        return super()._get_loader()

    def _create_samplers(self, *args: Any) -> Any:
        samplers = MultiDatasetDataLoader._create_samplers(*args)
        for sampler in samplers:
            if isinstance(sampler.sampler, DistributedSampler):
                # Small datasets are read several times an epoch, and count these up from here.
                sampler.sampler.set_epoch(self._num_epochs << 20)
        return samplers

    def _make_pytorch_loader(self, datasets: Any, batch_sampler: Any) -> Any:
        return _make_data_loader_with_batched_sampler(
            self._minibatches,
            batch_sampler=batch_sampler,
            data_loader_args={**self.loader_kwargs, "collate_fn": return_identity},
        )


class _Minibatches(Dataset[Any]):
    """Datasets laid end to end; a list of indices gives a collated minibatch."""

    def __init__(
        self, datasets: Sequence[AvalancheDataset], collate: Collate, share: float | None
    ) -> None:
        self._parts = [_Part(dataset) for dataset in datasets]
        self._collate = collate
        self._share = share
        self._weighted = any(part.weights is not None for part in self._parts)
        self._column = weights_column(datasets[0])

    def __len__(self) -> int:
        return sum(len(part) for part in self._parts)

    def __getitems__(self, indices: list[int]) -> list[Tensor]:
        rows = self._split(indices)
        columns = self._columns(rows)
        if self._weighted:
            columns.insert(len(columns) + 1 + self._column, self._weights(rows))
        return columns

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

    def _columns(self, rows: list[Tensor]) -> list[Tensor]:
        pairs = list(zip(self._parts, rows, strict=True))
        if self._collate is not default_collate:  # it may have to see all items at once, to pad
            items = [part.dataset[i] for part, own in pairs for i in own.tolist()]
            return list(self._collate(items))
        columns = [part.columns(own) for part, own in pairs if len(own)]
        return (
            columns[0] if len(columns) == 1 else [torch.cat(c) for c in zip(*columns, strict=True)]
        )

    def _weights(self, rows: list[Tensor]) -> Tensor:
        """B weights; the parts without weights are current data and come first."""
        current, memory = 0, []
        for part, own in zip(self._parts, rows, strict=True):
            if part.weights is None:
                current += len(own)
            else:
                memory.append(part.weights.index_select(0, own))
        weights = memory[0] if len(memory) == 1 else torch.cat(memory)
        return joint_weights(current, weights, self._share)


class _Part:
    """One dataset: its items without the weights, and the weights."""

    def __init__(self, dataset: AvalancheDataset) -> None:
        self.dataset = dataset._shallow_clone_dataset()
        attributes = self.dataset._data_attributes = dataset._data_attributes.copy()
        weights = attributes.pop(WEIGHTS, None)
        self.weights = None if weights is None else torch.tensor([float(w) for w in weights])
        self._cache = _Cache(len(dataset)) if has_fixed_items(dataset) else None

    def __len__(self) -> int:
        return len(self.dataset)

    def columns(self, rows: Tensor) -> list[Tensor]:
        """The collated columns of some rows."""
        if self._cache is not None and self._cache.complete(rows, self._read):
            return self._cache.take(rows)
        self._cache = None
        return self._read(rows)

    def _read(self, rows: Tensor) -> list[Tensor]:
        return list(default_collate([self.dataset[i] for i in rows.tolist()]))


class _Cache:
    """Rows kept as first read, one tensor of N rows per column."""

    def __init__(self, size: int) -> None:
        self._missing = torch.ones(size, dtype=torch.bool)
        self._num_missing = size
        self._columns: list[Tensor] = []

    def complete(self, rows: Tensor, read: Callable[[Tensor], list[Any]]) -> bool:
        """Read those of the rows that are missing; False if they cannot be kept."""
        if self._num_missing == 0:
            return True
        rows = rows[self._missing[rows]]
        if len(rows) == 0:
            return True
        columns = read(rows)
        if not self._columns and not self._allocate(columns):
            return False
        for kept, column in zip(self._columns, columns, strict=True):
            kept[rows] = column
        self._missing[rows] = False
        self._num_missing = int(self._missing.sum())
        return True

    def take(self, rows: Tensor) -> list[Tensor]:
        """The columns of rows that are complete."""
        return [column.index_select(0, rows) for column in self._columns]

    def _allocate(self, columns: list[Any]) -> bool:
        size = len(self._missing)
        if not all(isinstance(column, Tensor) for column in columns):
            return False
        if sum(column[0].nbytes for column in columns) * size > MAX_CACHED_BYTES:
            return False
        self._columns = [column.new_empty((size, *column.shape[1:])) for column in columns]
        return True


def _as_multi_dataset(loader: DataLoader[Any]) -> MultiDatasetDataLoader:
    """The loader of a task-free strategy, in the form the others have."""
    return MultiDatasetDataLoader(
        [loader.dataset],
        [loader.batch_size],
        shuffle=isinstance(loader.sampler, RandomSampler),
        drop_last=loader.drop_last,
        num_workers=loader.num_workers,
        pin_memory=loader.pin_memory,
        persistent_workers=loader.persistent_workers,
        collate_fn=loader.collate_fn,
    )
