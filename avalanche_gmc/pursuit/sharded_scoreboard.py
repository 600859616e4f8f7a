"""The scoreboard of a dictionary that is spread over ranks.

Letters: N atoms on all ranks together, D dimensions, M candidates, k picks so far, b picks
on trial, V values that make an atom.

Every rank runs the same pursuit. Its candidates, basis and residual are the same everywhere,
because all that they are made of is asked from the scoreboard, which answers alike on every rank;
each rank scores its own atoms only. A round takes at most six exchanges, whatever N, b and the size
of the coreset:

1. ``verify``, the best score before each pick on trial: 8·b bytes (exact mode only);
2. ``verify``, which atom has it: 8·b bytes (exact mode only);
3. ``correlations`` of the k picks with the residual: w·k bytes, for atoms of w bytes a number;
4. ``best``, the M highest scores of each rank: w·M + 8 bytes;
5. ``best``, who has the M highest of all: (w+8)·M + w bytes;
6. ``look_up``, the m ≤ M atoms that become candidates (about half of them) as V values each, and
   the standing of all M: w·(V+1)·m + (w+1)·M bytes.

So a rank hands over about w·V·m + 16·b + w·k + (3·w+9)·M bytes a round, and each tensor is padded
to a multiple of 8. Exchanges 1, 2, 3 and 6 are reductions: a ring sends each byte twice. 4 and 5
are gathered from all: each byte goes to all other ranks. In the first round of a sweep there are
no candidates yet: m = M. After the last, the n picked atoms are copied to every rank, n·(w·V + 8)
bytes in parts of 64 MiB.

What one process would compute is computed here from the same numbers in the same order, with one
exception: the inner products of atoms with a block of vectors, which a BLAS rounds differently
according to the rows around an atom. Rounding cannot change a pick (scores that it could swap are
compared again in float64), but it shows in the last digits of the weights.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from avalanche_gmc.collectives import RankFailure
from avalanche_gmc.dictionary import Dictionary
from avalanche_gmc.dictionary.sharded import ShardedDictionary
from avalanche_gmc.pursuit.scoreboard import (
    Leaders,
    Particulars,
    PickedPart,
    Scoreboard,
    checked_norms,
)

T = TypeVar("T")
NOBODY = torch.iinfo(torch.long).max


class Rivals(NamedTuple):
    """Atoms of one rank that rounding cannot tell apart: m scores in float64, how close equal ones
    are, and the atoms' ids, ascending."""

    scores: Tensor
    equal: float
    ids: Tensor


def scoreboard_of(dictionary: Dictionary) -> Scoreboard:
    """The scoreboard for the atoms of a dictionary, wherever they are.

    :raises ValueError: if an atom is not finite; the message names it.
    """
    if isinstance(dictionary, ShardedDictionary):
        return ShardedScoreboard(dictionary)
    return Scoreboard(dictionary, checked_norms(dictionary))


def start_together(dictionary: Dictionary, prepare: Callable[[], T], **facts: object) -> T:
    """Prepare a pursuit; on several ranks, go on only if all of them do, with the same facts."""
    if isinstance(dictionary, ShardedDictionary):
        return dictionary.ranks.together("starting a pursuit", prepare, lambda _: facts)
    return prepare()


class ShardedScoreboard(Scoreboard):
    """Scores of this rank's atoms, and answers that hold for the atoms of all ranks.

    Indices are those of the whole; ``dictionary`` and ``norms`` are this rank's.

    :param shards: N atoms.
    """

    is_whole = False

    def __init__(self, shards: ShardedDictionary) -> None:
        self._shards = shards
        self._ranks = shards.ranks
        self._marks = 0
        self._last_picked: tuple[Tensor, PickedPart] | None = None
        super().__init__(shards.local, checked_norms(shards.local, shards.ids))

    @property
    def is_first_rank(self) -> bool:
        return self._ranks.rank == 0

    @property
    def num_candidates(self) -> int:
        return self._count("candidates", super().num_candidates)

    @property
    def num_eligible(self) -> int:
        return self._count("candidates", super().num_eligible)

    def advance(self, residual: Tensor, *, by_numpy: bool = False) -> None:
        self._shards.traffic.rounds += 1
        super().advance(residual, by_numpy=by_numpy)

    def best(self, count: int, known: int | None = None) -> Leaders:
        ranked = self.scores
        if known is not None:
            ranked[self._here(torch.tensor([known]))] = torch.inf
        highest = self._highest(ranked, count)
        chosen, border = self._split(ranked, highest, count)
        chosen[border.nonzero()[: count - int(chosen.sum()), 0]] = True
        ids = torch.full((count,), NOBODY, device=ranked.device)
        scores = ranked.new_full((count,), -torch.inf)
        own = int(chosen.sum())
        ids[:own], scores[:own] = self._shards.ids[chosen], ranked[chosen]
        rest = _largest(ranked.masked_fill_(chosen, -torch.inf))
        answers = zip(*self._ranks.gather("best candidates", scores, ids, rest), strict=True)
        all_scores, all_ids, rests = (torch.cat([*answer]) for answer in answers)
        order = all_ids.argsort()
        all_scores, all_ids = all_scores[order], all_ids[order]
        chosen, border = self._split(all_scores, highest, count)
        chosen[border.nonzero()[: count - int(chosen.sum()), 0]] = True
        floor = torch.cat([all_scores.masked_fill(chosen, -torch.inf), rests]).max()
        return Leaders(all_ids[chosen], float(floor))

    def look_up(self, coming: Tensor, members: Tensor) -> Particulars:
        packed = self._shards.packed_here(coming)
        inverse_norms = self._from_holders(self.inverse_norms, coming)
        standing = [self._from_holders(x, members) for x in (self._correlations, self._eligible)]
        packed, inverse_norms, correlations, eligible = self._ranks.merge(
            "candidates", packed, inverse_norms, *standing
        )
        atoms = self.dictionary.unpacked(packed)
        rows = atoms.rows(torch.arange(len(coming), device=packed.device))
        return Particulars(rows * inverse_norms[:, None], correlations, eligible)

    def correlations(self, indices: Tensor) -> Tensor:
        own = self._from_holders(self._correlations, indices)
        return self._ranks.merge("correlations of the picks", own)[0]

    def picked(self, indices: Tensor) -> PickedPart:
        """The picked atoms, copied to every rank."""
        if self._last_picked is None or not torch.equal(self._last_picked[0], indices):
            own = self._from_holders(self.norms, indices)
            norms = self._ranks.merge("norms of the picks", own)[0]
            places = torch.arange(len(indices), device=indices.device)
            part = PickedPart(self._shards.take(indices), norms, places)
            self._last_picked = indices.clone(), part
        return self._last_picked[1]

    def first(self, count: int, *, zero: bool) -> Tensor:
        own = self._shards.ids[super().first(count, zero=zero)]
        padded = torch.full((count,), NOBODY, device=own.device)
        padded[: len(own)] = own
        found = torch.cat([part for (part,) in self._ranks.gather("first atoms", padded)])
        return found[found < NOBODY].sort().values[:count]

    def mark_picked(self, indices: Tensor) -> None:
        self._remember(indices)
        super().mark_picked(self._here(indices))

    def mark_dependent(self, indices: Tensor) -> None:
        self._remember(indices)
        super().mark_dependent(self._here(indices))

    def count_agreeing(
        self, ranked: Tensor, path: Tensor, picks: Tensor, trusted: int
    ) -> tuple[int, int | None]:
        self._shards.traffic.rounds += 1
        for position, pick in zip(*map(Tensor.tolist, self._shards.held(picks)), strict=True):
            ranked[pick, position + 1 :] = -torch.inf
        rivals = self._rivals(ranked, path, len(picks), trusted)
        own = torch.cat([_largest(scores) for scores, _, _ in rivals])
        best = self._ranks.maximum("scores on trial", own)
        winners = self._ranks.minimum("winners on trial", _first_equal(rivals, best)).tolist()
        for position, pick in enumerate(picks.tolist()):
            if position < trusted:
                continue
            if best[position] == -torch.inf:
                self.mark_dependent(picks[position : position + 1])
                return position, None
            if winners[position] != pick:
                return position, winners[position]
        return len(picks), None

    def _rivals(self, ranked: Tensor, path: Tensor, count: int, trusted: int) -> list[Rivals]:
        """This rank's best atoms before each trial pick.

        One process compares again the scores that are close to the best of all, a rank those that
        are close to its own best. These are more, and a score that only a rank's own best comes
        close to is too low, also in float64, to win against the best of all.
        """
        tie = self.precision.tie * float(torch.linalg.vector_norm(path[0]))
        columns = ranked[:, trusted:count]
        best = columns.max(dim=0).values if len(columns) else columns.sum(dim=0)
        close = (columns >= best - tie) & (best > -torch.inf)
        where, which = close.nonzero(as_tuple=True)
        found = [Rivals(path.new_empty(0), 0.0, where.new_empty(0).cpu()) for _ in range(count)]
        for position in sorted({trusted + column for column in which.tolist()}):
            indices = where[which + trusted == position]
            scores, equal = self._exact_scores(indices, path[position])
            found[position] = Rivals(scores, equal, self._shards.ids[indices].cpu())
        return found

    def _highest(self, ranked: Tensor, count: int) -> Tensor:
        """The ``count`` highest scores of all atoms, descending, −inf where there are fewer."""
        own = ranked.new_full((count,), -torch.inf)
        size = min(count, len(ranked))
        own[:size] = ranked.topk(size).values
        marks = torch.tensor(self._marks, device=own.device)
        found = self._ranks.gather("best scores", own, marks)
        if any(int(other) != int(found[0][1]) for _, other in found):
            raise RankFailure(
                "the ranks came to different picks, so their arithmetic differs; give all of them "
                "the same versions, the same number of threads and the same kind of machine."
            )
        return torch.cat([scores for scores, _ in found]).topk(count).values

    def _remember(self, indices: Tensor) -> None:
        self._marks = zlib.crc32(indices.cpu().numpy().tobytes(), self._marks)

    def _here(self, indices: Tensor) -> Tensor:
        """Where those of the atoms are that this rank holds."""
        return self._shards.held(indices.to(self._shards.ids))[1]

    def _from_holders(self, values: Tensor, indices: Tensor) -> Tensor:
        """Values (N of this rank) of chosen atoms, zero for those of other ranks: m."""
        places, positions = self._shards.held(indices)
        return values.new_zeros(len(indices)).index_copy_(0, places, values[positions])

    def _count(self, step: str, own: int) -> int:
        return sum(int(other) for (other,) in self._ranks.gather(step, torch.tensor(own)))


def _largest(values: Tensor) -> Tensor:
    """The largest value as a tensor of one, −inf if there is none."""
    return values.max()[None] if len(values) else values.new_full((1,), -torch.inf)


def _first_equal(rivals: list[Rivals], best: Tensor) -> Tensor:
    """The lowest id of this rank whose score equals the best: b."""
    winners = torch.full((len(rivals),), NOBODY)
    for position, (scores, equal, ids) in enumerate(rivals):
        level = ids[scores >= best[position] - equal]
        if len(level):
            winners[position] = level[0]
    return winners
