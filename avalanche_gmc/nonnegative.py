"""Least squares with non-negative weights, by block principal pivoting.

Letters: n variables, F the free (positive) ones.

Kim and Park's method (SIAM J. Sci. Comput. 2011): guess which variables are zero, solve for the
rest, exchange all variables that violate optimality at once; when that stops helping, exchange only
the last of them, which ends after finitely many steps. One Cholesky factorisation per exchange,
and a handful of exchanges, where an active-set method moves one variable at a time.
"""

from __future__ import annotations

import torch
from torch import Tensor

PATIENCE = 3
"""Full exchanges allowed without fewer violations before falling back to single ones."""
FEASIBILITY = 1e-10
"""Violations below this, relative to the largest weight or moment, are rounding."""


def nonnegative_least_squares(gram: Tensor, moment: Tensor, start: Tensor) -> Tensor:
    """The minimiser of ``½ xᵀ A x − bᵀ x`` over x ≥ 0.

    :param gram: A, n×n, positive definite, float64.
    :param moment: b, n, float64.
    :param start: n; its positive entries are the first guess of the free variables.
    :returns: n, float64; zero exactly where the constraint is active.
    """
    free = start > 0
    fewest, patience = len(start) + 1, PATIENCE
    while True:
        solution, slope = _solve_free(gram, moment, free)
        violated = _violations(solution, slope, free, moment)
        count = int(violated.sum())
        if count == 0:
            return solution.clamp_(min=0.0)
        if count < fewest:
            fewest, patience = count, PATIENCE
        elif patience > 0:
            patience -= 1
        else:
            last = violated.nonzero()[-1]
            violated = torch.zeros_like(free)
            violated[last] = True
        free = free ^ violated


def _solve_free(gram: Tensor, moment: Tensor, free: Tensor) -> tuple[Tensor, Tensor]:
    """The unconstrained minimiser over the free variables, and the slope at it: n and n."""
    solution = torch.zeros_like(moment)
    index = free.nonzero()[:, 0]
    if len(index):
        system = gram if len(index) == len(moment) else gram[index][:, index]
        factor = _cholesky(system)
        part = torch.cholesky_solve(moment[index, None], factor)
        part += torch.cholesky_solve(moment[index, None] - system @ part, factor)
        solution[index] = part[:, 0]
    return solution, gram @ solution - moment


def _violations(solution: Tensor, slope: Tensor, free: Tensor, moment: Tensor) -> Tensor:
    """Free variables below zero, and zero variables that would rather be positive."""
    tiny_weight = FEASIBILITY * float(solution.abs().max())
    tiny_slope = FEASIBILITY * float(moment.abs().max())
    return torch.where(free, solution < -tiny_weight, slope < -tiny_slope)


def _cholesky(gram: Tensor) -> Tensor:
    """The lower factor, of the nearest matrix that has one if rounding left this one without."""
    jitter = 0.0
    while True:
        factor: Tensor
        factor, failed = torch.linalg.cholesky_ex(gram)
        if failed == 0:
            return factor
        jitter = max(10 * jitter, 1e-15 * float(gram.diagonal().max()))
        gram = gram + jitter * torch.eye(len(gram), dtype=gram.dtype)
