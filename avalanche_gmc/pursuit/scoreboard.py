"""The state of a pursuit that lives with the atoms: one score per atom.

Letters: N atoms, D dimensions, b picks on trial.

A score is ``<g_k, r> / ||g_k||``. The pursuit asks for the best candidates, and whether picks made
on trial are those that the whole dictionary would make.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from avalanche_gmc.dictionary import Dictionary


@dataclass(frozen=True)
class Precision:
    """What rounding allows to tell apart, for atoms of unit length.

    An inner product of two vectors of unit length has a rounding error of a few ulp: 1e-7 in
    float32, 1e-16 in float64. Both limits leave room for the sums over a round of picks.

    :param tie: scores this close, relative to the residual, are compared again in float64.
    :param spent: a residual this small, relative to the target, is rounding noise.
    """

    tie: float
    spent: float


PRECISION = {
    torch.float32: Precision(tie=1e-5, spent=1e-6),
    torch.float64: Precision(tie=1e-14, spent=1e-14),
}
DEPENDENT = 1e-3
"""An atom (of unit length) this close to the picked span counts as inside it, in any precision:
fitted to it, the rounding of the data itself would grow a thousandfold."""
EQUAL = 1e-13
"""Scores this close in float64, relative to the residual, are equal: the lower index wins."""
EXACT_ROWS = 256


class Leaders(NamedTuple):
    """The best candidates by ascending index, and the best score of all others."""

    indices: Tensor
    floor: float


class Particulars(NamedTuple):
    """Some atoms at unit length (m×D); others' correlations and whether they may be picked (M)."""

    rows: Tensor
    correlations: Tensor
    eligible: Tensor


class PickedPart(NamedTuple):
    """A dictionary with norms, and which of its atoms are the picked ones (n)."""

    dictionary: Dictionary
    norms: Tensor
    indices: Tensor


class Scoreboard:
    """Scores of the atoms of one dictionary against a residual.

    Atoms of zero norm are never candidates.

    :param dictionary: N atoms.
    :param norms: N, float64, of this dictionary's atoms; zero for those that count as zero.
    """

    is_whole = True
    """Whether all atoms are in this process."""

    def __init__(self, dictionary: Dictionary, norms: Tensor) -> None:
        self.dictionary = dictionary
        self.norms = norms
        self.precision = PRECISION[dictionary.dtype]
        self.inverse_norms = norms.reciprocal().nan_to_num(posinf=0.0).to(dictionary.dtype)
        self._unpicked = norms > 0
        self._eligible = self._unpicked.clone()
        self._correlations = torch.zeros_like(self.inverse_norms)

    @property
    def is_first_rank(self) -> bool:
        """Whether to speak for all ranks, such as by a progress bar."""
        return True

    @property
    def unpicked(self) -> Tensor:
        """Which atoms are neither picked nor zero: N."""
        return self._unpicked

    @property
    def num_candidates(self) -> int:
        """Atoms that are neither picked nor zero."""
        return int(self._unpicked.sum())

    @property
    def num_eligible(self) -> int:
        """Candidates that are not known to be in the span of this sweep's picks."""
        return int(self._eligible.sum())

    @property
    def scores(self) -> Tensor:
        """Of all atoms, a new tensor: N; −inf for those that are no candidates."""
        return self._correlations.masked_fill(~self._eligible, -torch.inf)

    def restart(self, residual: Tensor, *, by_numpy: bool = False) -> None:
        """Begin a sweep over the atoms not picked so far.

        :param residual: D.
        :param by_numpy: see :meth:`advance`.
        """
        self._eligible = self._unpicked.clone()
        self.advance(residual, by_numpy=by_numpy)

    def advance(self, residual: Tensor, *, by_numpy: bool = False) -> None:
        """Score all atoms against a residual: D.

        :param by_numpy: by NumPy's BLAS, for atoms on the CPU.
        """
        vector = residual.to(self.inverse_norms)
        correlations = (
            torch.from_numpy(self.dictionary.correlate_numpy(vector.numpy()))
            if by_numpy
            else self.dictionary.correlate(vector)
        )
        self._correlations = correlations.mul_(self.inverse_norms)

    def best(self, count: int, known: int | None = None) -> Leaders:
        """The ``count`` best candidates, fewer if there are not as many.

        :param known: a candidate that must be among them.
        """
        scores = self.scores
        if known is not None:
            scores[known] = torch.inf
        chosen, border = self._split(scores, scores.topk(min(count, len(scores))).values, count)
        chosen[border.nonzero()[: count - int(chosen.sum()), 0]] = True
        floor = float(scores.masked_fill_(chosen, -torch.inf).max())
        return Leaders(chosen.nonzero()[:, 0], floor)

    def look_up(self, coming: Tensor, members: Tensor) -> Particulars:
        """Rows of some atoms (m indices) and the standing of others (M indices)."""
        rows = self.dictionary.rows(coming) * self.inverse_norms[coming, None]
        return Particulars(rows, self._correlations[members], self._eligible[members])

    def picked(self, indices: Tensor) -> PickedPart:
        """Where the picked atoms (n indices) are to be read."""
        return PickedPart(self.dictionary, self.norms, indices)

    def first(self, count: int, *, zero: bool) -> Tensor:
        """The first ``count`` atoms that are zero, or that are not; fewer if there are fewer."""
        return ((self.norms == 0) == zero).nonzero()[:count, 0]

    def correlations(self, indices: Tensor) -> Tensor:
        """Inner products of the chosen atoms, at unit length, with the last residual: m."""
        return self._correlations[indices]

    def mark_picked(self, indices: Tensor) -> None:
        """These atoms are in the coreset: candidates no more."""
        self._unpicked[indices] = False
        self._eligible[indices] = False

    def mark_dependent(self, indices: Tensor) -> None:
        """These atoms are in the span of the picked ones: no candidates until the next sweep."""
        self._eligible[indices] = False

    def verify(
        self, path: Tensor, basis: Tensor, coefficients: Tensor, picks: Tensor, trusted: int
    ) -> tuple[int, int | None]:
        """How many leading picks the whole dictionary would have made; scores move on to there.

        With r the residual before the first of the picks, q_1 … q_b the orthonormal vectors that
        they add to the span and ``c_i = <q_i, r>``, the residual before pick t is
        ``r − Σ_{i<t} c_i q_i``. So one matrix–matrix product of the atoms with [r, q_1, …, q_b],
        and cumulative sums, give the scores of all atoms before each of the picks.

        :param path: (b+1)×D, float64, the residuals before each trial pick and after the last.
        :param basis: b×D, q_1 … q_b.
        :param coefficients: b, float64, c_1 … c_b.
        :param picks: b, indices of the atoms picked on trial.
        :param trusted: this many leading picks are known to be right.
        :returns: the number of right picks, and what the next one should have been if it is wrong.
        """
        block = torch.cat([path[:1].to(basis), basis])
        # (b+1)×N, so that what belongs to one residual is contiguous.
        overlap = self.dictionary.correlate(block.T).T * self.inverse_norms
        overlap[1:] *= -coefficients.to(overlap)[:, None]
        correlations = overlap.cumsum_(dim=0)
        scores = correlations.masked_fill(~self._eligible, -torch.inf)
        accepted, instead = self.count_agreeing(scores.T, path, picks, trusted)
        self._correlations = correlations[accepted].clone()
        return accepted, instead

    def winner(self, scores: Tensor, residual: Tensor) -> int | None:
        """The atom with the best score; where rounding cannot tell, by scores in float64.

        :param scores: N, −inf for those that are no candidates.
        :param residual: D, float64, that the scores are of.
        :returns: None if there is no candidate.
        """
        best = float(scores.max())
        if best == -torch.inf:
            return None
        tie = self.precision.tie * float(torch.linalg.vector_norm(residual))
        rivals = (scores >= best - tie).nonzero()[:, 0]
        return int(rivals[0]) if len(rivals) == 1 else self.first_best(rivals, residual)

    def _split(self, scores: Tensor, highest: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Which atoms are among the ``count`` best, and which tie for the last places: N, N.

        :param scores: N.
        :param highest: the highest scores of all, descending: ``count`` unless there are fewer.
        """
        if len(highest) < count or highest[count - 1] == -torch.inf:
            return scores > -torch.inf, torch.zeros_like(scores, dtype=torch.bool)
        lowest = highest[count - 1]
        tie = self.precision.tie * lowest.abs()
        sure = scores > lowest + tie
        return sure, (scores >= lowest - tie) & ~sure

    def count_agreeing(
        self, scores: Tensor, path: Tensor, picks: Tensor, trusted: int
    ) -> tuple[int, int | None]:
        """The number of leading trial picks that are the best of their column of ``scores``."""
        for position, pick in enumerate(picks.tolist()):
            scores[pick, position + 1 :] = -torch.inf
        tie = self.precision.tie * float(torch.linalg.vector_norm(path[0]))
        best = scores.max(dim=0)
        threshold = best.values - tie
        rivals = (scores >= threshold).sum(dim=0).tolist()
        winners = best.indices.tolist()
        for position, pick in enumerate(picks.tolist()):
            if position < trusted:
                continue
            if best.values[position] == -torch.inf:
                # The trial took this last candidate to be outside the span; by our count it is not.
                self.mark_dependent(picks[position : position + 1])
                return position, None
            winner = winners[position]
            if rivals[position] > 1:
                close = (scores[:, position] >= threshold[position]).nonzero()[:, 0]
                winner = self.first_best(close, path[position])
            if winner != pick:
                return position, winner
        return len(picks), None

    def first_best(self, rivals: Tensor, residual: Tensor) -> int:
        """The first of the rivals (m, ascending) whose score in float64 equals the best."""
        scores, equal = self._exact_scores(rivals, residual)
        return int(rivals[int((scores >= scores.max() - equal).nonzero()[0, 0])])

    def _exact_scores(self, rivals: Tensor, residual: Tensor) -> tuple[Tensor, float]:
        """Scores in float64 (m, on the CPU), and a difference below which they are equal."""
        parts = [self._exact(part, residual) for part in torch.split(rivals, EXACT_ROWS)]
        return torch.cat(parts), EQUAL * float(torch.linalg.vector_norm(residual))

    def _exact(self, indices: Tensor, residual: Tensor) -> Tensor:
        """Correlations in float64, each atom's sum in the same order whatever its neighbours."""
        rows = self.dictionary.rows(indices).cpu().double()
        return (rows * residual).sum(dim=1) / self.norms[indices].cpu().double()


def checked_norms(dictionary: Dictionary, ids: Tensor | None = None) -> Tensor:
    """The norms of the atoms: N, float64; those too small for their precision count as zero.

    :param ids: what the atoms are called in an error; None is 0 to N−1.
    :raises ValueError: if an atom is not finite; the message names it.
    """
    norms = dictionary.norms()
    if not bool(norms.isfinite().all()):
        first = int((~norms.isfinite()).nonzero()[0, 0])
        name = first if ids is None else int(ids[first])
        raise ValueError(f"atoms must be finite, but row {name} has a NaN or infinite entry.")
    return torch.where(norms < torch.finfo(dictionary.dtype).tiny, 0.0, norms)
