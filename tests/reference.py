"""Slow, independent implementations that the fast ones are compared with."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]


def naive_pursuit(
    atoms: Tensor, target: Tensor, size: int, *, rule: str = "omp", dependent: float = 1e-3
) -> tuple[list[list[int]], list[float]]:
    """Picks of every sweep, and the relative residual after every pick.

    The plain loop in float64: least squares is solved anew after every pick, and an atom's distance
    from the picked span is measured by least squares as well. Of equal scores, the first wins.
    """
    matrix, goal = atoms.double().numpy(), target.double().numpy()
    norms = np.linalg.norm(matrix, axis=1)
    unpicked = norms > 0
    sweeps: list[list[int]] = []
    trace: list[float] = []
    while sum(map(len, sweeps)) < min(size, int((norms > 0).sum())):
        sweep: list[int] = []
        sweeps.append(sweep)
        eligible = unpicked.copy()
        residual = goal
        while eligible.any() and sum(map(len, sweeps)) < size:
            distances = np.linalg.norm(matrix - _project(matrix, matrix[sweep]), axis=1)
            eligible &= distances > dependent * norms
            if not eligible.any():
                break
            lengths = norms if rule == "omp" else distances
            scores = np.full(len(matrix), -np.inf)
            scores[eligible] = (matrix @ residual)[eligible] / lengths[eligible]
            equal = scores >= scores.max() - 1e-10 * np.linalg.norm(residual)
            sweep.append(int(equal.argmax()))
            unpicked[sweep[-1]] = eligible[sweep[-1]] = False
            weights = np.linalg.lstsq(matrix[sweep].T, goal, rcond=None)[0]
            residual = goal - weights @ matrix[sweep]
            trace.append(float(np.linalg.norm(residual) / np.linalg.norm(goal)))
            if trace[-1] <= 1e-13:
                break
    return sweeps, trace


def _project(vectors: Array, span: Array) -> Array:
    """The components of vectors (m×D) in the span of the rows of another matrix (k×D)."""
    if len(span) == 0:
        return np.zeros_like(vectors)
    return (np.linalg.lstsq(span.T, vectors.T, rcond=None)[0].T) @ span


def dense_last_layer(errors: Tensor, features: Tensor) -> Tensor:
    """The atoms of a last-layer dictionary, one outer product at a time: N×D."""
    draws, count = errors.shape[:2]
    rows = [
        torch.cat([torch.outer(errors[s, n], features[s, n]).flatten() for s in range(draws)])
        for n in range(count)
    ]
    return torch.stack(rows)
