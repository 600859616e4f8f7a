"""One pursuit of a target on inner products alone: a pivoted partial Cholesky of the Gram matrix.

Letters: N atoms, D dimensions, k picks so far, b columns fetched at once.

With G the Gram matrix of the atoms, c their correlations with the residual, and L the columns of
the factor so far (N×k), picking atom p adds the column ``l = (G[:, p] − L L[p]ᵀ) / d`` with
``d² = G[p, p] − ||L[p]||²``, the squared distance of p from the picked span, and c becomes
``c − (c_p / d) l``. So every pick needs one column of G and nothing of dimension D.

Columns are fetched b at a time, for the atoms that a trial among the best ones would pick: one
matrix product instead of b. A column that is not picked soon was fetched in vain, but the scores of
all atoms are exact at every pick, so that a wrong guess never makes a wrong pick.

All of it is float64, by NumPy: L loses ``1e-16 / d²`` to rounding, and d is at least 1e-3. Where
the residual has become small against the one that c was computed from, c is computed again.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from avalanche_gmc.dictionary import Dictionary, LastLayerDictionary
from avalanche_gmc.dictionary.gram import Array, Ids, LastLayerGram
from avalanche_gmc.pursuit.candidates import picks_on_trial
from avalanche_gmc.pursuit.scoreboard import DEPENDENT, Scoreboard
from avalanche_gmc.pursuit.triangle import Triangle
from avalanche_gmc.pursuit.weights import PickedAtoms, refined

CANDIDATES = ((16384, 256), (4096, 128), (0, 64))
"""A trial is made among so many of the best of at least so many atoms."""
FEWEST_COLUMNS, MOST_COLUMNS = 4, 16
"""b: twice as many as were picked of the last ones, within these limits."""
FACTORED = 4
"""Atoms of a small dictionary are written out unless they have this many times as many numbers as
their factors."""
GRAM_BYTES = 2**32
"""The most bytes for L and the atoms in float64: 4 GiB."""
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
        self, board: Scoreboard, gram: LastLayerGram, target: Tensor, capacity: int, *, stop: float
    ) -> None:
        self._board = board
        self._gram = gram
        self._target = target
        self._stop = stop
        self._capacity = min(capacity, board.dictionary.dim)
        # L transposed: the column that a pick adds is contiguous.
        self._factor = np.empty((self._capacity, board.dictionary.num_atoms))
        self._picks: list[int] = []
        self._coordinates: list[float] = []
        self._trace: list[float] = []
        self._columns: dict[int, tuple[int, Array]] = {}
        self._fetched_at = -MOST_COLUMNS // 2
        self._scores = gram.correlate(target.numpy())
        self._scores[~board.unpicked.numpy()] = -np.inf
        self._square = self._renewed_at = 1.0

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
                self._fetch(pick)
            self._take(pick)
        self._board.mark_picked(self.indices)
        report(len(self._picks) - told, self.residual_norm)

    def release_factor(self) -> Triangle:
        """The k×k triangular factor of the picked atoms; the sweep is over."""
        factor = Triangle.of(torch.from_numpy(self._factor[: len(self._picks), self._picks]))
        self._factor = np.empty((0, 0))
        self._columns = {}
        return factor

    def _winner(self) -> int | None:
        """The atom with the best score; None if there is no candidate."""
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
        rows = self._board.dictionary.rows(rivals[:MOST_COLUMNS])
        if len(rivals) == len(rows) and bool((rows == rows[0]).all()):
            return int(rivals[0])
        return self._board.first_best(rivals, self._residual())

    def _distance(self, pick: int) -> float:
        """The squared distance of an atom from the picked span."""
        overlap = self._factor[: len(self._picks), pick]
        return float(1.0 - overlap @ overlap)

    def _block_dependent(self, found: int) -> None:
        """Atoms in the span of the picked ones are no candidates any more.

        :param found: one of them, whatever the rounding of another sum says.
        """
        factor = self._factor[: len(self._picks)]
        distances = 1.0 - np.einsum("kn,kn->n", factor, factor)
        self._scores[distances <= DEPENDENT**2] = -np.inf
        self._scores[found] = -np.inf

    def _fetch(self, pick: int) -> None:
        """Get the column of a pick, and of those that are likely to be picked after it."""
        count = len(self._picks)
        ids = self._guess(pick, count - self._fetched_at)
        self._fetched_at = count
        kept = {id_: self._columns[id_] for id_ in ids.tolist() if id_ in self._columns}
        ids = np.array([id_ for id_ in ids.tolist() if id_ not in kept])
        columns = self._outside(ids, self._gram.columns(ids), slice(None))
        new = {id_: (count, column) for id_, column in zip(ids.tolist(), columns, strict=True)}
        self._columns = kept | new

    def _guess(self, pick: int, lately: int) -> Ids:
        """The next picks among the best atoms, if only these mattered; the first is known.

        :param lately: how many of the last columns were picked.
        """
        count = len(self._scores)
        number = min(count, next(most for least, most in CANDIDATES if count >= least))
        best = np.argpartition(self._scores, -number)[-number:]
        if pick not in best:
            best[0] = pick
        gram = self._outside(best, self._gram.block(best), best)
        limit = min(max(2 * lately, FEWEST_COLUMNS), MOST_COLUMNS)
        never = self._scores[best] == -np.inf
        scores = np.where(never, 0.0, self._scores[best])
        return best[
            picks_on_trial(
                gram, scores, never, best, limit=limit, floor=-np.inf, tie=0.0, known=pick
            )
        ]

    def _outside(self, ids: Ids, columns: Array, others: slice | Ids) -> Array:
        """Inner products of the parts of atoms outside the span, from those of the whole atoms."""
        if self._picks:
            factor = self._factor[: len(self._picks)]
            columns -= factor[:, ids].T @ factor[:, others]
        return columns

    def _take(self, pick: int) -> None:
        """Pick an atom whose column has been fetched."""
        stage, column = self._columns.pop(pick)
        count = len(self._picks)
        if stage < count:
            recent = self._factor[stage:count]
            column = column - recent[:, pick] @ recent
        length = math.sqrt(column[pick])
        row = np.divide(column, length, out=self._factor[count])
        coordinate = float(self._scores[pick]) / length
        self._scores -= coordinate * row
        self._scores[pick] = -np.inf
        self._picks.append(pick)
        self._coordinates.append(coordinate)
        self._square = max(self._square - coordinate**2, 0.0)
        if self._square < (SHRUNK * self._renewed_at) ** 2:
            self._renew()
        self._trace.append(math.sqrt(self._square))

    def _renew(self) -> None:
        """Compute scores and residual norm again, from the residual."""
        residual = self._residual()
        scores = self._gram.correlate(residual.numpy())
        self._scores = np.where(self._scores == -np.inf, -np.inf, scores)
        self._renewed_at = float(torch.linalg.vector_norm(residual))
        self._square = self._renewed_at**2

    def _residual(self) -> Tensor:
        """Target minus the picks with least-squares weights: D, float64."""
        atoms = PickedAtoms(*self._board.picked(self.indices))
        factor = Triangle.of(torch.from_numpy(self._factor[: len(self._picks), self._picks]))
        return self._target - atoms.combine(refined(atoms, factor, self.coordinates, self._target))


def is_factored(atoms: Dictionary) -> bool:
    """Whether the inner products of atoms cost much less than D multiplications."""
    numbers = atoms.nbytes // atoms.dtype.itemsize
    return isinstance(atoms, LastLayerDictionary) and len(atoms) * atoms.dim >= FACTORED * numbers


def gram_for(board: Scoreboard, size: int) -> LastLayerGram | None:
    """The Gram matrix, if ``size`` picks can be made on inner products alone."""
    atoms = board.dictionary
    numbers = atoms.nbytes // atoms.dtype.itemsize + len(atoms) * min(size, atoms.dim)
    here = board.is_whole and atoms.device.type == "cpu"
    if not here or not isinstance(atoms, LastLayerDictionary) or 8 * numbers > GRAM_BYTES:
        return None
    return LastLayerGram(atoms, board.norms.reciprocal().nan_to_num(posinf=0.0))
