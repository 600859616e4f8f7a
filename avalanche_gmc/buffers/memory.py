"""A weighted coreset and what it represents.

Letters: n exemplars, D dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from avalanche_gmc.buffers.class_sums import ClassSums
from avalanche_gmc.dictionary import Dictionary
from avalanche_gmc.exemplars import Exemplars

_BLOCK = 256


@dataclass(frozen=True, eq=False)
class Stored:
    """Exemplars and what a pursuit needs of them.

    :param exemplars: n.
    :param embeddings: n atoms of dimension D; None if n is 0.
    :param stands_for: how many examples of its class each exemplar represents: n, float64.
    :param labels: n, int64: their classes, as :class:`ClassSums` tells them apart.
    """

    exemplars: Exemplars = field(default_factory=Exemplars)
    embeddings: Dictionary | None = None
    stands_for: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))
    labels: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))

    def __len__(self) -> int:
        return len(self.exemplars)

    def concat(self, other: Stored) -> Stored:
        """These, then the others."""
        return Stored(
            self.exemplars.concat(other.exemplars),
            concat_atoms(self.embeddings, other.embeddings),
            torch.cat([self.stands_for, other.stands_for]),
            torch.cat([self.labels, other.labels]),
        )

    def copied(self) -> Stored:
        """The same in tensors of its own."""
        embeddings = None if self.embeddings is None else whole(self.embeddings)
        return Stored(self.exemplars, embeddings, self.stands_for.clone(), self.labels.clone())


@dataclass(frozen=True, eq=False)
class Memory:
    """A weighted coreset and what it represents. Never changed, only replaced.

    :param picked: the exemplars in the order of the last pursuit.
    :param pending: those that came since, or all if there was no pursuit yet.
    :param seen: what is remembered of everything seen.
    :param residual_norm: what the last pursuit left of its target, relative to it.
    """

    picked: Stored = field(default_factory=Stored)
    pending: Stored = field(default_factory=Stored)
    seen: ClassSums = field(default_factory=ClassSums)
    residual_norm: float = 0.0

    def __len__(self) -> int:
        return len(self.picked) + len(self.pending)

    @property
    def is_complete(self) -> bool:
        """Whether everything seen is here."""
        return len(self) == self.seen.num_seen

    def shown(self, max_size: int) -> Exemplars:
        """The exemplars to show, at most `max_size`: pending ones replace the last picks."""
        picks, room = self.picked.exemplars, max_size - len(self.pending)
        return picks.take(range(min(room, len(picks)))).concat(self.pending.exemplars)

    def weights(self, max_size: int) -> Tensor:
        """How much each of the shown exemplars counts in the target: n, float64."""
        room = max_size - len(self.pending)
        stands_for = torch.cat([self.picked.stands_for[:room], self.pending.stands_for])
        labels = torch.cat([self.picked.labels[:room], self.pending.labels])
        return stands_for * self.seen.factors(labels)

    def copied(self) -> Memory:
        """The same memory in tensors of its own."""
        sums = {label: summed.clone() for label, summed in self.seen.sums.items()}
        return replace(
            self,
            picked=self.picked.copied(),
            pending=self.pending.copied(),
            seen=ClassSums(dict(self.seen.counts), sums),
        )

    def embedded_again(self, embeddings: Dictionary) -> Memory:
        """The same exemplars in other embeddings, in which they represent everything seen.

        :param embeddings: of the picked and then the pending exemplars.
        """
        stored = self.picked.concat(self.pending)
        zero = torch.zeros(embeddings.dim, dtype=torch.float64)
        sums = dict.fromkeys(self.seen.counts, zero)
        for block in torch.split(torch.arange(len(stored)), _BLOCK):
            rows = embeddings.rows(block.to(embeddings.device)).cpu().double()
            weighted, labels = stored.stands_for[block, None] * rows, stored.labels[block]
            for label in set(labels.tolist()):
                sums[label] = sums[label] + weighted[labels == label].sum(dim=0)

        def part(old: Stored, first: int) -> Stored:
            places = torch.arange(first, first + len(old), device=embeddings.device)
            return replace(old, embeddings=embeddings.take(places) if len(old) else None)

        return replace(
            self,
            picked=part(self.picked, 0),
            pending=part(self.pending, len(self.picked)),
            seen=ClassSums(self.seen.counts, sums),
        )


def whole(dictionary: Dictionary) -> Dictionary:
    """A copy of all atoms, in this process."""
    return dictionary.take(torch.arange(len(dictionary), device=dictionary.device))


def concat_atoms(first: Dictionary | None, second: Dictionary | None) -> Dictionary | None:
    """The atoms of two dictionaries, either of which may be missing."""
    if first is None:
        return second
    return first if second is None else first.concat(second)
