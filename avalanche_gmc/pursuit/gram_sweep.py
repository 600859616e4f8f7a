"""One pursuit of a target on inner products alone: a pivoted partial Cholesky of the Gram matrix.

Letters: N atoms, D dimensions, k picks so far.

With G the Gram matrix of the atoms, c their correlations with the residual, and L the columns of
the factor so far (N×k), picking atom p adds the column ``l = (G[:, p] − L L[p]ᵀ) / d`` with
``d² = G[p, p] − ||L[p]||²``, the squared distance of p from the picked span, and c becomes
``c − (c_p / d) l``. So every pick needs one column of G (:mod:`.gram_columns`) and nothing of
dimension D. The scores of all atoms are known at every pick.

All of it is float64, by NumPy: L loses ``1e-16 / d²`` to rounding, and d is at least 1e-3. Where
the residual has become small against the one that c was computed from, or two scores are too close
to tell, c is computed again from the residual itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from avalanche_gmc.dictionary.gram import Gram
from avalanche_gmc.pursuit.gram_columns import GramColumns
from avalanche_gmc.pursuit.scoreboard import DEPENDENT, Scoreboard
from avalanche_gmc.pursuit.triangle import Triangle
from avalanche_gmc.pursuit.weights import PickedAtoms

EQUAL_ROWS = 16
"""So few rivals are looked at whether they are the same atom several times."""


TIE = 1e-9
"""Scores this close, relative to the residual, are compared again by the residual itself."""
SHRUNK = 1e-2
"""A residual this small, relative to the one that c was computed from, asks for a new c."""


class GramSweep:
    """One pursuit of the whole target, over the atoms not picked so far.

    :param board: knows which atoms are picked, and breaks ties.
    :param gram: the Gram matrix of its atoms at unit length.
    :param target: D, float64, of unit length.
    :param capacity: the largest number of picks.
    :param stop: the residual norm at which the sweep is over.
    """

    def __init__(
        self, board: Scoreboard, gram: Gram, target: Tensor, capacity: int, *, stop: float
    ) -> None:
        self._board = board
        self._gram = gram
        self._columns = GramColumns(gram, board.dictionary.num_atoms)
        self._target = target
        self._stop = stop
        self._capacity = min(capacity, board.dictionary.dim)
        # L transposed: the column that a pick adds is contiguous.
        self._factor = np.empty((self._capacity, board.dictionary.num_atoms))
        self._distances = np.ones(board.dictionary.num_atoms)
        self._picks: list[int] = []
        self._coordinates: list[float] = []
        self._trace: list[float] = []
        self._scores = gram.correlate(target.numpy())
        self._scores[~board.unpicked.numpy()] = -np.inf
        self._square = self._renewed_at = 1.0
        self._residual, self._residual_of = target, 0
        self._triangle = Triangle(self._capacity)

    @property
    def indices(self) -> Tensor:
        """Of the picks, in picking order: k."""
        return torch.tensor(self._picks, dtype=torch.long)

    @property
    def coordinates(self) -> Tensor:
        """Of the target in the orthonormal basis of the picked atoms: k, float64."""
        return torch.tensor(self._coordinates, dtype=torch.float64)

    @property
    def trace(self) -> Tensor:
        """The residual norm after each pick: k, float64."""
        return torch.tensor(self._trace, dtype=torch.float64)

    @property
    def residual_norm(self) -> float:
        """Relative to the target, with least-squares weights."""
        return self._trace[-1] if self._trace else 1.0

    def run(self, report: Callable[[int, float], None]) -> None:
        """Pick atoms until the residual is spent, the span exhausted or the capacity reached.

        :param report: told from time to time how many more picks there are, and the residual norm.
        """
        told = 0
        while self.residual_norm > self._stop and len(self._picks) < self._capacity:
            pick = self._winner()
            if pick is None:
                break
            if self._distance(pick) <= DEPENDENT**2:
                self._block_dependent(pick)
                continue
            if pick not in self._columns:
                report(len(self._picks) - told, self.residual_norm)
                told = len(self._picks)
            self._take(pick)
        self._board.mark_picked(self.indices)
        report(len(self._picks) - told, self.residual_norm)

    def release_factor(self) -> Triangle:
        """The k×k triangular factor of the picked atoms; the sweep is over."""
        self._extend_triangle()
        self._factor = np.empty((0, 0))
        self._columns = GramColumns(self._gram, 0)
        return self._triangle

    def _winner(self) -> int | None:
        """The atom with the best score; None if there is no candidate."""
        while True:
            scores = self._scores
            pick = int(scores.argmax())
            best = scores[pick]
            if best == -np.inf:
                return None
            lowest = best - TIE * self.residual_norm
            scores[pick] = -np.inf
            tied = scores.max() >= lowest
            scores[pick] = best
            if not tied:
                return pick
            rivals = torch.from_numpy(np.flatnonzero(scores >= lowest))
            rows = self._board.dictionary.rows(rivals[:EQUAL_ROWS])
            if len(rivals) == len(rows) and bool((rows == rows[0]).all()):
                return int(rivals[0])
            if self._residual_of == len(self._picks):
                return self._board.first_best(rivals, self._residual)
            self._renew()

    def _distance(self, pick: int) -> float:
        """The squared distance of an atom from the picked span."""
        return float(self._distances[pick])

    def _block_dependent(self, found: int) -> None:
        """Atoms in the span of the picked ones are no candidates any more.

        :param found: one of them, whatever the rounding of another sum says.
        """
        self._scores[self._distances <= DEPENDENT**2] = -np.inf
        self._scores[found] = -np.inf

    def _take(self, pick: int) -> None:
        """Pick an atom."""
        count = len(self._picks)
        column = self._columns.take(pick, self._factor[:count], self._scores)
        length = math.sqrt(column[pick])
        row = np.multiply(column, 1 / length, out=self._factor[count])
        coordinate = float(self._scores[pick]) / length
        self._scores -= coordinate * row
        self._scores[pick] = -np.inf
        self._distances -= row * row
        self._picks.append(pick)
        self._coordinates.append(coordinate)
        self._square = max(self._square - coordinate**2, 0.0)
        if self._square < (SHRUNK * self._renewed_at) ** 2:
            self._renew()
        self._trace.append(math.sqrt(self._square))

    def _renew(self) -> None:
        """Compute scores and residual norm again, from the residual."""
        self._extend_triangle()
        atoms = PickedAtoms(*self._board.picked(self.indices))
        for _ in range(2):  # once more for the rounding of the first time
            overlap = self._triangle.solve_transposed(atoms.correlate(self._residual))
            self._residual = self._residual - atoms.combine(self._triangle.solve(overlap))
        self._residual_of = len(self._picks)
        scores = self._gram.correlate(self._residual.numpy())
        scores[self._scores == -np.inf] = -np.inf
        self._scores = scores
        self._renewed_at = float(torch.linalg.vector_norm(self._residual))
        self._square = self._renewed_at**2

    def _extend_triangle(self) -> None:
        """Add the columns of the latest picks to the factor of the picked atoms' Gram matrix."""
        new = self._picks[self._triangle.size :]
        if new:
            self._triangle.append(torch.from_numpy(self._factor[: len(self._picks), new]))
