"""Least squares with non-negative weights, by block principal pivoting.

Letters: n variables, F the free (positive) ones.

Minimise ``f(x) = ½ xᵀ A x − bᵀ x`` over x ≥ 0. At the solution, with slope ``s = A x − b``,

    x_i > 0 and s_i = 0,   or   x_i = 0 and s_i ≥ 0,

each up to ``TOLERANCE`` times the largest weight or moment. Kim and Park's method (SIAM J. Sci.
Comput. 2011): guess which variables are zero, solve for the rest, exchange all variables that
violate these conditions at once. That takes a handful of linear systems, where an active-set method
takes one for every variable that changes. It may cycle, so it ends as soon as the number of
violations has not fallen for ``PATIENCE`` exchanges. Then ``GRADIENT_STEPS`` accelerated projected
gradient steps (Beck and Teboulle 2009, restarted as by O'Donoghue and Candès 2015) give a better
first guess for the pivoting. If that fails as well, their point is returned: x ≥ 0, with an f no
larger than at the start.

A system is solved in one of two ways: by a Cholesky factorisation for the free variables, or, if
the whole matrix comes as its factor R and only a few variables are zero, from R by a system of the
size of these few. The latter takes no second n×n matrix and n² operations for each of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from avalanche_gmc.pursuit.triangle import Triangle

PATIENCE = 5
GRADIENT_STEPS = 300
POWER_STEPS = 20
MOST_ZERO = 1 / 2
"""The part of the variables, once zero, beyond which their rows of R⁻¹ outweigh R itself."""
BLOCK = 512
TOLERANCE = 1e-10
"""Violations below this, relative to the largest weight or moment, are rounding."""
MOST_JITTERS = 30


def nonnegative_least_squares(gram: Tensor | Triangle, moment: Tensor, start: Tensor) -> Tensor:
    """The minimiser of ``½ xᵀ A x − bᵀ x`` over x ≥ 0.

    :param gram: A, n×n, positive definite, float64; or its upper half.
    :param moment: b, n, float64.
    :param start: n; its positive entries are the first guess of the free variables.
    :returns: n, float64; zero exactly where the constraint is active.
    """
    upper = gram if isinstance(gram, Triangle) else Triangle.of(gram)
    return _minimize(_GramSystem(upper, moment), start)


def nonnegative_refit(factor: Triangle, weights: Tensor) -> Tensor:
    """The non-negative least-squares weights, from the unconstrained ones.

    :param factor: R, n×n, of the atoms' Gram matrix ``RᵀR``; overwritten.
    :param weights: n, float64, the least-squares weights.
    :returns: n, float64; zero exactly where the constraint is active.
    """
    return _minimize(_FactorSystem(factor, weights), weights)


class _System(Protocol):
    """The problem: its moment b, products with A, and minimisers over some of the variables."""

    moment: Tensor

    def product(self, vector: Tensor) -> Tensor:
        """``A v``: n → n."""

    def solve(self, free: Tensor) -> tuple[Tensor, Tensor]:
        """The minimiser over the free variables (a mask), and the slope at it: n and n."""


def _minimize(system: _System, start: Tensor) -> Tensor:
    """The solution, or a point with a smaller f than the projection of ``start``: n."""
    solution = _pivot(system, start)
    if solution is None:
        start = _projected_gradient(system, start.clamp(min=0.0))
        solution = _pivot(system, start)
    return start if solution is None else solution


def _pivot(system: _System, start: Tensor) -> Tensor | None:
    """Exchange free and zero variables until none violates optimality; None if that fails."""
    free = start > 0
    flat = TOLERANCE * float(system.moment.abs().max())
    fewest, patience = len(start) + 1, PATIENCE
    while patience > 0:
        solution, slope = system.solve(free)
        tiny = TOLERANCE * float(solution.abs().max())
        violated = torch.where(free, solution < -tiny, slope < -flat)
        count = int(violated.sum())
        if count == 0:
            return solution.clamp_(min=0.0)
        fewest, patience = (count, PATIENCE) if count < fewest else (fewest, patience - 1)
        free = free ^ violated
    return None


def _projected_gradient(system: _System, point: Tensor) -> Tensor:
    """Accelerated projected gradient steps from a point x ≥ 0: n."""
    step = 1.0 / (1.1 * _largest_eigenvalue(system, len(point)))
    ahead, momentum = point, 1.0
    for _ in range(GRADIENT_STEPS):
        moved = (ahead - step * (system.product(ahead) - system.moment)).clamp_(min=0.0)
        if float((ahead - moved) @ (moved - point)) > 0:  # uphill: start the momentum anew
            ahead, momentum = point, 1.0
            continue
        faster = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        ahead = moved + (momentum - 1) / faster * (moved - point)
        point, momentum = moved, faster
    return point


def _largest_eigenvalue(system: _System, size: int) -> float:
    """Of A, from below, by the power method."""
    vector = torch.ones(size, dtype=torch.float64)
    length = 1.0
    for _ in range(POWER_STEPS):
        vector = system.product(vector / torch.linalg.vector_norm(vector))
        length = float(torch.linalg.vector_norm(vector))
    return max(length, torch.finfo(torch.float64).tiny)


class _GramSystem:
    """A is given by its upper half."""

    def __init__(self, gram: Triangle, moment: Tensor) -> None:
        self.moment = moment
        self._gram = gram

    def product(self, vector: Tensor) -> Tensor:
        return self._gram.symmetric_product(vector)

    def solve(self, free: Tensor) -> tuple[Tensor, Tensor]:
        solution, slope = torch.zeros_like(self.moment), -self.moment
        index = free.nonzero()[:, 0]
        if len(index):
            factor = cholesky(self._gram, index)
            # Once more for the rounding of the first time.
            for _ in range(2):
                solution[index] -= factor.solve(factor.solve_transposed(slope[index]))
                slope = self.product(solution) - self.moment
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
        self._gram: _GramSystem | None = None

    def product(self, vector: Tensor) -> Tensor:
        if self._gram is not None:
            return self._gram.product(vector)
        return self._factor.gram_product(vector)

    def solve(self, free: Tensor) -> tuple[Tensor, Tensor]:
        zero = (~free).nonzero()[:, 0]
        unknown = zero[self._places[zero] < 0]
        if self._gram is None and len(self._inner) + len(unknown) > MOST_ZERO * len(free):
            self._rows = []
            self._factor.factor_to_gram()
            self._gram = _GramSystem(self._factor, self.moment)
        if self._gram is not None:
            return self._gram.solve(free)
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


def cholesky(gram: Triangle, index: Tensor | None = None) -> Triangle:
    """The factor R, of the nearest matrix that has one if rounding left this one without.

    :param index: the rows and columns to factorise, ascending; None is all of them.
    """
    if index is None:
        index = torch.arange(gram.size)
    for jitter in _jitters(gram.largest_diagonal()):
        factor = gram.principal(index)
        factor.add_to_diagonal(jitter)
        if factor.gram_to_factor():
            return factor
    raise ArithmeticError(NO_FACTOR)


def _lower_factor(matrix: Tensor) -> Tensor:
    """The lower Cholesky factor of a small matrix, made definite if rounding left it otherwise."""
    for jitter in _jitters(float(matrix.diagonal().sum())):
        factor: Tensor
        shifted = matrix + jitter * torch.eye(len(matrix), dtype=matrix.dtype)
        factor, failed = torch.linalg.cholesky_ex(shifted)
        if failed == 0:
            return factor
    raise ArithmeticError(NO_FACTOR)


NO_FACTOR = "the inner products of the picked atoms are not finite, so no weights can be found."


def _jitters(scale: float) -> Iterator[float]:
    """What to add to a diagonal until a Cholesky factor exists: 0, then growing."""
    yield 0.0
    yield from (10**k * 1e-15 * scale for k in range(MOST_JITTERS))
