"""Algorithm 2 of the paper: a coreset of everything seen, from the last coreset and what is new.

Letters: n exemplars, D dimensions, N new examples.

Where this departs from the letter of the algorithm:

1. While everything seen fits, everything is kept with weight 1, which matches the target exactly.
2. A pursuit costs about the same for one new example as for a hundred. Small updates are therefore
   pooled: their examples count in the target at once, but *wait*, with weight 1, until there are
   enough of them for a pursuit. The result is that of the algorithm on a stream whose small
   batches were merged. While examples wait, the memory shows them in the place of the last picks
   of the pursuit, which come back for the next one: it holds up to a quarter more than it shows.

On several ranks the embeddings of new examples are sharded; each rank has its own copy of the
memory, the same everywhere, of which it contributes its share to a pursuit.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from avalanche.benchmarks.utils import AvalancheDataset
from torch import Tensor

from avalanche_gmc.buffers.sharing import split
from avalanche_gmc.collectives import OneRank
from avalanche_gmc.dictionary import Dictionary
from avalanche_gmc.exemplars import Exemplars
from avalanche_gmc.pursuit import orthogonal_matching_pursuit

POOL_SHARE = 4
"""A pursuit waits for as many new examples as a quarter of the memory."""

SMALLEST_POOLED = 32
"""Smaller memories never wait: their pursuit is a matter of milliseconds."""

_BLOCK = 256


@dataclass(frozen=True, eq=False)
class Memory:
    """A weighted coreset and what it stands for. Never changed, only replaced.

    :param exemplars: n, in picking order, then those that wait.
    :param embeddings: n atoms of dimension D; None if n is 0.
    :param weights: n, float64.
    :param target: D, float64: the sum of the embeddings of everything seen.
    :param num_seen: how many examples were seen.
    :param num_waiting: how many of the exemplars wait for the next pursuit.
    :param residual_norm: what the last pursuit left of its target, relative to it.
    """

    exemplars: Exemplars = field(default_factory=Exemplars)
    embeddings: Dictionary | None = None
    weights: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))
    target: Tensor | None = None
    num_seen: int = 0
    num_waiting: int = 0
    residual_norm: float = 0.0

    def __len__(self) -> int:
        return len(self.exemplars)

    @property
    def is_complete(self) -> bool:
        """Whether everything seen is here."""
        return len(self) == self.num_seen

    def shown(self, max_size: int) -> list[int]:
        """The exemplars to show, at most `max_size`: those that wait replace the last picks."""
        picked = len(self) - self.num_waiting
        return [*range(min(picked, max_size - self.num_waiting)), *range(picked, len(self))]

    def copied(self) -> Memory:
        """The same memory in tensors of its own."""
        return replace(
            self,
            embeddings=None if self.embeddings is None else whole(self.embeddings),
            weights=self.weights.clone(),
            target=None if self.target is None else self.target.clone(),
        )

    def embedded_again(self, embeddings: Dictionary) -> Memory:
        """The same exemplars in other embeddings, which they now stand for with their weights."""
        target = torch.zeros(embeddings.dim, dtype=torch.float64)
        for first in range(0, len(self), _BLOCK):
            block = torch.arange(first, min(first + _BLOCK, len(self)))
            target += self.weights[block] @ embeddings.rows(block).cpu().double()
        return replace(self, embeddings=embeddings, target=target)


@dataclass(frozen=True, eq=False)
class Batch:
    """New examples: consecutive samples of a dataset, and their embeddings, split over ranks."""

    data: AvalancheDataset
    first: int
    embeddings: Dictionary
    ranks: OneRank

    def __len__(self) -> int:
        return len(self.embeddings)

    def exemplars(self, indices: Sequence[int]) -> Exemplars:
        """Copies of some of the examples."""
        return self.ranks.together(
            "copying exemplars",
            lambda: Exemplars.copy_of(self.data, [self.first + index for index in indices]),
            lambda copies: {"exemplars before their transforms": copies.digest()},
        )

    @property
    def nbytes(self) -> int:
        """Bytes held by the embeddings."""
        return self.embeddings.nbytes

    def joined(self, following: Batch) -> Batch:
        """This batch and the one that follows it in the dataset, as one."""
        return replace(self, embeddings=self.embeddings.concat(following.embeddings))

    @cached_property
    def total(self) -> Tensor:
        """The sum of the embeddings: D, float64."""
        return self.embeddings.sum().cpu().double()


@dataclass(frozen=True)
class StreamingPursuit:
    """How a memory takes in new examples and gives up exemplars.

    :param mode: of :func:`orthogonal_matching_pursuit`.
    """

    mode: str = "exact"

    def absorb(self, memory: Memory, batch: Batch, max_size: int) -> Memory:
        """The memory after a batch of new examples."""
        seen = replace(
            memory,
            target=batch.total if memory.target is None else memory.target + batch.total,
            num_seen=memory.num_seen + len(batch),
        )
        if memory.is_complete and seen.num_seen <= max_size:
            return _appended(seen, batch)
        waiting = memory.num_waiting + len(batch)
        if not memory.is_complete and waiting < pool_size(max_size):
            return replace(_appended(seen, batch), num_waiting=waiting)
        dictionary = batch.embeddings
        if memory.embeddings is not None:
            dictionary = split(memory.embeddings, batch.ranks).concat(dictionary)
        return self._select(seen, batch, dictionary, max_size)

    def settle(self, memory: Memory, max_size: int, ranks: OneRank) -> Memory:
        """The memory with at most `max_size` exemplars and none that waits."""
        if len(memory) <= max_size and not memory.num_waiting:
            return memory
        dictionary = None if memory.embeddings is None else split(memory.embeddings, ranks)
        return self._select(memory, None, dictionary, max_size)

    def _select(
        self, memory: Memory, batch: Batch | None, dictionary: Dictionary | None, max_size: int
    ) -> Memory:
        size = 0 if dictionary is None else min(max_size, len(dictionary))
        if dictionary is None or memory.target is None or size == 0:
            return Memory(target=memory.target, num_seen=memory.num_seen, residual_norm=1.0)
        if dictionary.dim < size:
            warnings.warn(
                f"the embedding has {dictionary.dim} dimensions for {size} exemplars: it is "
                "matched before the memory is full, which may then be no better than a random "
                "one; give the embedding more draws, or projections of a larger dim",
                stacklevel=2,
            )
        coreset = orthogonal_matching_pursuit(dictionary, memory.target, size, mode=self.mode)
        return replace(
            memory,
            exemplars=_picked(memory.exemplars, batch, coreset.indices.tolist()),
            embeddings=dictionary.take(coreset.indices),
            weights=coreset.weights,
            num_waiting=0,
            residual_norm=coreset.residual_norm,
        )


def pool_size(max_size: int) -> int:
    """How many new examples make a pursuit worth its time."""
    return max_size // POOL_SHARE if max_size >= SMALLEST_POOLED else 1


def _appended(memory: Memory, batch: Batch) -> Memory:
    """All new examples at the end, with weight 1."""
    ones = torch.ones(len(batch), dtype=torch.float64)
    embeddings = whole(batch.embeddings)
    return replace(
        memory,
        exemplars=memory.exemplars.concat(batch.exemplars(range(len(batch)))),
        embeddings=(
            memory.embeddings.concat(embeddings) if memory.embeddings is not None else embeddings
        ),
        weights=torch.cat([memory.weights, ones]),
    )


def whole(dictionary: Dictionary) -> Dictionary:
    """A copy of all atoms, in this process."""
    return dictionary.take(torch.arange(len(dictionary), device=dictionary.device))


def _picked(exemplars: Exemplars, batch: Batch | None, picks: list[int]) -> Exemplars:
    """The exemplars at `picks` of [exemplars, batch]; of the batch, only those are copied."""
    stored = len(exemplars)
    if batch is None:
        return exemplars.take(picks)
    new = [pick for pick in picks if pick >= stored]
    place = {pick: stored + rank for rank, pick in enumerate(new)}
    joined = exemplars.concat(batch.exemplars([pick - stored for pick in new]))
    return joined.take(place.get(pick, pick) for pick in picks)
