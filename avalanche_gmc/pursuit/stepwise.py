"""Picks found one after the other, each by scoring all atoms: the plain loop.

Letters: N atoms, D dimensions, k vectors of the basis, b picks so far.

Where a product of the dictionary with one vector is cheap, because the dictionary is small, or
where picks on trial among a few candidates are mostly wrong, nothing beats it. Two ways to score:

- in the precision of the atoms: the picks are right. Everything is NumPy's, whose matrix–vector
  products were two to four times as fast as torch's on the machine that was tried, and torch has
  one thread meanwhile: the threads of two libraries would slow each other down.
- from a bfloat16 copy of the atoms, the best few again in the precision of the atoms: a third of
  the time on machines that calculate with bfloat16, and nearly always right. The picks are a guess
  that has to be verified. Products are torch's here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from avalanche_gmc.dictionary import DenseDictionary, Dictionary, ShardedDictionary
from avalanche_gmc.pursuit.basis import Basis
from avalanche_gmc.pursuit.scoreboard import DEPENDENT, Scoreboard

Array = NDArray[Any]

SMALL_BYTES = 2**25
"""Up to 32 MiB of dense atoms, scoring all of them costs less than a round of trials."""
RESCORED = 32
"""How many of the best atoms by a rounded score are scored again."""
FAR = 0.5
"""An atom whose part outside the span is at least this long needs one pass of Gram–Schmidt only."""


class Steps(NamedTuple):
    """What a few picks add to the basis.

    :param picks: b, indices.
    :param vectors: b×D, orthonormal.
    :param columns: (k+b)×b, float64: their columns of the triangular factor R.
    """

    picks: Tensor
    vectors: Tensor
    columns: Tensor


class Stepwise:
    """Makes picks one after the other, on the CPU only.

    :param board: scores of all atoms, which are in this process.
    :param basis: of the picked atoms.
    :param copy: to score from a bfloat16 copy: N×D, atoms of unit length.
    """

    def __init__(self, board: Scoreboard, basis: Basis, *, copy: Tensor | None = None) -> None:
        self.rounded = copy is not None
        self._copy = copy
        self._board = board
        self._basis = basis
        self._inverse_norms = board.inverse_norms.cpu().numpy()
        self._atoms: Array | None = None
        if isinstance(board.dictionary, DenseDictionary) and board.dictionary.device.type == "cpu":
            self._atoms = board.dictionary.atoms.numpy()

    def picks(self, residual: Tensor, limit: int, stop: float) -> Steps:
        """The next picks, at most ``limit``; fewer if a tie has to be broken first.

        :param residual: D, float64, that the scores of the board are of.
        :param stop: the residual norm at which to stop.
        """
        board, size = self._board, self._basis.size
        scores = board.scores.numpy()
        penalty = np.where(scores == -np.inf, scores, scores.dtype.type(0))
        left = residual.numpy().copy()
        span = self._basis.room(limit).numpy()
        columns = np.zeros((size + limit, limit))
        length = float(np.sqrt(left @ left))
        picks: list[int] = []
        while len(picks) < limit and length > stop:
            pick = self._winner(scores, left, length, may_tie=bool(picks))
            if pick is None:
                break
            scores[pick] = -np.inf
            count = size + len(picks)
            vector, overlap, distance = self._outside(self._row(pick), span[:count])
            if distance <= DEPENDENT:
                if self.rounded and picks:
                    break
                board.mark_dependent(torch.tensor([pick]))
                penalty[pick] = -np.inf
                continue
            span[count] = vector
            columns[:count, len(picks)] = overlap
            columns[count, len(picks)] = distance
            coefficient = float(vector @ left)
            left -= coefficient * vector
            length = max(length**2 - coefficient**2, 0.0) ** 0.5
            picks.append(pick)
            penalty[pick] = -np.inf
            if len(picks) < limit:
                scores = self._scores(left)
                scores += penalty
        count = len(picks)
        return Steps(
            torch.tensor(picks, dtype=torch.long),
            torch.from_numpy(span[size : size + count]),
            torch.from_numpy(columns[: size + count, :count]),
        )

    def _winner(
        self, scores: Array, residual: Array, length: float, *, may_tie: bool
    ) -> int | None:
        """The atom with the best score; None if there is no candidate, or if the best are as good
        as equal and ``may_tie``: the residual is then to be cleaned of rounding first."""
        pick = int(scores.argmax())
        score = scores[pick]
        if score == -np.inf or self.rounded:
            return None if score == -np.inf else pick
        scores[pick] = -np.inf
        tie = scores.max() >= score - self._board.precision.tie * length
        scores[pick] = score
        if tie and may_tie:
            return None
        if tie:
            return self._board.winner(torch.from_numpy(scores), torch.from_numpy(residual))
        return pick

    def _row(self, index: int) -> Array:
        """An atom at unit length: D."""
        if self._atoms is not None:
            row = self._atoms[index]
        else:
            row = self._board.dictionary.rows(torch.tensor([index]))[0].numpy()
        return np.asarray(row * self._inverse_norms[index])

    def _outside(self, atom: Array, span: Array) -> tuple[Array, Array, float]:
        """The part of an atom (D, of unit length) outside the span of orthonormal vectors (k×D).

        Gram–Schmidt, twice where the atom is close to the span.

        :returns: its direction (D), the atom's overlap with the vectors (k), and its length.
        """
        vector, length = atom, 1.0
        total = np.zeros(len(span))
        for _ in range(2):
            if len(span):
                overlap = self._times(span, vector)
                vector = vector - self._times(span.T, overlap)
                total += length * overlap
            distance = math.sqrt(float(vector @ vector))
            if distance == 0.0:
                return vector, total, 0.0
            vector *= vector.dtype.type(1 / distance)
            length *= distance
            if distance > FAR:
                break
        return vector, total, length

    def _times(self, matrix: Array, vector: Array) -> Array:
        """A matrix times a vector, by the library that does the other products."""
        if self.rounded:
            return torch.mv(torch.from_numpy(matrix), torch.from_numpy(vector)).numpy()
        return np.asarray(matrix @ vector)

    def _scores(self, residual: Array) -> Array:
        """Of all atoms: N."""
        if self._copy is None:
            vector = residual.astype(self._inverse_norms.dtype)
            scores = self._board.dictionary.correlate_numpy(vector)
            scores *= self._inverse_norms
            return scores
        board = self._board
        column = torch.from_numpy(residual).to(board.inverse_norms)
        # A one-column matrix: torch's bfloat16 matrix–vector product is much slower.
        rough = (self._copy @ column.bfloat16()[:, None])[:, 0].float()
        best = rough.topk(min(RESCORED, len(rough))).indices
        rough[best] = board.dictionary.rows(best) @ column * board.inverse_norms[best]
        return rough.numpy()


def is_small(atoms: Dictionary) -> bool:
    """Whether scoring all atoms against one vector is cheap."""
    return atoms.num_atoms * atoms.dim * atoms.dtype.itemsize <= SMALL_BYTES


def is_light(atoms: Dictionary) -> bool:
    """Whether picks are best made one by one: a small dictionary on the CPU of this process."""
    whole = not isinstance(atoms, ShardedDictionary)
    return whole and is_small(atoms) and atoms.device.type == "cpu"


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for torch inside the block.

    After an operation with several threads they wait for the next one, and keep the cores busy for
    milliseconds: time in which NumPy's threads are slow.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
