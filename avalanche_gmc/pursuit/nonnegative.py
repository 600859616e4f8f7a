"""Least squares with non-negative weights, by block principal pivoting.

Letters: n variables, F the free (positive) ones.

Kim and Park's method (SIAM J. Sci. Comput. 2011): guess which variables are zero, solve for the
rest, exchange all variables that violate optimality at once; when that stops helping, exchange only
the last of them, which ends after finitely many steps. One linear system per exchange, and a
handful of exchanges, where an active-set method moves one variable at a time.

The system is solved in one of two ways: by a Cholesky factorisation for the free variables, or, if
the whole matrix comes as its factor R and only a few variables are zero, from R by a system of the
size of these few. The latter takes no second n×n matrix and n² operations for each of them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from avalanche_gmc.pursuit.triangle import Triangle

PATIENCE = 3
"""Full exchanges allowed without fewer violations before falling back to single ones."""
MOST_ZERO = 1 / 2
"""Share of variables, zero at some time, beyond which their rows of R⁻¹ outweigh R itself."""
BLOCK = 512
FEASIBILITY = 1e-10
"""Violations below this, relative to the largest weight or moment, are rounding."""


def nonnegative_least_squares(gram: Tensor | Triangle, moment: Tensor, start: Tensor) -> Tensor:
    """The minimiser of ``½ xᵀ A x − bᵀ x`` over x ≥ 0.

    :param gram: A, n×n, positive definite, float64; or its upper half.
    :param moment: b, n, float64.
    :param start: n; its positive entries are the first guess of the free variables.
    :returns: n, float64; zero exactly where the constraint is active.
    """
    upper = gram if isinstance(gram, Triangle) else Triangle.of(gram)
    return _pivot(lambda free: _solve_free(upper, moment, free), moment, start)


def nonnegative_refit(factor: Triangle, weights: Tensor) -> Tensor:
    """The non-negative least-squares weights, from the unconstrained ones.

    :param factor: R, n×n, of the atoms' Gram matrix ``RᵀR``; it is used up.
    :param weights: n, float64, the least-squares weights.
    :returns: n, float64; zero exactly where the constraint is active.
    """
    system = _FactorSystem(factor, weights)
    return _pivot(system.solve, system.moment, weights)


def _pivot(
    solve: Callable[[Tensor], tuple[Tensor, Tensor]], moment: Tensor, start: Tensor
) -> Tensor:
    """Exchange free and zero variables until none violates optimality.

    :param solve: the minimiser over the free variables and the slope at it, from their mask.
    """
    free = start > 0
    fewest, patience = len(start) + 1, PATIENCE
    while True:
        solution, slope = solve(free)
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


class _FactorSystem:
    """Least squares with some variables held at zero, from the factor R of all of them.

    With w the unconstrained weights, A = RᵀR and E the unit vectors of the zero variables, the
    minimiser is ``w − A⁻¹ E λ`` where ``(Eᵀ A⁻¹ E) λ = Eᵀ w``, and the slope at it is ``−E λ``. The
    rows of R⁻¹ that this takes are kept: later exchanges only add those of new zero variables.
    """

    def __init__(self, factor: Triangle, weights: Tensor) -> None:
        self.moment = factor.gram_product(weights)
        self._factor = factor
        self._weights = weights
        self._rows: list[Tensor] = []
        self._inner = torch.zeros(0, 0, dtype=torch.float64)
        self._places = torch.full((len(weights),), -1)
        self._is_gram = False

    def solve(self, free: Tensor) -> tuple[Tensor, Tensor]:
        """The minimiser over the free variables, and the slope at it: n and n."""
        zero = (~free).nonzero()[:, 0]
        unknown = zero[self._places[zero] < 0]
        if not self._is_gram and len(self._inner) + len(unknown) > MOST_ZERO * len(free):
            self._rows, self._is_gram = [], True
            self._factor.factor_to_gram()
        if self._is_gram:
            return _solve_free(self._factor, self.moment, free)
        self._learn(unknown)
        places = self._places[zero]
        lower = _lower_factor(self._inner[places][:, places])
        solution, slope = self._weights.clone(), torch.zeros_like(self._weights)
        # Once more for the rounding of the first time.
        for _ in range(2):
            price = torch.cholesky_solve(solution[zero, None], lower)[:, 0]
            slope[zero] -= price
            solution -= self._factor.solve(self._combine(places, price))
        solution[zero] = 0.0
        return solution, slope

    def _combine(self, places: Tensor, prices: Tensor) -> Tensor:
        """The weighted sum of some of the rows: n."""
        spread = torch.zeros(len(self._inner), dtype=torch.float64)
        spread[places] = prices
        parts = zip(
            torch.split(spread, [len(rows) for rows in self._rows]), self._rows, strict=True
        )
        return sum((part @ rows for part, rows in parts), torch.zeros_like(self._weights))

    def _learn(self, index: Tensor) -> None:
        """Add the rows of R⁻¹ of new zero variables."""
        for part in torch.split(index, BLOCK) if len(index) else ():
            rows = self._factor.inverse_rows(part)
            self._places[part] = len(self._inner) + torch.arange(len(part))
            across = torch.cat([rows[:, :0].T, *(known @ rows.T for known in self._rows)])
            above = torch.cat([self._inner, across], dim=1)
            self._inner = torch.cat([above, torch.cat([across.T, rows @ rows.T], dim=1)])
            self._rows.append(rows)


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


def _lower_factor(matrix: Tensor) -> Tensor:
    """The lower Cholesky factor of a small matrix, made definite if rounding left it otherwise."""
    jitter = 0.0
    while True:
        factor: Tensor
        factor, failed = torch.linalg.cholesky_ex(matrix)
        if failed == 0:
            return factor
        jitter = max(10 * jitter, 1e-15 * float(matrix.diagonal().max()))
        matrix = matrix + jitter * torch.eye(len(matrix), dtype=matrix.dtype)
