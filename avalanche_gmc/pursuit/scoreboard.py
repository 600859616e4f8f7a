"""The state of a pursuit that lives with the atoms: one score per atom.

Letters: N atoms, D dimensions, b picks on trial.

Scores are for atoms of unit length: ``<g_k, r> / ||g_k||`` (rule "omp"), and for rule "ols" divided
once more by the atom's distance from the picked span. The pursuit never sees the N scores. It asks
for the best candidates, and whether picks made on trial are those the whole dictionary would make.
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

    :param tie: scores this close, relative to the residual, are compared again in float64.
    :param ols_tie: the same for rule "ols", whose distances carry a rounding error of their own.
    :param spent: a residual this small, relative to the target, is rounding noise.
    """

    tie: float
    ols_tie: float
    spent: float


PRECISION = {
    torch.float32: Precision(tie=1e-5, ols_tie=1e-4, spent=1e-6),
    torch.float64: Precision(tie=1e-14, ols_tie=1e-10, spent=1e-14),
}
DEPENDENT = 1e-3
"""An atom (of unit length) this close to the picked span counts as inside it, in any precision:
fitted to it, the rounding of the data itself would grow a thousandfold."""
EQUAL = 1e-13
"""Scores this close in float64, relative to the residual, are equal: the lower index wins."""
SETTLE_ROWS = 256


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
    :param rule: "omp" or "ols".
    :raises ValueError: if an atom is not finite; the message names it.
    """

    def __init__(self, dictionary: Dictionary, rule: str) -> None:
        self.dictionary = dictionary
        self.rule = rule
        self.norms = norms = self._checked_norms()
        self.precision = PRECISION[dictionary.dtype]
        self.tie = self.precision.ols_tie if rule == "ols" else self.precision.tie
        self._inverse_norms = norms.reciprocal().nan_to_num(posinf=0.0).to(dictionary.dtype)
        self._unpicked = norms > 0
        self._eligible = self._unpicked.clone()
        self._correlations = torch.zeros_like(self._inverse_norms)
        self._distances = torch.ones_like(self._inverse_norms)

    @property
    def is_first_rank(self) -> bool:
        """Whether to speak for all ranks, such as by a progress bar."""
        return True

    @property
    def num_candidates(self) -> int:
        """Atoms that are neither picked nor zero."""
        return int(self._unpicked.sum())

    @property
    def num_eligible(self) -> int:
        """Candidates that are not known to be in the span of this sweep's picks."""
        return int((self._ranked() > -torch.inf).sum())

    def restart(self, residual: Tensor) -> None:
        """Begin a sweep over the atoms not picked so far.

        :param residual: D.
        """
        self._eligible = self._unpicked.clone()
        self._distances.fill_(1.0)
        self._correlations = self.dictionary.correlate(residual) * self._inverse_norms

    def advance(self, residual: Tensor, basis: Tensor) -> None:
        """Score all atoms anew, trusting the picks made since the last time.

        :param residual: D, after the picks.
        :param basis: b×D, the orthonormal vectors that the picks added to the span.
        """
        block = residual.to(basis)[None]
        if self.rule == "ols":
            block = torch.cat([block, basis])
        overlap = self.dictionary.correlate(block.T).mul_(self._inverse_norms[:, None])
        self._correlations = overlap[:, 0].clone()
        self._distances -= overlap[:, 1:].square().sum(dim=1)

    def best(self, count: int, known: int | None = None) -> Leaders:
        """The ``count`` best candidates, fewer if there are not as many.

        :param known: a candidate that must be among them.
        """
        ranked = self._ranked()
        if known is not None:
            ranked[known] = torch.inf
        chosen, border = self._split(ranked, ranked.topk(min(count, len(ranked))).values, count)
        chosen[border.nonzero()[: count - int(chosen.sum()), 0]] = True
        floor = float(ranked.masked_fill_(chosen, -torch.inf).max())
        return Leaders(chosen.nonzero()[:, 0], floor)

    def look_up(self, coming: Tensor, members: Tensor) -> Particulars:
        """Rows of some atoms (m indices) and the standing of others (M indices)."""
        rows = self.dictionary.rows(coming) * self._inverse_norms[coming, None]
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

        One matrix–matrix product gives the scores of all atoms before each of the picks on trial.

        :param path: (b+1)×D, float64, the residuals before each trial pick and after the last.
        :param basis: b×D, the orthonormal vectors that the picks add to the span.
        :param coefficients: b, float64, of the first residual on the basis.
        :param picks: b, indices of the atoms picked on trial.
        :param trusted: this many leading picks are known to be right.
        :returns: the number of right picks, and what the next one should have been if it is wrong.
        """
        block = torch.cat([path[:1].to(basis), basis])
        overlap = self.dictionary.correlate(block.T).mul_(self._inverse_norms[:, None])
        distances = self._distances_on_trial(overlap[:, 1:])
        overlap[:, 1:] *= -coefficients.to(overlap)
        correlations = overlap.cumsum_(dim=1)
        ranked = self._rank(correlations, distances)
        ranked.masked_fill_(~self._eligible[:, None], -torch.inf)
        accepted, instead = self._count_agreeing(ranked, distances, path, picks, trusted)
        self._correlations = correlations[:, accepted].clone()
        if self.rule == "ols":
            self._distances = distances[:, accepted].clone()
        return accepted, instead

    def _ranked(self) -> Tensor:
        """The scores of all atoms, a new tensor: N; −inf for those that are no candidates."""
        ranked = self._rank(self._correlations, self._distances)
        return ranked.masked_fill_(~self._eligible, -torch.inf)

    def _split(self, ranked: Tensor, highest: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Which atoms are among the ``count`` best, and which tie for the last places: N, N.

        :param ranked: N.
        :param highest: the highest scores of all, descending: ``count`` unless there are fewer.
        """
        if len(highest) < count or highest[count - 1] == -torch.inf:
            return ranked > -torch.inf, torch.zeros_like(ranked, dtype=torch.bool)
        lowest = highest[count - 1]
        tie = self.tie * lowest.abs()
        sure = ranked > lowest + tie
        return sure, (ranked >= lowest - tie) & ~sure

    def _rank(self, correlations: Tensor, distances: Tensor) -> Tensor:
        """What the rule maximises, a new tensor: of shape N, or N×b for several residuals."""
        if self.rule == "omp":
            return correlations.clone()
        inside = distances <= DEPENDENT**2
        return (correlations / distances.sqrt()).masked_fill_(inside, -torch.inf)

    def _distances_on_trial(self, overlap: Tensor) -> Tensor:
        """Squared distances of the atoms (at unit length) from the span before each trial pick."""
        if self.rule == "omp":
            return self._distances
        return torch.cat([self._distances[:, None], -overlap.square()], dim=1).cumsum_(dim=1)

    def _count_agreeing(
        self, ranked: Tensor, distances: Tensor, path: Tensor, picks: Tensor, trusted: int
    ) -> tuple[int, int | None]:
        """The number of leading trial picks that are the best of their column of ``ranked``."""
        for position, pick in enumerate(picks.tolist()):
            ranked[pick, position + 1 :] = -torch.inf
        tie = self.tie * float(torch.linalg.vector_norm(path[0]))
        best = ranked.max(dim=0)
        threshold = best.values - tie
        rivals = (ranked >= threshold).sum(dim=0).tolist()
        winners = best.indices.tolist()
        for position, pick in enumerate(picks.tolist()):
            if position < trusted:
                continue
            if best.values[position] == -torch.inf:
                # The pool thought this last candidate outside the span; by our count it is not.
                self.mark_dependent(picks[position : position + 1])
                return position, None
            winner = winners[position]
            if rivals[position] > 1:
                indices = (ranked[:, position] >= threshold[position]).nonzero()[:, 0]
                column = distances[:, position] if self.rule == "ols" else distances
                scores, equal = self._settle(indices, path[position], column)
                winner = int(indices[int((scores >= scores.max() - equal).nonzero()[0, 0])])
            if winner != pick:
                return position, winner
        return len(picks), None

    def _settle(self, rivals: Tensor, residual: Tensor, distances: Tensor) -> tuple[Tensor, float]:
        """Scores of a few atoms that rounding could not tell apart, and how close equal ones are.

        Of equal scores, the first atom wins.

        :param rivals: m, indices, ascending.
        :param residual: D, float64.
        :param distances: N, squared distances of the atoms from the span.
        :returns: m, float64, on the CPU, and a difference.
        """
        scores = torch.cat(
            [self._exact(part, residual) for part in torch.split(rivals, SETTLE_ROWS)]
        )
        length = float(torch.linalg.vector_norm(residual))
        if self.rule == "ols":
            return scores / distances[rivals].double().cpu().sqrt(), 0.1 * self.tie * length
        return scores, EQUAL * length

    def _exact(self, indices: Tensor, residual: Tensor) -> Tensor:
        """Correlations in float64, each atom's sum in the same order whatever its neighbours."""
        rows = self.dictionary.rows(indices).cpu().double()
        return (rows * residual).sum(dim=1) / self.norms[indices].cpu().double()

    def _checked_norms(self) -> Tensor:
        """The norms of the atoms; those too small for their precision count as zero."""
        norms = self.dictionary.norms()
        if not bool(norms.isfinite().all()):
            first = self._number(int((~norms.isfinite()).nonzero()[0, 0]))
            raise ValueError(f"atoms must be finite, but row {first} has a NaN or infinite entry.")
        return torch.where(norms < torch.finfo(self.dictionary.dtype).tiny, 0.0, norms)

    def _number(self, position: int) -> int:
        """What the atom at a position is called."""
        return position
