"""Checking picks on trial with a bfloat16 copy of the atoms, without trusting its rounding.

Letters: N atoms, D dimensions, b picks on trial.

Before the first of the picks the scores s_j of all atoms are known. With q_1 … q_b the orthonormal
vectors that the picks add to the span and ``c_i = <q_i, r>``, the score of atom j before pick t is

    s_j − <a_j, Δ_t>   with   Δ_t = Σ_{i<t} c_i q_i.

The inner products with q_i are taken in bfloat16, in less than half of the time. With ã_j and q̃_i
the rounded vectors, the error of the change is at most

    ||a_j − ã_j||·||Δ_t|| + ||ã_j||·||Σ_{i<t} c_i (q_i − q̃_i)|| + rounding of the products.

That is a small part of the best score, because Δ_t is short: its length is that of a few
coefficients and not that of the residual. An atom whose score stays below that of the pick,
whatever the error, is out of question. The others are scored again in the precision of the atoms,
and decided on as if all had been. (Only the rounding of long sums in float32 is bounded as that of
random signs, sixteen times over; its worst case grows with D.)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from avalanche_gmc.dictionary import Dictionary
from avalanche_gmc.pursuit.scoreboard import Scoreboard

COPY_ROWS = 1024
COPY_BYTES = 2**31
"""The largest bfloat16 copy of a dictionary: 2 GiB."""
OUTPUT_ROUNDING = 1 / 255
"""Products come out as bfloat16: half of a unit in the eighth digit, and a little more."""
SUM_ROUNDING = 16 * 2**-24
"""Times √D: the rounding of sums in float32, as of random signs, sixteen times over."""
MOST_IN_QUESTION = 1 / 16
"""If more than this part of the atoms is in question, all are scored again."""


class RoundedAtoms:
    """A bfloat16 copy of a scoreboard's atoms at unit length.

    :param board: of atoms in the memory of this process.
    """

    def __init__(self, board: Scoreboard) -> None:
        atoms, scale = board.dictionary, board.inverse_norms
        self._board = board
        self.copy = torch.empty(atoms.num_atoms, atoms.dim, dtype=torch.bfloat16)
        self._errors = torch.empty(atoms.num_atoms)
        for rows in torch.split(torch.arange(atoms.num_atoms), COPY_ROWS):
            block = atoms.rows(rows) * scale[rows, None]
            rounded = self.copy[rows[0] : rows[-1] + 1].copy_(block)
            self._errors[rows] = torch.linalg.vector_norm(block.sub_(rounded), dim=1)

    def verify(
        self, path: Tensor, basis: Tensor, coefficients: Tensor, picks: Tensor, trusted: int
    ) -> tuple[int, int | None]:
        """As :meth:`.Scoreboard.verify`, whose scores must be those before the first pick."""
        board = self._board
        tie = board.precision.tie * float(torch.linalg.vector_norm(path[0]))
        residuals = path[: len(picks)].to(basis)
        highest = self._highest(basis, coefficients)
        own = board.look_up(picks, picks).rows
        reached = (own * residuals).sum(dim=1) - 2 * tie
        open_ = (highest >= reached[:, None])[trusted:].any(dim=0)
        open_[picks] = True
        question = open_.nonzero()[:, 0]
        if len(question) > max(MOST_IN_QUESTION * len(open_), 4 * len(picks)):
            return board.verify(path, basis, coefficients, picks, trusted)
        scores = residuals.new_full((len(picks), len(open_)), -torch.inf)
        exact = residuals @ board.look_up(question, question).rows.T
        scores[:, question] = exact.masked_fill(board.scores[question] == -torch.inf, -torch.inf)
        accepted, instead = board.count_agreeing(scores.T, path, picks, trusted)
        board.advance(path[accepted])
        return accepted, instead

    def _highest(self, basis: Tensor, coefficients: Tensor) -> Tensor:
        """What the scores before each pick can be at most: b×N; −inf for atoms that cannot be.

        :param basis: b×D, q_1 … q_b.
        :param coefficients: b, float64, c_1 … c_b.
        """
        narrow = basis[:-1].bfloat16()
        lost = ((basis[:-1] - narrow) * coefficients[:-1, None].to(basis)).cumsum(dim=0)
        # The copy first: torch takes twice as long for the product the other way round.
        terms = (self.copy @ narrow.T).T.float() * -coefficients[:-1, None].to(basis)
        sizes = coefficients[:-1].abs().cumsum(0).float()[:, None]
        lengths = coefficients[:-1].square().cumsum(0).sqrt().float()[:, None]
        high = terms.abs().cumsum_(dim=0).mul_(OUTPUT_ROUNDING)
        high += terms.cumsum_(dim=0)
        high += lengths * self._errors
        high += (1 + self._errors) * torch.linalg.vector_norm(lost, dim=1, keepdim=True)
        high += sizes * (SUM_ROUNDING * math.sqrt(basis.shape[1]))
        return torch.cat([torch.zeros_like(high[:1]), high]) + self._board.scores


def can_round(atoms: Dictionary) -> bool:
    """Whether scoring from a bfloat16 copy is possible and saves time."""
    bytes_of_copy = 2 * atoms.num_atoms * atoms.dim
    return (
        atoms.dtype == torch.float32
        and atoms.device.type == "cpu"
        and bytes_of_copy < min(atoms.nbytes, COPY_BYTES)
        and has_fast_bfloat16()
    )


def has_fast_bfloat16() -> bool:
    """Whether the CPU multiplies bfloat16 numbers by itself, and not through float32."""
    asks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, ask, bool)() for ask in asks)
