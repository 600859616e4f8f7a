"""A dictionary whose atoms are spread over the processes of a group.

Letters: N atoms on all ranks together, D dimensions, m chosen atoms, V values that make an atom.

Atoms are known by their ids in the whole, 0 to N−1. What a rank holds never leaves it, except
for the few atoms that all ranks ask for together.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from typing_extensions import Self

from avalanche_gmc.collectives import Ranks, RankValueError, Traffic
from avalanche_gmc.dictionary.base import Dictionary

MAKING = "making a sharded dictionary"
PACKED_BYTES = 2**26
"""Atoms are sent in parts of this size: 64 MiB."""


class ShardedDictionary(Dictionary):
    """All atoms of a process group, of which each rank holds its own part.

    Every method that looks at atoms is a collective operation: all ranks call it, with the same
    arguments, and all get the same answer. So is making one. ``orthogonal_matching_pursuit`` finds,
    on every rank, what one process that holds everything would find.

    :param local: the atoms of this rank, maybe none; the same kind, dimension and precision on all.
    :param process_group: of ``torch.distributed``; None is the default group.
    :param ids: the places of this rank's atoms in the whole, ascending: all ranks together
        have 0 to N−1. None puts the atoms of rank 0 first, then those of rank 1, and so on.
    """

    def __init__(
        self,
        local: Dictionary,
        process_group: Any = None,
        *,
        ids: Tensor | None = None,
    ) -> None:
        self.ranks = process_group if isinstance(process_group, Ranks) else Ranks(process_group)
        numbering = "by rank" if ids is None else "given"
        self.local = self.ranks.together(
            MAKING,
            lambda: _checked(local, ids),
            lambda checked: {**_facts(checked), "ids": numbering},
        )
        self.ids = self._count_atoms()
        if ids is not None:
            self.ids = self._checked_ids(ids.to(self.ids))

    @classmethod
    def split(cls, whole: Dictionary, process_group: Any = None) -> Self:
        """The atoms of a dictionary that every rank has, each rank holding a part of them."""
        ranks = process_group if isinstance(process_group, Ranks) else Ranks(process_group)
        part = ranks.part(len(whole))
        chosen = torch.arange(part.start, part.stop, device=whole.device)
        return cls(whole.take(chosen), ranks)

    @property
    def traffic(self) -> Traffic:
        """What this rank sent so far."""
        return self.ranks.traffic

    @property
    def num_atoms(self) -> int:
        return self._num_atoms

    @property
    def dim(self) -> int:
        return self.local.dim

    @property
    def dtype(self) -> torch.dtype:
        return self.local.dtype

    @property
    def device(self) -> torch.device:
        return self.local.device

    @property
    def nbytes(self) -> int:
        """Bytes held by the atoms of all ranks."""
        return self._nbytes

    def held(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Which of some atoms this rank holds: their places in ``indices``, and in ``local``."""
        if len(self.ids) == 0:
            nothing = indices.new_empty(0)
            return nothing, nothing
        places = torch.searchsorted(self.ids, indices).clamp_max_(len(self.ids) - 1)
        here = (self.ids[places] == indices).nonzero()[:, 0]
        return here, places[here]

    def correlate(self, vectors: Tensor) -> Tensor:
        return self._from_all("correlations", self.local.correlate(vectors))

    def norms(self) -> Tensor:
        return self._from_all("norms", self.local.norms())

    def rows(self, indices: Tensor) -> Tensor:
        return self.take(indices).rows(torch.arange(len(indices), device=self.device))

    def sum(self) -> Tensor:
        step = "adding up all atoms"
        parts = [part for (part,) in self.ranks.gather(step, self.local.sum())]
        for rank, part in enumerate(parts):
            if not bool(part.isfinite().all()):
                raise RankValueError(f"{step}, rank {rank}: its atoms must be finite.")
        # In rank order: the same bits on every rank.
        return torch.stack(parts).sum(dim=0)

    def packed(self, indices: Tensor) -> Tensor:
        whole = self.packed_here(indices)
        step = max(1, PACKED_BYTES // max(1, whole[:1].nbytes))
        for part in torch.split(whole, step):
            part.copy_(self.ranks.merge("chosen atoms", part)[0])
        return whole

    def packed_here(self, indices: Tensor) -> Tensor:
        """What :meth:`packed` gives, with zeros for the atoms that this rank does not hold."""
        places, positions = self.held(indices)
        own = self.local.packed(positions)
        return own.new_zeros(len(indices), own.shape[1]).index_copy_(0, places, own)

    def unpacked(self, packed: Tensor) -> Dictionary:
        return self.local.unpacked(packed)

    def take(self, indices: Tensor) -> Dictionary:
        """A dictionary of the chosen atoms only, a whole copy for every rank."""
        return self.unpacked(self.packed(indices))

    def concat(self, other: Self) -> Self:
        ids = torch.cat([self.ids, other.ids + len(self)])
        return type(self)(self.local.concat(other.local), self.ranks, ids=ids)

    def scaled(self, factors: Tensor) -> Self:
        return type(self)(self.local.scaled(factors[self.ids]), self.ranks, ids=self.ids)

    def to(self, device: torch.device | str) -> Self:
        return type(self)(self.local.to(device), self.ranks, ids=self.ids.to(device))

    def _count_atoms(self) -> Tensor:
        """Learn how many atoms there are; number this rank's by rank order."""
        size, nbytes = len(self.local), self.local.nbytes
        counts = [c.tolist() for (c,) in self.ranks.gather(MAKING, torch.tensor([size, nbytes]))]
        self._num_atoms = int(sum(size for size, _ in counts))
        self._nbytes = int(sum(nbytes for _, nbytes in counts))
        before = sum(size for size, _ in counts[: self.ranks.rank])
        return torch.arange(before, before + size, device=self.device)

    def _checked_ids(self, ids: Tensor) -> Tensor:
        holders = torch.zeros(len(self), dtype=torch.long)
        inside = bool(((ids >= 0) & (ids < len(self))).all())
        if inside:
            holders[ids.cpu()] = 1
        # Integers, so that two holders of an atom show as 2.
        if bool((self.ranks.merge(MAKING, holders)[0] != 1).any()):
            raise RankValueError(
                f"{MAKING}: the ids of all ranks together must be 0 to {len(self) - 1}, each once."
            )
        return ids

    def _from_all(self, step: str, own: Tensor) -> Tensor:
        whole = own.new_zeros(len(self), *own.shape[1:])
        return self.ranks.merge(step, whole.index_copy_(0, self.ids, own))[0]


def _checked(local: Dictionary, ids: Tensor | None) -> Dictionary:
    if not isinstance(local, Dictionary) or isinstance(local, ShardedDictionary):
        raise ValueError(
            "the local part must be a dictionary of this rank's own, such as a DenseDictionary, "
            f"got {type(local).__name__}."
        )
    if ids is not None:
        if ids.shape != (len(local),) or ids.dtype != torch.long:
            raise ValueError(
                f"ids must be one int64 for each of the {len(local)} atoms, "
                f"got {ids.dtype} of shape {tuple(ids.shape)}."
            )
        if bool((ids[1:] <= ids[:-1]).any()):
            raise ValueError("ids must ascend.")
    return local


def _facts(local: Dictionary) -> dict[str, object]:
    """What the parts of all ranks must have in common."""
    empty = torch.empty(0, dtype=torch.long, device=local.device)
    return {
        "kind of dictionary": type(local).__name__,
        "dimension": local.dim,
        "dtype": local.dtype,
        "floats per atom": local.packed(empty).shape[1],
    }
