"""One pursuit of a target: rounds of picks on trial and their verification.

Letters: N atoms, D dimensions, k picks so far, b picks on trial, M atoms of a pool.

A round takes the M best-scored atoms as a pool, makes b picks inside it, extends the basis by
them, and asks the scoreboard how many of them the whole dictionary would have made.
"""

from __future__ import annotations

import torch
from torch import Tensor

from avalanche_gmc.basis import Basis
from avalanche_gmc.scoreboard import Scoreboard
from avalanche_gmc.speculation import picks_on_trial

FIRST_TRIAL = 16
SMALLEST_TRIAL = 4
LARGEST_TRIAL = {"exact": 64, "fast": 32}
SMALLEST_POOL = 64
POOL_PER_TRIAL = 4


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
        self._trial = FIRST_TRIAL

    @property
    def residual_norm(self) -> float:
        """Relative to the target, with least-squares weights."""
        return float(self.trace[-1]) if len(self.trace) else 1.0

    def run(self) -> None:
        """Pick atoms until the residual is spent, the span exhausted or the capacity reached."""
        self._board.restart(self._residual)
        while self.residual_norm > self._stop and self.basis.size < self.basis.capacity:
            limit = min(self._trial, self.basis.capacity - self.basis.size)
            pool, floor = self._board.best(max(SMALLEST_POOL, POOL_PER_TRIAL * limit))
            if len(pool) == 0:
                return
            self._round(pool, floor, limit)

    def forget_basis(self) -> None:
        """Free the k×D vectors and the k×k factor."""
        self.basis = Basis(0, 0, self._residual.dtype, self._residual.device)

    def _round(self, pool: Tensor, floor: float, limit: int) -> None:
        atoms = self._board.rows(pool)
        overlap = self.basis.overlap(atoms)
        picks = self._speculate(pool, atoms, overlap, limit, floor)
        if len(picks) == 0:
            return
        vectors, columns = self.basis.extension(atoms[picks], overlap[picks])
        if len(vectors) == 0:
            self._board.mark_dependent(pool[picks[:1]])
            return
        self._keep(pool[picks], vectors, columns)

    def _speculate(
        self, pool: Tensor, atoms: Tensor, overlap: Tensor, limit: int, floor: float
    ) -> Tensor:
        """Positions of picks on trial in the pool of atoms (M×D, with their overlap M×k)."""
        precision = self._board.precision
        gram = (atoms @ atoms.T - overlap @ overlap.T).cpu().double()
        inside = (gram.diagonal() <= precision.dependent**2).to(pool.device)
        self._board.mark_dependent(pool[inside])
        picks = picks_on_trial(
            gram.numpy(),
            (atoms @ self._residual.to(atoms)).cpu().double().numpy(),
            rule=self._board.rule,
            limit=limit,
            floor=floor,
            dependent=precision.dependent,
            tie=precision.tie * float(torch.linalg.vector_norm(self._residual)),
        )
        return torch.tensor(picks, dtype=torch.long, device=pool.device)

    def _keep(self, picks: Tensor, vectors: Tensor, columns: Tensor) -> None:
        """Take the trial picks that stand up to the whole dictionary (in fast mode, all)."""
        wide = vectors.cpu().double()
        coefficients = wide @ self._residual
        path = torch.cat([self._residual[None], -coefficients[:, None] * wide]).cumsum_(dim=0)
        trace = torch.linalg.vector_norm(path[1:], dim=1)
        proposed = min(len(vectors), int((trace > self._stop).sum()) + 1)
        picks, vectors, coefficients = picks[:proposed], vectors[:proposed], coefficients[:proposed]
        if self._mode == "exact":
            kept = self._board.verify(path, vectors, coefficients, picks)
            self._adapt(proposed, kept)
        else:
            kept = proposed
            self._board.advance(path[kept], vectors)
            self._trial = LARGEST_TRIAL["fast"]
        self._board.mark_picked(picks[:kept])
        self.basis.append(vectors[:kept], columns[:, :kept])
        self.indices = torch.cat([self.indices, picks[:kept]])
        self.coordinates = torch.cat([self.coordinates, coefficients[:kept]])
        self.trace = torch.cat([self.trace, trace[:kept]])
        self._residual = path[kept]
        self._purify()

    def _adapt(self, proposed: int, kept: int) -> None:
        """Try more picks at once while trials succeed, fewer when they fail."""
        wish = 2 * proposed if kept == proposed else kept + kept // 2
        self._trial = max(SMALLEST_TRIAL, min(wish, LARGEST_TRIAL["exact"]))

    def _purify(self) -> None:
        """Take out of the residual what rounding left in it of the picked atoms."""
        if self.basis.size:
            rest = self.basis.coordinates(self._board.correlations(self.indices))
            self.coordinates = self.coordinates + rest
            self._residual = self._residual - self.basis.combine(rest)
