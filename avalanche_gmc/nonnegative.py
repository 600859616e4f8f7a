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

from avalanche_gmc.triangle import Triangle

PATIENCE = 3
"""Full exchanges allowed without fewer violations before falling back to single ones."""
FEASIBILITY = 1e-10
"""Violations below this, relative to the largest weight or moment, are rounding."""


def nonnegative_least_squares(gram: Tensor | Triangle, moment: Tensor, start: Tensor) -> Tensor:
    """The minimiser of ``½ xᵀ A x − bᵀ x`` over x ≥ 0.

    :param gram: A, n×n, positive definite, float64; or its upper half.
    :param moment: b, n, float64.
    :param start: n; its positive entries are the first guess of the free variables.
    :returns: n, float64; zero exactly where the constraint is active.
    """
    gram = gram if isinstance(gram, Triangle) else Triangle.of(gram)
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


def _solve_free(gram: Triangle, moment: Tensor, free: Tensor) -> tuple[Tensor, Tensor]:
    """The unconstrained minimiser over the free variables, and the slope at it: n and n."""
    solution, slope = torch.zeros_like(moment), -moment
    index = free.nonzero()[:, 0]
    if len(index):
        factor = cholesky(gram, index)
        # Once more for the rounding of the first time.
        for _ in range(2):
            solution[index] -= factor.solve(factor.solve_transposed(slope[index]))
            slope = gram.symmetric_product(solution) - moment
    return solution, slope


def _violations(solution: Tensor, slope: Tensor, free: Tensor, moment: Tensor) -> Tensor:
    """Free variables below zero, and zero variables that would rather be positive."""
    tiny_weight = FEASIBILITY * float(solution.abs().max())
    tiny_slope = FEASIBILITY * float(moment.abs().max())
    return torch.where(free, solution < -tiny_weight, slope < -tiny_slope)


def cholesky(gram: Triangle, index: Tensor | None = None) -> Triangle:
    """The factor R, of the nearest matrix that has one if rounding left this one without.

    :param index: the rows and columns to factorise, ascending; None is all of them.
    """
    if index is None:
        index = torch.arange(gram.size)
    jitter = 0.0
    while True:
        factor = gram.principal(index)
        factor.add_to_diagonal(jitter)
        if factor.gram_to_factor():
            return factor
        jitter = max(10 * jitter, 1e-15 * gram.largest_diagonal())
