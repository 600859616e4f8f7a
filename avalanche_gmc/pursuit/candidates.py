"""A few promising atoms, and picks on trial among them.

Letters: M candidates, D dimensions, k picks so far, b picks on trial.

All that a trial needs to know of the candidates is the M×M matrix of inner products of their
components outside the picked span: b picks cost O(b²·M), whatever the dimension. From one round to
the next about half of the candidates stay; for these nothing is computed twice.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from avalanche_gmc.pursuit.basis import Basis
from avalanche_gmc.pursuit.scoreboard import DEPENDENT, Scoreboard

LONGEST_TRIAL = 23
"""In exact mode: with the residual, the dictionary is multiplied with 24 columns."""
FAST_TRIALS = ((0, 8, 47), (2350, 50, 95))
"""In fast mode: from how many picks in all on, one in how many of them, and the most."""
FEWEST_CANDIDATES, MOST_CANDIDATES = 64, 256
CANDIDATES_PER_PICK = 5
"""A trial of more than a fifth of the candidates soon picks what other atoms would do better."""

Array = NDArray[np.float64]


def longest_trial(mode: str, size: int) -> int:
    """The most picks on trial in a round, if there are to be ``size`` of them in all."""
    if mode == "exact":
        return LONGEST_TRIAL
    return max(1, *(min(size // part, most) for least, part, most in FAST_TRIALS if size >= least))


def most_candidates(mode: str, size: int) -> int:
    """M, if there are to be ``size`` picks in all."""
    most = min(MOST_CANDIDATES, 4 * size)
    if mode == "fast":
        most = CANDIDATES_PER_PICK * longest_trial(mode, size)
    return max(FEWEST_CANDIDATES, most)


class Candidates:
    """The best-scored atoms, at unit length.

    :param board: scores of all atoms.
    :param basis: of the picked atoms.
    :param capacity: the largest M.
    """

    def __init__(self, board: Scoreboard, basis: Basis, capacity: int) -> None:
        self._board = board
        self._basis = basis
        self._indices, self._floor = board.best(capacity)
        self._atoms, self._correlations, self._eligible = board.look_up(
            self._indices, self._indices
        )
        self._inner = self._atoms @ self._atoms.T
        self._overlap = self._atoms.new_empty(len(self._atoms), basis.capacity)
        self._followed = 0
        self._is_fresh = basis.size == 0

    def _catch_up(self, known: int | None) -> None:
        """Account for new basis vectors, and let in the atoms that are now among the best.

        :param known: an atom that must be among them.
        """
        start, stop = self._followed, self._basis.size
        self._overlap[:, start:stop] = self._atoms @ self._basis.vectors[start:].T
        self._followed = stop
        best, self._floor = self._board.best(len(self._indices), known)
        coming = best[torch.isin(best, self._indices, invert=True)]
        leaving = torch.isin(self._indices, best, invert=True).nonzero()[: len(coming), 0]
        self._indices[leaving] = coming
        rows, self._correlations, self._eligible = self._board.look_up(coming, self._indices)
        self._atoms[leaving] = rows
        self._overlap[leaving, :stop] = self._basis.overlap(self._atoms[leaving])
        inner = self._atoms[leaving] @ self._atoms.T
        self._inner[leaving] = inner
        self._inner[:, leaving] = inner.T

    def picks(self, limit: int, known: int | None) -> Tensor:
        """Positions among the candidates, first brought up to date, of picks on trial, in order.

        :param limit: the largest b.
        :param known: the first pick, if it is known.
        """
        if not self._is_fresh:
            self._catch_up(known)
        self._is_fresh = False
        overlap = self._overlap[:, : self._followed]
        gram = _wide(self._inner - overlap @ overlap.T)
        inside = gram.diagonal() <= DEPENDENT**2
        where = torch.from_numpy(inside).to(self._indices.device)
        self._board.mark_dependent(self._indices[where])
        picks, _ = picks_on_trial(
            gram,
            _wide(self._correlations),
            ~self._eligible.cpu().numpy() | inside,
            self._indices.cpu().numpy(),
            limit=min(limit, max(1, len(gram) // CANDIDATES_PER_PICK)),
            floor=self._floor,
            tie=self._board.precision.tie,
            known=known,
        )
        return torch.tensor(picks, dtype=torch.long, device=self._indices.device)

    def atoms(self, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Indices (b), atoms (b×D) and their overlap with the basis (b×k) at positions (b)."""
        overlap = self._overlap[positions, : self._followed]
        return self._indices[positions], self._atoms[positions], overlap


def picks_on_trial(
    gram: Array,
    correlations: Array,
    blocked: NDArray[np.bool_],
    indices: NDArray[np.int64],
    *,
    limit: int,
    floor: float,
    tie: float,
    known: int | None,
) -> tuple[list[int], Array]:
    """A pursuit among the candidates, on inner products alone: a pivoted partial Cholesky.

    With G the Gram matrix of the atoms' components outside the span, c their correlations with the
    residual, and L the columns of the factor so far, picking atom p adds the column
    ``l = (G[:, p] − L L[p]ᵀ) / d_p`` with ``d_p² = G[p, p] − ||L[p]||²``, and c becomes
    ``c − (c_p / d_p) l``.

    Stops at ``limit`` picks, when no atom is left outside the span, or when the best score, after
    at least one pick, falls below the ``floor``: another atom may then be better.

    :param gram: G, M×M.
    :param correlations: c, M; overwritten.
    :param blocked: M, atoms that may not be picked.
    :param indices: M, the atoms' places in the dictionary; of equal scores, the lowest wins.
    :returns: the b picks, and the columns l as rows: b×M.
    """
    squares = gram.diagonal().copy()
    columns = np.empty((limit, len(gram)))
    equal = tie * np.abs(correlations).max(initial=0.0)
    correlations[blocked] = -np.inf
    picks: list[int] = []
    while len(picks) < limit:
        pick = int(correlations.argmax())
        best = correlations[pick]
        if best == -np.inf or (picks and best < floor):
            break
        rivals = np.flatnonzero(correlations >= best - equal)
        if len(rivals) > 1:
            pick = int(rivals[np.argmin(indices[rivals])])
        if not picks and known is not None:
            found = np.flatnonzero((indices == known) & (correlations > -np.inf))
            pick = int(found[0]) if len(found) else pick
        length = np.sqrt(squares[pick])
        done = columns[: len(picks)]
        column = columns[len(picks)]
        np.subtract(gram[pick], done[:, pick] @ done, out=column)
        column /= length
        correlations -= correlations[pick] / length * column
        squares -= column * column
        picks.append(pick)
        correlations[pick] = -np.inf
        correlations[squares <= DEPENDENT**2] = -np.inf
    return picks, columns[: len(picks)]


def _wide(tensor: Tensor) -> Array:
    """A float64 copy on the CPU."""
    return np.array(tensor.cpu().numpy(), dtype=np.float64)
