"""A loader's minibatches, each read at once instead of item by item, and their weights.

The loader's class, samplers, collate function and the random numbers it draws stay as they are, but
for one thing: in distributed training Avalanche would shuffle every epoch alike; here each epoch
has its own order. How a minibatch is fetched is in :mod:`.minibatches`.

The weights of the memory (data attribute ``WEIGHTS``) do not enter the minibatches, which have the
layout that they have without weights. They are in the loader's attribute ``weights``: those of the
rows of the minibatch that it gave last, rows of the current experience included.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from avalanche.benchmarks.utils import AvalancheDataset
from avalanche.benchmarks.utils.data_loader import (
    MultiDatasetDataLoader,
    _make_data_loader_with_batched_sampler,
    return_identity,
)
from avalanche.distributed import DistributedHelper
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, SequentialSampler

from avalanche_gmc.exemplars import WEIGHTS
from avalanche_gmc.plugins.minibatches import Minibatches


def gathering(
    loader: Any, *, share: float | None = None, data: AvalancheDataset | None = None
) -> Any:
    """The minibatches of `loader`, in its order, and their weights in the attribute ``weights``.

    Loaders of Avalanche and torch read whole minibatches from here on. Loaders that make their
    minibatches in a way of their own stay as they are.

    :param loader: any iterable of minibatches.
    :param share: the memory's part of the loss, see :func:`.weighted_loss.joint_weights`.
    :param data: what the loader loads; its data attributes tell the columns of a minibatch that
        somebody else makes.
    """
    if isinstance(loader, DataLoader) and DistributedHelper.is_distributed:
        loader = _split_among_ranks(loader)
    if isinstance(loader, MultiDatasetDataLoader) and _has_stock(
        loader, MultiDatasetDataLoader, "_get_loader", "_make_pytorch_loader"
    ):
        return _gathering_avalanche(loader, share)
    if (
        isinstance(loader, DataLoader)
        and _has_stock(loader, DataLoader, "__iter__")
        and loader.batch_sampler is not None
        and isinstance(loader.dataset, AvalancheDataset)
    ):
        gathered = copy.copy(loader)
        minibatches = Minibatches([loader.dataset], loader.collate_fn, share)
        # Not by assignment: torch forbids to change the dataset of a loader.
        gathered.__dict__.update(dataset=minibatches, collate_fn=return_identity)
        return _Split(gathered)
    if data is not None and WEIGHTS in data._data_attributes:
        return _OtherLoader(loader, data)
    return loader


def _has_stock(loader: Any, base: type, *methods: str) -> bool:
    """Whether the loader's class leaves these methods as Avalanche or torch define them."""
    return all(getattr(type(loader), method) is getattr(base, method) for method in methods)


def _gathering_avalanche(loader: MultiDatasetDataLoader, share: float | None) -> Any:
    gathered = copy.copy(loader)  # of the same class: methods of a subclass are still used
    minibatches = Minibatches(loader.datasets, loader.loader_kwargs["collate_fn"], share)
    epochs = itertools.count(1)

    def make_loader(datasets: Any, batch_sampler: Any) -> Any:
        _shuffle_anew(batch_sampler.samplers, next(epochs))
        options = {**gathered.loader_kwargs, "collate_fn": return_identity}
        made = _make_data_loader_with_batched_sampler(
            minibatches, batch_sampler=batch_sampler, data_loader_args=options
        )
        return _Split(made, gathered)

    gathered._make_pytorch_loader = make_loader
    gathered.weights = None
    return gathered


def _split_among_ranks(loader: Any) -> Any:
    """Avalanche's loader for task-free experiences, with a part of the rows for each rank.

    A loader with a sampler of the user's stays as it is.
    """
    sampler, dataset = loader.sampler, loader.dataset
    stock = (
        type(loader) is DataLoader
        and type(sampler) in (RandomSampler, SequentialSampler)
        and not getattr(sampler, "replacement", False)
        and len(sampler) == len(dataset)
    )
    if not stock or loader.batch_size is None or loader.generator is not None:
        return loader
    return MultiDatasetDataLoader(
        [dataset],
        [loader.batch_size],
        shuffle=isinstance(sampler, RandomSampler),
        drop_last=loader.drop_last,
        num_workers=loader.num_workers,
        pin_memory=loader.pin_memory,
        persistent_workers=loader.persistent_workers,
        collate_fn=loader.collate_fn,
    )


def _shuffle_anew(samplers: Sequence[Any], epoch: int) -> None:
    for sampler in samplers:
        inner = getattr(sampler, "sampler", None)
        if isinstance(inner, DistributedSampler):
            # Small datasets are read several times an epoch, and count these up from here.
            inner.set_epoch(epoch << 20)


class _Split:
    """A loader of pairs, a minibatch and its weights, as a loader of minibatches.

    :param loader: such as a torch loader over :class:`.Minibatches`.
    :param owner: the loader whose attribute ``weights`` they become; None for this one.
    """

    def __init__(self, loader: Any, owner: Any = None) -> None:
        self._loader = loader
        self._owner = self if owner is None else owner
        self.weights: Tensor | None = None

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        for item in self._loader:
            minibatch, self._owner.weights = self._pair(item)
            yield minibatch

    def _pair(self, item: Any) -> Any:
        return item


class _OtherLoader(_Split):
    """A loader as it is; the column of the weights is taken out of its minibatches."""

    def __init__(self, loader: Any, data: AvalancheDataset) -> None:
        super().__init__(loader)
        names = [name for name, a in data._data_attributes.items() if a.use_in_getitem]
        self._column = names.index(WEIGHTS) - len(names)

    def _pair(self, item: Any) -> Any:
        if not isinstance(item, (list, tuple)):
            raise ValueError(
                f"{type(self._loader).__name__} makes minibatches of the type "
                f"{type(item).__name__}, in which the weights of the examples cannot be found; use "
                "a torch DataLoader with a collate_fn instead, or a storage policy without weights"
            )
        columns = list(item)
        weights = columns.pop(self._column)
        return columns, weights
