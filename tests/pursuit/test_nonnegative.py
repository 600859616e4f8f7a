"""Non-negative least squares against scipy, and its optimality conditions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls

from avalanche_gmc.pursuit import nonnegative
from avalanche_gmc.pursuit.nonnegative import nonnegative_least_squares, nonnegative_refit
from avalanche_gmc.pursuit.triangle import Triangle


def problem(rows: int, columns: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    return matrix, torch.randn(rows, generator=generator, dtype=torch.float64)


@given(columns=st.integers(1, 40), extra=st.integers(0, 30), seed=st.integers(0, 999))
def test_equals_scipy(columns, extra, seed):
    matrix, target = problem(columns + extra + 5, columns, seed)
    gram, moment = matrix.T @ matrix, matrix.T @ target
    solution = nonnegative_least_squares(gram, moment, torch.linalg.solve(gram, moment))
    expected = nnls(matrix.numpy(), target.numpy())[0]
    np.testing.assert_allclose(solution, expected, atol=1e-8)


@pytest.mark.parametrize("start", ["all free", "none free"])
def test_the_first_guess_does_not_matter(start):
    matrix, target = problem(80, 60, seed=3)
    gram, moment = matrix.T @ matrix, matrix.T @ target
    guess = torch.full((60,), 1.0 if start == "all free" else -1.0, dtype=torch.float64)
    solution = nonnegative_least_squares(gram, moment, guess)
    np.testing.assert_allclose(solution, nnls(matrix.numpy(), target.numpy())[0], atol=1e-8)


def test_optimal_and_quick_with_many_variables():
    matrix, _ = problem(900, 800, seed=5)
    target = matrix.clamp(min=0).sum(dim=1)
    gram, moment = matrix.T @ matrix, matrix.T @ target
    solution = nonnegative_least_squares(gram, moment, torch.linalg.solve(gram, moment))
    slope = gram @ solution - moment
    assert bool((solution >= 0).all())
    assert 0 < int((solution == 0).sum()) < 800
    scale = float(moment.abs().max())
    assert float(slope[solution == 0].min()) >= -1e-9 * scale
    assert float(slope[solution > 0].abs().max()) <= 1e-9 * scale


def test_nearly_singular_systems_have_an_answer():
    matrix, target = problem(30, 10, seed=7)
    matrix[:, 9] = matrix[:, 8] * (1 + 1e-12)
    gram, moment = matrix.T @ matrix, matrix.T @ target
    solution = nonnegative_least_squares(gram, moment, torch.ones(10, dtype=torch.float64))
    residual = float(torch.linalg.vector_norm(target - matrix @ solution))
    assert residual == pytest.approx(nnls(matrix.numpy(), target.numpy())[1], rel=1e-6)


@pytest.mark.parametrize("most_zero", [0.0, 0.2, 1.0], ids=["Cholesky", "both", "factor"])
@given(columns=st.integers(1, 40), extra=st.integers(0, 30), seed=st.integers(0, 999))
def test_the_refit_from_a_factor_equals_scipy(most_zero, columns, extra, seed):
    matrix, target = problem(columns + extra + 5, columns, seed)
    gram, moment = matrix.T @ matrix, matrix.T @ target
    factor = Triangle.of(torch.linalg.cholesky(gram, upper=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nonnegative, "MOST_ZERO", most_zero)
        patch.setattr(nonnegative, "BLOCK", 3)
        solution = nonnegative_refit(factor, torch.linalg.solve(gram, moment))
    np.testing.assert_allclose(solution, nnls(matrix.numpy(), target.numpy())[0], atol=1e-8)


def opposite_pairs(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """100 vectors in 16 of 32 dimensions and their negatives: Gram matrices of rank 16."""
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(100, 32, generator=generator, dtype=torch.float64)
    matrix[:, :16] = 0
    return torch.cat([matrix, -matrix]).T, torch.randn(32, generator=generator).double()


@pytest.mark.parametrize("seed", range(6))
def test_degenerate_problems_end_at_the_best_fit(seed):
    matrix, target = opposite_pairs(seed)
    gram, moment = matrix.T @ matrix, matrix.T @ target
    solution = nonnegative_least_squares(gram, moment, torch.ones(200, dtype=torch.float64))
    residual = float(torch.linalg.vector_norm(target - matrix @ solution))
    assert bool((solution >= 0).all())
    assert residual == pytest.approx(nnls(matrix.numpy(), target.numpy())[1], rel=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_where_pivoting_gives_up_the_fit_is_close_to_the_best(seed, monkeypatch):
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(60, 150, generator=generator, dtype=torch.float64)
    matrix += torch.randn(60, 1, generator=generator, dtype=torch.float64)
    target = matrix.sum(dim=1) + 30 * torch.randn(60, generator=generator, dtype=torch.float64)
    gram = matrix.T @ matrix + 1e-9 * torch.eye(150, dtype=torch.float64)
    monkeypatch.setattr(nonnegative, "_pivot", lambda system, start: None)
    solution = nonnegative_least_squares(gram, matrix.T @ target, torch.ones(150).double())
    residual = float(torch.linalg.vector_norm(target - matrix @ solution))
    assert bool((solution >= 0).all())
    assert residual == pytest.approx(nnls(matrix.numpy(), target.numpy())[1], rel=5e-3)


def test_pivoting_ends_where_exchanges_cycle():
    """A system that answers every guess with violations."""

    class Contrary:
        moment = torch.ones(5, dtype=torch.float64)
        solved = 0

        def product(self, vector):
            return vector

        def solve(self, free):
            self.solved += 1
            return torch.where(free, -1.0, 0.0).double(), torch.where(free, 0.0, -1.0).double()

    system = Contrary()
    solution = nonnegative._minimize(system, torch.ones(5, dtype=torch.float64))
    assert system.solved <= 2 * (nonnegative.PATIENCE + 1)
    torch.testing.assert_close(solution, torch.ones(5, dtype=torch.float64))


def test_inner_products_that_are_not_finite_are_refused():
    gram = torch.full((3, 3), torch.nan, dtype=torch.float64)
    with pytest.raises(ArithmeticError, match="not finite"):
        nonnegative_least_squares(gram, torch.ones(3).double(), torch.ones(3).double())
