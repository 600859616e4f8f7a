"""Algorithm 2 of the paper: a coreset of everything seen, from the last coreset and what is new.

Letters: n exemplars, D dimensions, N new examples.

Where this departs from the letter of the algorithm:

1. While everything seen fits, everything is kept, which matches the target exactly.
2. A pursuit costs about the same for one new example as for a hundred. The examples of small
   updates are therefore *pending* until there are enough of them for a pursuit: they count in the
   target at once, and in the memory as what they are, one example each. The result is that of the
   algorithm on a stream whose small updates were merged. Pending examples are shown in the place of
   the last picks of the pursuit, which come back for the next one: the memory holds up to a quarter
   more than it shows.

On several ranks the embeddings of new examples are split; each rank has its own copy of the memory,
the same everywhere, of which it contributes a part to a pursuit.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from avalanche.benchmarks.utils import AvalancheDataset
from torch import Tensor

from avalanche_gmc.buffers.class_sums import ClassSums
from avalanche_gmc.buffers.own_span import in_own_span
from avalanche_gmc.buffers.sharing import split
from avalanche_gmc.collectives import OneRank
from avalanche_gmc.dictionary import Dictionary
from avalanche_gmc.exemplars import Exemplars
from avalanche_gmc.pursuit import orthogonal_matching_pursuit

PENDING_PART = 4
"""A pursuit begins when as many examples are pending as a quarter of the memory."""

SMALLEST_WITH_PENDING = 32
"""In smaller memories no example is pending: their pursuit is a matter of milliseconds."""

_BLOCK = 256


@dataclass(frozen=True, eq=False)
class Stored:
    """Exemplars and what a pursuit needs of them.

    :param exemplars: n.
    :param embeddings: n atoms of dimension D; None if n is 0.
    :param stands_for: how many examples of its class each exemplar stands for: n, float64.
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
            _concat(self.embeddings, other.embeddings),
            torch.cat([self.stands_for, other.stands_for]),
            torch.cat([self.labels, other.labels]),
        )

    def copied(self) -> Stored:
        """The same in tensors of its own."""
        embeddings = None if self.embeddings is None else whole(self.embeddings)
        return Stored(self.exemplars, embeddings, self.stands_for.clone(), self.labels.clone())


@dataclass(frozen=True, eq=False)
class Memory:
    """A weighted coreset and what it stands for. Never changed, only replaced.

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
        """The same exemplars in other embeddings, in which they stand for everything seen.

        :param embeddings: of the picked and then the pending exemplars.
        """
        stored = self.picked.concat(self.pending)
        sums = {
            label: torch.zeros(embeddings.dim, dtype=torch.float64) for label in self.seen.counts
        }
        for block in torch.arange(len(stored)).split(_BLOCK):
            rows = embeddings.rows(block.to(embeddings.device)).cpu().double()
            weighted = stored.stands_for[block, None] * rows
            for label in stored.labels[block].unique().tolist():
                sums[label] += weighted[stored.labels[block] == label].sum(dim=0)
        places = torch.arange(len(stored), device=embeddings.device).split(
            [len(self.picked), len(self.pending)]
        )
        picked, pending = (
            replace(part, embeddings=embeddings.take(at) if len(at) else None)
            for part, at in zip((self.picked, self.pending), places, strict=True)
        )
        return replace(self, picked=picked, pending=pending, seen=ClassSums(self.seen.counts, sums))


@dataclass(frozen=True, eq=False)
class Chunk:
    """New examples: consecutive samples of a dataset.

    :param data: the dataset.
    :param first: the place of the first of the examples in it.
    :param embeddings: of the examples, split over the ranks.
    :param labels: N, int64: their classes.
    :param sums: of the embeddings.
    :param ranks: which all have the dataset.
    """

    data: AvalancheDataset
    first: int
    embeddings: Dictionary
    labels: Tensor
    sums: ClassSums
    ranks: OneRank

    def __len__(self) -> int:
        return len(self.labels)

    def exemplars(self, indices: Sequence[int]) -> Exemplars:
        """Copies of some of the examples."""
        return self.ranks.together(
            "copying exemplars",
            lambda: Exemplars.copy_of(self.data, [self.first + index for index in indices]),
            lambda copies: {"exemplars before their transforms": copies.digest()},
        )

    def stored(self) -> Stored:
        """Copies of all examples, each of which stands for itself."""
        ones = torch.ones(len(self), dtype=torch.float64)
        return Stored(self.exemplars(range(len(self))), whole(self.embeddings), ones, self.labels)

    def concat(self, following: Chunk) -> Chunk:
        """This chunk and the one that follows it in the dataset, as one."""
        return replace(
            self,
            embeddings=self.embeddings.concat(following.embeddings),
            labels=torch.cat([self.labels, following.labels]),
            sums=self.sums.plus(following.sums),
        )


def absorb(memory: Memory, chunk: Chunk, max_size: int, mode: str) -> Memory:
    """The memory after new examples.

    :param mode: of :func:`orthogonal_matching_pursuit`.
    """
    seen = replace(memory, seen=memory.seen.plus(chunk.sums))
    if memory.is_complete:
        keep_all = seen.seen.num_seen <= max_size
    else:
        keep_all = len(memory.pending) + len(chunk) < pending_limit(max_size)
    if keep_all:
        return replace(seen, pending=memory.pending.concat(chunk.stored()))
    return _select(seen, chunk, max_size, mode, chunk.ranks)


def without_pending(memory: Memory, max_size: int, mode: str, ranks: OneRank) -> Memory:
    """The memory with at most `max_size` exemplars, none of which is pending."""
    if len(memory) <= max_size and (memory.is_complete or not len(memory.pending)):
        return memory
    return _select(memory, None, max_size, mode, ranks)


def pending_limit(max_size: int) -> int:
    """How many new examples make a pursuit worth its time."""
    return max_size // PENDING_PART if max_size >= SMALLEST_WITH_PENDING else 1


def _select(
    memory: Memory, chunk: Chunk | None, max_size: int, mode: str, ranks: OneRank
) -> Memory:
    stored, target = memory.picked.concat(memory.pending), memory.seen.target
    atoms = None if stored.embeddings is None else split(stored.embeddings, ranks)
    labels = stored.labels
    if chunk is not None:
        atoms = _concat(atoms, chunk.embeddings)
        labels = torch.cat([labels, chunk.labels])
    size = min(max_size, len(labels))
    if atoms is None or target is None or size == 0:
        return Memory(seen=memory.seen, residual_norm=1.0)
    if atoms.dim < size:
        warnings.warn(
            f"the embedding has {atoms.dim} dimensions for {size} exemplars: it is matched before "
            "the memory is full, which may then be no better than a random one; give the "
            "embedding more draws, or projections of a larger dim",
            stacklevel=2,
        )
    coreset = orthogonal_matching_pursuit(*in_own_span(atoms, target, size), size, mode=mode)
    picks = coreset.indices.cpu()
    picked = Stored(
        _picked(stored.exemplars, chunk, picks.tolist()),
        atoms.take(picks.to(atoms.device)),
        coreset.weights.cpu() / memory.seen.factors(labels[picks]),
        labels[picks],
    )
    return Memory(picked, seen=memory.seen, residual_norm=coreset.residual_norm)


def whole(dictionary: Dictionary) -> Dictionary:
    """A copy of all atoms, in this process."""
    return dictionary.take(torch.arange(len(dictionary), device=dictionary.device))


def _concat(first: Dictionary | None, second: Dictionary | None) -> Dictionary | None:
    if first is None:
        return second
    return first if second is None else first.concat(second)


def _picked(exemplars: Exemplars, chunk: Chunk | None, picks: list[int]) -> Exemplars:
    """The exemplars at `picks` of [exemplars, chunk]; of the chunk, only those are copied."""
    stored = len(exemplars)
    if chunk is None:
        return exemplars.take(picks)
    new = [pick for pick in picks if pick >= stored]
    place = {pick: stored + rank for rank, pick in enumerate(new)}
    joined = exemplars.concat(chunk.exemplars([pick - stored for pick in new]))
    return joined.take(place.get(pick, pick) for pick in picks)
