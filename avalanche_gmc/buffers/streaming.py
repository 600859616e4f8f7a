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
from dataclasses import replace

import torch

from avalanche_gmc.buffers.chunks import Chunk
from avalanche_gmc.buffers.memory import Memory, Stored, concat_atoms
from avalanche_gmc.buffers.own_span import in_own_span
from avalanche_gmc.buffers.several_ranks import split
from avalanche_gmc.collectives import OneRank
from avalanche_gmc.exemplars import Exemplars
from avalanche_gmc.pursuit import Mode, orthogonal_matching_pursuit

PENDING_PART = 4
"""A pursuit begins when as many examples are pending as a quarter of the memory."""

SMALLEST_WITH_PENDING = 32
"""In smaller memories no example is pending: their pursuit is a matter of milliseconds."""


def absorb(memory: Memory, chunk: Chunk, max_size: int, mode: Mode) -> Memory:
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


def without_pending(memory: Memory, max_size: int, mode: Mode, ranks: OneRank) -> Memory:
    """The memory with at most `max_size` exemplars, none of which is pending."""
    if len(memory) <= max_size and (memory.is_complete or not len(memory.pending)):
        return memory
    return _select(memory, None, max_size, mode, ranks)


def pending_limit(max_size: int) -> int:
    """How many new examples make a pursuit worth its time."""
    return max_size // PENDING_PART if max_size >= SMALLEST_WITH_PENDING else 1


def _select(
    memory: Memory, chunk: Chunk | None, max_size: int, mode: Mode, ranks: OneRank
) -> Memory:
    stored, target = memory.picked.concat(memory.pending), memory.seen.target
    atoms = None if stored.embeddings is None else split(stored.embeddings, ranks)
    labels = stored.labels
    if chunk is not None:
        atoms = concat_atoms(atoms, chunk.embeddings)
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


def _picked(exemplars: Exemplars, chunk: Chunk | None, picks: list[int]) -> Exemplars:
    """The exemplars at `picks` of [exemplars, chunk]; of the chunk, only those are copied."""
    stored = len(exemplars)
    if chunk is None:
        return exemplars.take(picks)
    new = [pick for pick in picks if pick >= stored]
    place = {pick: stored + rank for rank, pick in enumerate(new)}
    joined = exemplars.concat(chunk.exemplars([pick - stored for pick in new]))
    return joined.take(place.get(pick, pick) for pick in picks)
