"""One pursuit of a target, by the fastest of several ways to find the next picks.

Letters: N atoms, D dimensions, k picks so far, b picks found at once.

Every round finds b picks, extends the basis by them and moves the residual on. They come

- from a trial among a few candidates, verified against all atoms in exact mode (by a bfloat16 copy
  on machines that multiply these faster, :mod:`.rounded`);
- or one after the other, each by scoring all atoms (:mod:`.stepwise`): in exact mode, if the
  dictionary is small, or where few picks on trial are right lately.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor

from avalanche_gmc.pursuit.basis import Basis
from avalanche_gmc.pursuit.candidates import Candidates, longest_trial, most_candidates
from avalanche_gmc.pursuit.rounded import RoundedAtoms, can_round
from avalanche_gmc.pursuit.scoreboard import Scoreboard
from avalanche_gmc.pursuit.stepwise import Stepwise, is_light, one_thread
from avalanche_gmc.pursuit.triangle import Triangle

LONGEST_RUN = 64
"""Picks one by one from a small dictionary, before the residual is cleaned of rounding."""
SHORT_RUN = 4
"""Trials with fewer right picks than this cost more than picking one by one."""
SHORTEST_GUESS = 8
STEPWISE_ROUNDS = 2
"""After a short run, this many rounds are made one by one before the next trial."""


class Sweep:
    """One pursuit of the whole target, over the atoms not picked so far.

    :param board: the scores of the dictionary's atoms.
    :param target: D, float64, of unit length.
    :param capacity: the largest number of picks.
    :param mode: "exact" or "fast".
    :param stop: the residual norm at which the sweep is over.
    """

    def __init__(
        self, board: Scoreboard, target: Tensor, capacity: int, *, mode: str, stop: float
    ) -> None:
        dictionary = board.dictionary
        self.basis = Basis(
            min(capacity, dictionary.dim), dictionary.dim, dictionary.dtype, dictionary.device
        )
        self.indices = torch.empty(0, dtype=torch.long, device=dictionary.device)
        self.coordinates = torch.empty(0, dtype=torch.float64)
        self.trace = torch.empty(0, dtype=torch.float64)
        self._board = board
        self._residual = target
        self._mode = mode
        self._stop = stop
        self._known: int | None = None
        self._candidates: Candidates | None = None
        self._rounds_by_steps = 0
        self._longest_guess = LONGEST_RUN
        on_cpu = dictionary.device.type == "cpu"
        self._may_step = mode == "exact" and board.is_whole and on_cpu
        self._is_light = self._may_step and is_light(dictionary)
        self._rounded: RoundedAtoms | None = None
        if self._may_step and not self._is_light and can_round(dictionary):
            self._rounded = RoundedAtoms(board)
        copy = self._rounded.copy if self._rounded else None
        self._stepwise = Stepwise(board, self.basis, copy=copy)

    @property
    def residual_norm(self) -> float:
        """Relative to the target, with least-squares weights."""
        return float(self.trace[-1]) if len(self.trace) else 1.0

    def run(self, report: Callable[[int, float], None]) -> None:
        """Pick atoms until the residual is spent, the span exhausted or the capacity reached.

        :param report: told, after every round, how many picks it made and what residual is left.
        """
        with one_thread() if self._is_light else nullcontext():
            self._board.restart(self._residual, by_numpy=self._is_light)
            while self.residual_norm > self._stop and self.basis.size < self.basis.capacity:
                before = self.basis.size
                by_steps = self._is_light or self._rounds_by_steps > 0
                if not (self._steps() if by_steps else self._trial()):
                    return
                report(self.basis.size - before, self.residual_norm)

    def release_factor(self) -> Triangle:
        """Hand over the k×k factor and free the k×D vectors; the sweep is over."""
        factor = self.basis.factor
        self.basis = Basis(0, 0, self._residual.dtype, self._residual.device)
        self._candidates = None
        self._stepwise, self._rounded = Stepwise(self._board, self.basis), None
        return factor

    def _limit(self) -> int:
        """The most picks to find at once."""
        longest = LONGEST_RUN if self._is_light else longest_trial(self._mode, self.basis.capacity)
        return min(longest, self.basis.capacity - self.basis.size)

    def _trial(self) -> bool:
        """A round of picks on trial among the candidates; False if no atom is left."""
        if self._candidates is None:
            most = most_candidates(self._mode, self.basis.capacity)
            self._candidates = Candidates(self._board, self.basis, most)
        positions = self._candidates.picks(self._limit(), self._known)
        if len(positions) == 0:
            self._known = None
            return self._board.num_eligible > 0
        picks, atoms, overlap = self._candidates.atoms(positions)
        vectors, columns = self.basis.extension(atoms, overlap)
        if len(vectors) == 0:
            self._board.mark_dependent(picks[:1])
            self._known = None
            return True
        kept = self._keep(picks, vectors, columns, trusted=int(self._known is not None))
        if self._may_step and kept < SHORT_RUN:
            self._rounds_by_steps = STEPWISE_ROUNDS
        return True

    def _steps(self) -> bool:
        """A round of picks found one by one; False if no atom is left."""
        self._rounds_by_steps -= 1
        limit = min(self._limit(), self._longest_guess)
        steps = self._stepwise.picks(self._residual, limit, self._stop)
        if len(steps.picks) == 0:
            return self._board.num_eligible > 0
        if not self._stepwise.rounded:
            self._keep(*steps, trusted=len(steps.picks))
            return True
        kept = self._keep(*steps, trusted=1)
        # Guesses past the first wrong one are lost: guess about as many as were right.
        self._longest_guess = max(SHORTEST_GUESS, 2 * kept)
        return True

    def _keep(self, picks: Tensor, vectors: Tensor, columns: Tensor, *, trusted: int) -> int:
        """Take the leading picks; in exact mode, those that the whole dictionary confirms.

        :param picks: b, indices; maybe more than there are vectors.
        :param vectors: b×D, orthonormal, what the picks add to the span.
        :param columns: (k+b)×b, their columns of R.
        :param trusted: this many leading picks are known to be right.
        :returns: how many.
        """
        wide = vectors.cpu().double()
        coefficients = wide @ self._residual
        path = torch.cat([self._residual[None], -coefficients[:, None] * wide]).cumsum_(dim=0)
        trace = torch.linalg.vector_norm(path[1:], dim=1)
        kept = min(len(vectors), int((trace > self._stop).sum()) + 1)
        if self._mode == "exact" and trusted < kept:
            kept, self._known = (self._rounded or self._board).verify(
                path, vectors[:kept], coefficients[:kept], picks[:kept], trusted
            )
        else:
            self._known = None
            self._board.advance(path[kept], by_numpy=self._is_light)
        self._board.mark_picked(picks[:kept])
        self.basis.append(vectors[:kept], columns[:, :kept])
        self.indices = torch.cat([self.indices, picks[:kept]])
        self.coordinates = torch.cat([self.coordinates, coefficients[:kept]])
        self.trace = torch.cat([self.trace, trace[:kept]])
        self._residual = path[kept]
        self._purify()
        return kept

    def _purify(self) -> None:
        """Take out of the residual what rounding left in it of the picked atoms.

        The residual r should be orthogonal to the picked atoms, the rows of ``Rᵀ Q``. Their inner
        products with it, ``v = Rᵀ Q r``, tell what is left: ``Q r = R⁻ᵀ v``.
        """
        if self.basis.size:
            overlap = self._board.correlations(self.indices).cpu().double()
            rest = self.basis.factor.solve_transposed(overlap)
            self.coordinates = self.coordinates + rest
            self._residual = self._residual - self.basis.combine(rest)
