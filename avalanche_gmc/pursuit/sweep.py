"""One pursuit of a target: rounds of picks on trial and their verification.

Letters: N atoms, D dimensions, k picks so far, b picks on trial, M atoms of a pool.

A round takes the M best-scored atoms as a pool, makes b picks inside it, extends the basis by
them, and asks the scoreboard how many of them the whole dictionary would have made.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from avalanche_gmc.pursuit.basis import Basis
from avalanche_gmc.pursuit.candidates import Pool
from avalanche_gmc.pursuit.scoreboard import Scoreboard
from avalanche_gmc.pursuit.triangle import Triangle

LONGEST_TRIAL = {"exact": 31, "fast": 47}
"""With the residual, exact mode multiplies the dictionary with 32 columns."""
LARGEST_POOL = {"exact": 512, "fast": 256}
SMALLEST_POOL = 64


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

    @property
    def residual_norm(self) -> float:
        """Relative to the target, with least-squares weights."""
        return float(self.trace[-1]) if len(self.trace) else 1.0

    def run(self, report: Callable[[int, float], None]) -> None:
        """Pick atoms until the residual is spent, the span exhausted or the capacity reached.

        :param report: told, after every round, how many picks it made and what residual is left.
        """
        self._board.restart(self._residual)
        capacity, longest = self.basis.capacity, LONGEST_TRIAL[self._mode]
        largest = min(LARGEST_POOL[self._mode], 4 * capacity)
        pool = Pool(self._board, self.basis, max(SMALLEST_POOL, largest))
        while self.residual_norm > self._stop and self.basis.size < capacity:
            before = self.basis.size
            picks = pool.picks(min(longest, capacity - self.basis.size), self._known)
            if len(picks) > 0:
                self._try(*pool.atoms(picks))
            elif self._board.num_eligible == 0:
                return
            else:
                self._known = None
            report(self.basis.size - before, self.residual_norm)

    def release_factor(self) -> Triangle:
        """Hand over the k×k factor and free the k×D vectors; the sweep is over."""
        factor = self.basis.factor
        self.basis = Basis(0, 0, self._residual.dtype, self._residual.device)
        return factor

    def _try(self, picks: Tensor, atoms: Tensor, overlap: Tensor) -> None:
        """Take as many of the picks as stand up to rounding and to the whole dictionary."""
        vectors, columns = self.basis.extension(atoms, overlap)
        if len(vectors) > 0:
            self._keep(picks, vectors, columns)
        else:
            self._board.mark_dependent(picks[:1])
            self._known = None

    def _keep(self, picks: Tensor, vectors: Tensor, columns: Tensor) -> None:
        """Take the trial picks that stand up to the whole dictionary (in fast mode, all)."""
        wide = vectors.cpu().double()
        coefficients = wide @ self._residual
        path = torch.cat([self._residual[None], -coefficients[:, None] * wide]).cumsum_(dim=0)
        trace = torch.linalg.vector_norm(path[1:], dim=1)
        proposed = min(len(vectors), int((trace > self._stop).sum()) + 1)
        picks, vectors, coefficients = picks[:proposed], vectors[:proposed], coefficients[:proposed]
        if self._mode == "exact":
            trusted = int(self._known is not None and int(picks[0]) == self._known)
            kept, self._known = self._board.verify(path, vectors, coefficients, picks, trusted)
        else:
            kept = proposed
            self._board.advance(path[kept], vectors)
        self._board.mark_picked(picks[:kept])
        self.basis.append(vectors[:kept], columns[:, :kept])
        self.indices = torch.cat([self.indices, picks[:kept]])
        self.coordinates = torch.cat([self.coordinates, coefficients[:kept]])
        self.trace = torch.cat([self.trace, trace[:kept]])
        self._residual = path[kept]
        self._purify()

    def _purify(self) -> None:
        """Take out of the residual what rounding left in it of the picked atoms."""
        if self.basis.size:
            overlap = self._board.correlations(self.indices).cpu().double()
            rest = self.basis.factor.solve_transposed(overlap)
            self.coordinates = self.coordinates + rest
            self._residual = self._residual - self.basis.combine(rest)
