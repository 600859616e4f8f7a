"""Two numbers that show whether a model has the same parameters as before.

Processors round random numbers differently, so a checksum of all bits would not do.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from avalanche_gmc.initialization import named_tensors

TOLERANCE = 1e-4
"""Relative to the norm of all numbers: far above rounding, far below any other draw."""


def checksum(model: nn.Module) -> Tensor:
    """A weighted sum of all numbers of a model and the sum of their squares: 2, float64."""
    found = torch.zeros(2, dtype=torch.float64)
    for tensor in named_tensors(model).values():
        if tensor.is_floating_point():
            for part in torch.split(tensor.detach().flatten(), 2**20):
                wide = part.cpu().double()
                found[0] += torch.linspace(1, 2, len(wide), dtype=torch.float64) @ wide
                found[1] += wide @ wide
    return found


def same_checksum(one: Tensor, other: Tensor) -> bool:
    """Whether two checksums are of the same draw."""
    squares = float(other[1])
    return bool(
        abs(one[0] - other[0]) <= TOLERANCE * squares**0.5
        and abs(one[1] - other[1]) <= TOLERANCE * squares
    )
