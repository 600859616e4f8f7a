"""One pursuit in fast mode, of last-layer gradients: picks on trial, on inner products alone.

Letters: N atoms, D dimensions, k picks so far, b picks of a round, M candidates, m new ones of
them; S draws, K outputs, H features.

As in :mod:`.sweep`, every round picks b atoms on trial among the M best and scores all atoms anew.
But no basis of dimension D is kept. With A the picked atoms (k×D, never written out) and R their
triangular factor, the overlap of an atom a with the orthonormal basis is ``R⁻ᵀ A a``, and the
residual moves on by ``A R⁻¹ c``, with c the coordinates of the new picks. So a new candidate costs
k·S·(K+H) + k²/2 multiplications instead of k·D, and a candidate that stays costs nothing: the trial
itself computes its overlap with the picks. Everything but the scores is float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import torch
from torch import Tensor

from avalanche_gmc.dictionary import LastLayerDictionary
from avalanche_gmc.pursuit.candidates import longest_trial, most_candidates, picks_on_trial
from avalanche_gmc.pursuit.scoreboard import DEPENDENT, Scoreboard
from avalanche_gmc.pursuit.triangle import Triangle


class Factors:
    """The two factors of some atoms at unit length, in float64.

    :param dictionary: to read atoms from.
    :param norms: N, of its atoms.
    :param capacity: the most atoms.
    """

    def __init__(self, dictionary: LastLayerDictionary, norms: Tensor, capacity: int) -> None:
        self._dictionary, self._norms = dictionary, norms
        draws, _, outputs = dictionary.errors.shape
        features = dictionary.features.shape[2]
        self._errors = torch.empty(draws, capacity, outputs, dtype=torch.float64)
        self._features = torch.empty(draws, capacity, features, dtype=torch.float64)
        self.size = 0

    def put(self, places: Tensor, ids: Tensor) -> None:
        """Read atoms (m) of the dictionary into places (m)."""
        self._errors[:, places] = self._dictionary.errors[:, ids] / self._norms[ids, None]
        self._features[:, places] = self._dictionary.features[:, ids].double()
        self.size = max(self.size, int(places.max()) + 1)

    def take(self, places: Tensor) -> Factors:
        """The atoms at some places, as they are now."""
        some = Factors(self._dictionary, self._norms, 0)
        some._errors, some._features = self._errors[:, places], self._features[:, places]
        some.size = len(places)
        return some

    def inner(self, others: Factors) -> Tensor:
        """Inner products of these atoms (m) with others (M): m×M."""
        total = torch.zeros(self.size, others.size, dtype=torch.float64)
        for e, h, errors, features in zip(*self._filled(), *others._filled(), strict=True):
            total += (e @ errors.T).mul_(h @ features.T)
        return total

    def combine(self, weights: Tensor) -> Tensor:
        """The sum of the atoms with weights: m → D."""
        errors, features = self._filled()
        return ((errors * weights[:, None]).mT @ features).flatten()

    def correlate(self, vector: Tensor) -> Tensor:
        """Inner products of the atoms with a vector: D → m."""
        errors, features = self._filled()
        matrices = vector.view(len(errors), errors.shape[2], -1)
        return (features @ matrices.mT).mul_(errors).sum(dim=(0, 2))

    def _filled(self) -> tuple[Tensor, Tensor]:
        return self._errors[:, : self.size], self._features[:, : self.size]


class GramTrials:
    """One pursuit of the whole target, over the atoms not picked so far.

    :param board: the scores of a :class:`LastLayerDictionary`, on the CPU of this process.
    :param target: D, float64, of unit length.
    :param capacity: the largest number of picks.
    :param stop: the residual norm at which the sweep is over.
    """

    def __init__(self, board: Scoreboard, target: Tensor, capacity: int, *, stop: float) -> None:
        atoms = cast(LastLayerDictionary, board.dictionary)
        capacity = min(capacity, atoms.dim)
        self.indices = torch.empty(0, dtype=torch.long)
        self.coordinates = torch.empty(0, dtype=torch.float64)
        self.trace = torch.empty(0, dtype=torch.float64)
        self._board = board
        self._residual = target
        self._capacity = capacity
        self._stop = stop
        self._trial = longest_trial("fast", capacity)
        self._picked = Factors(atoms, board.norms, capacity)
        self._triangle = Triangle(capacity)
        board.restart(target)
        self._ids, self._floor = board.best(most_candidates("fast", capacity))
        count = len(self._ids)
        self._known = Factors(atoms, board.norms, count)
        self._overlap = torch.empty(count, capacity, dtype=torch.float64)
        self._gram = torch.empty(count, count, dtype=torch.float64)
        self._enter(torch.arange(count))

    @property
    def residual_norm(self) -> float:
        """Relative to the target, with least-squares weights."""
        return float(self.trace[-1]) if len(self.trace) else 1.0

    def run(self, report: Callable[[int, float], None]) -> None:
        """Pick atoms until the residual is spent, the span exhausted or the capacity reached.

        :param report: told, after every round, how many picks it made and what residual is left.
        """
        while self.residual_norm > self._stop and len(self.indices) < self._capacity:
            before = len(self.indices)
            if not self._round():
                return
            report(len(self.indices) - before, self.residual_norm)

    def release_factor(self) -> Triangle:
        """The k×k triangular factor of the picked atoms; the sweep is over."""
        del self._picked, self._known, self._overlap, self._gram
        return self._triangle

    def _enter(self, places: Tensor) -> None:
        """Overlaps and inner products of the candidates that are new at these places."""
        if len(places) == 0:
            return
        count = len(self.indices)
        self._known.put(places, self._ids[places])
        new = self._known.take(places)
        overlap = self._triangle.solve_transposed(self._picked.inner(new)).T
        self._overlap[places, :count] = overlap
        block = new.inner(self._known).addmm_(overlap, self._overlap[:, :count].T, alpha=-1)
        self._gram[places] = block
        self._gram[:, places] = block.T

    def _exchange(self) -> None:
        """Let in the atoms that are now among the best."""
        best, self._floor = self._board.best(len(self._ids))
        coming = best[torch.isin(best, self._ids, invert=True)]
        leaving = torch.isin(self._ids, best, invert=True).nonzero()[: len(coming), 0]
        self._ids[leaving] = coming
        self._enter(leaving)

    def _round(self) -> bool:
        """A round of picks on trial; False if no atom is left."""
        board, count = self._board, len(self.indices)
        if count:
            self._exchange()
        eligible = board.num_eligible
        board.mark_dependent(self._ids[self._gram.diagonal() <= DEPENDENT**2])
        scores = board.scores[self._ids]
        blocked = (scores == -torch.inf).numpy()
        picks, rows = picks_on_trial(
            self._gram.numpy(),
            np.where(blocked, 0.0, scores.double().numpy()),
            blocked,
            self._ids.numpy(),
            limit=min(self._trial, self._capacity - count),
            floor=self._floor,
            tie=board.precision.tie,
            known=None,
        )
        if not picks:
            return 0 < board.num_eligible < eligible
        places, columns = torch.tensor(picks), torch.from_numpy(rows)
        corner = columns[:, places].triu()
        chosen = self._known.take(places)
        added = torch.linalg.solve_triangular(
            corner.T, chosen.correlate(self._residual)[:, None], upper=False
        )[:, 0]
        square = float(torch.linalg.vector_norm(self._residual)) ** 2
        trace = (square - added.square().cumsum(0)).clamp_(min=0.0).sqrt_()
        kept = min(len(picks), int((trace > self._stop).sum()) + 1)
        places, columns, added = places[:kept], columns[:kept], added[:kept]
        above = self._overlap[places, :count].T
        self._triangle.append(torch.cat([above, corner[:kept, :kept]]))
        self._picked.put(torch.arange(count, count + kept), self._ids[places])
        weights = self._triangle.solve(torch.cat([torch.zeros(count).double(), added]))
        self._residual = self._residual - self._picked.combine(weights)
        self.indices = torch.cat([self.indices, self._ids[places]])
        self.coordinates = torch.cat([self.coordinates, added])
        self.trace = torch.cat([self.trace, trace[:kept]])
        board.mark_picked(self._ids[places])
        board.advance(self._residual)
        self._overlap[:, count : count + kept] = columns.T
        self._gram.addmm_(columns.T, columns, alpha=-1)
        return True
