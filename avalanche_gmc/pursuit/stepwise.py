"""Picks found one after the other, each by scoring all atoms: the plain loop.

Letters: N atoms, D dimensions, k vectors of the basis, b picks so far.

Where a product of the dictionary with one vector is cheap, because the dictionary is small or has
structure, or where picks on trial among a few candidates are mostly wrong, nothing beats it. Two
ways to score:

- in the precision of the atoms: the picks are right;
- from a bfloat16 copy of the atoms, the best few again in the precision of the atoms: a third of
  the time on machines that calculate with bfloat16, and nearly always right. The picks are a guess
  that has to be verified.
"""

from __future__ import annotations

import torch
from torch import Tensor

from avalanche_gmc.pursuit.basis import Basis
from avalanche_gmc.pursuit.scoreboard import DEPENDENT, Scoreboard

RESCORED = 32
"""How many of the best atoms by a rounded score are scored again."""
FAR = 0.5
"""An atom whose part outside the span is at least this long needs one pass of Gram–Schmidt only."""
ROUNDED_BYTES = 2**31
"""The largest bfloat16 copy of a dictionary: 2 GiB."""
COPY_ROWS = 1024


class Stepwise:
    """Makes picks one after the other.

    :param board: scores of all atoms, which are in this process.
    :param basis: of the picked atoms.
    """

    def __init__(self, board: Scoreboard, basis: Basis) -> None:
        self._board = board
        self._basis = basis
        self._rounded: Tensor | None = None

    def picks(self, residual: Tensor, limit: int, stop: float, *, rounded: bool) -> list[int]:
        """The next picks, at most ``limit``; fewer if a tie has to be broken first.

        :param residual: D, float64, that the scores of the board are of.
        :param stop: the residual norm at which to stop.
        :param rounded: whether to score from the bfloat16 copy.
        """
        board = self._board
        scores = board.scores
        penalty = torch.where(scores == -torch.inf, scores, 0.0)
        near = self._basis.vectors.new_empty(limit, len(residual))
        length = float(torch.linalg.vector_norm(residual))
        picks: list[int] = []
        while len(picks) < limit and length > stop:
            best, where = scores.max(dim=0)
            score, pick = best.item(), int(where)
            if score == -torch.inf:
                break
            scores[pick] = -torch.inf
            if not rounded and scores.max().item() >= score - board.precision.tie * length:
                if picks:
                    break
                scores[pick] = score
                pick = board.winner(scores, residual) or 0
                scores[pick] = -torch.inf
            vector, distance = self._outside(pick, near[: len(picks)])
            if distance <= DEPENDENT:
                if rounded and picks:
                    break
                board.mark_dependent(torch.tensor([pick]))
                penalty[pick] = -torch.inf
                continue
            near[len(picks)] = vector
            wide = vector.double()
            coefficient = float(wide @ residual)
            residual = residual - coefficient * wide
            length = max(length**2 - coefficient**2, 0.0) ** 0.5
            picks.append(pick)
            penalty[pick] = -torch.inf
            if len(picks) < limit:
                scores = self._scores(residual, penalty, rounded=rounded)
        return picks

    def _outside(self, pick: int, near: Tensor) -> tuple[Tensor, float]:
        """The part of an atom outside the span of the basis and of further vectors (b×D): its
        direction (D) and its length."""
        board = self._board
        index = torch.tensor([pick], device=near.device)
        vector = board.dictionary.rows(index)[0] * board.inverse_norms[pick]
        length = 1.0
        for _ in range(2):
            for basis in (self._basis.vectors, near):
                if len(basis):
                    vector = torch.addmv(vector, basis.T, basis @ vector, alpha=-1)
            distance = torch.linalg.vector_norm(vector).item()
            if distance == 0.0:
                return vector, 0.0
            vector = vector / distance
            length *= distance
            if distance > FAR:
                break
        return vector, length

    def _scores(self, residual: Tensor, penalty: Tensor, *, rounded: bool) -> Tensor:
        board = self._board
        if not rounded:
            correlations = board.dictionary.correlate(residual)
            return torch.addcmul(penalty, correlations, board.inverse_norms)
        vector = residual.to(penalty)
        # A one-column matrix: torch's bfloat16 matrix–vector product is much slower.
        scores = (self._copy() @ vector.bfloat16()[:, None])[:, 0].float().add_(penalty)
        best = scores.topk(min(RESCORED, len(scores))).indices
        again = board.dictionary.rows(best) @ vector * board.inverse_norms[best]
        scores[best] = again + penalty[best]
        return scores

    def _copy(self) -> Tensor:
        """The atoms at unit length in bfloat16: N×D."""
        if self._rounded is None:
            atoms, norms = self._board.dictionary, self._board.inverse_norms
            copy = torch.empty(
                atoms.num_atoms, atoms.dim, dtype=torch.bfloat16, device=atoms.device
            )
            for start in range(0, atoms.num_atoms, COPY_ROWS):
                rows = torch.arange(
                    start, min(start + COPY_ROWS, atoms.num_atoms), device=atoms.device
                )
                copy[rows] = (atoms.rows(rows) * norms[rows, None]).bfloat16()
            self._rounded = copy
        return self._rounded


def can_round(board: Scoreboard) -> bool:
    """Whether scoring from a bfloat16 copy is possible and saves time."""
    atoms = board.dictionary
    bytes_of_copy = 2 * atoms.num_atoms * atoms.dim
    return (
        atoms.dtype == torch.float32
        and bytes_of_copy < min(atoms.nbytes, ROUNDED_BYTES)
        and has_fast_bfloat16(atoms.device)
    )


def has_fast_bfloat16(device: torch.device) -> bool:
    """Whether a device multiplies bfloat16 numbers by itself, rather than by way of float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    asks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return device.type == "cpu" and any(getattr(torch.cpu, ask, bool)() for ask in asks)
