"""The packed triangle against dense linear algebra, across the borders of its panels."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from avalanche_gmc.pursuit import triangle
from avalanche_gmc.pursuit.triangle import Triangle

SIZES = st.integers(1, 30)
WIDTHS = st.integers(1, 9)


def symmetric(size: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(size, size + 5, generator=generator, dtype=torch.float64)
    return rows @ rows.T + torch.eye(size, dtype=torch.float64)


def packed(matrix: torch.Tensor, width: int) -> Triangle:
    """The same in panels of a few columns, appended a few at a time."""
    packed = Triangle(width)
    for start in range(0, len(matrix), 4):
        packed.append(matrix[: start + 4, start : start + 4])
    return packed


def vector(size: int) -> torch.Tensor:
    return torch.linspace(-1, 2, size, dtype=torch.float64)


@given(size=SIZES, width=WIDTHS, seed=st.integers(0, 99))
def test_solves_with_the_factor_and_its_transpose(size, width, seed):
    factor = torch.linalg.cholesky(symmetric(size, seed), upper=True)
    ours = packed(factor, width)
    torch.testing.assert_close(ours.dense(), factor)
    torch.testing.assert_close(factor @ ours.solve(vector(size)), vector(size))
    torch.testing.assert_close(factor.T @ ours.solve_transposed(vector(size)), vector(size))


@given(size=SIZES, width=WIDTHS, data=st.data())
def test_rows_of_the_inverse_and_products_with_the_gram_matrix(size, width, data):
    chosen = sorted(data.draw(st.sets(st.integers(0, size - 1))))
    matrix = symmetric(size, seed=4)
    factor = torch.linalg.cholesky(matrix, upper=True)
    ours = packed(factor, width)
    inverse = torch.linalg.inv(factor)
    torch.testing.assert_close(
        ours.inverse_rows(torch.tensor(chosen, dtype=torch.long)), inverse[chosen]
    )
    torch.testing.assert_close(ours.gram_product(vector(size)), matrix @ vector(size))


@given(size=SIZES, width=WIDTHS, seed=st.integers(0, 99))
def test_turns_into_its_gram_matrix_and_back(size, width, seed):
    matrix = symmetric(size, seed)
    ours = packed(matrix, width)
    torch.testing.assert_close(ours.symmetric_product(vector(size)), matrix @ vector(size))
    assert ours.gram_to_factor()
    torch.testing.assert_close(ours.dense(), torch.linalg.cholesky(matrix, upper=True))
    ours.factor_to_gram()
    torch.testing.assert_close(ours.dense(), matrix.triu())


@given(size=SIZES, width=WIDTHS, data=st.data())
def test_principal_submatrices(size, width, data):
    chosen = sorted(data.draw(st.sets(st.integers(0, size - 1), min_size=1)))
    matrix = symmetric(size, seed=1)
    ours = packed(matrix, width)
    part = ours.principal(torch.tensor(chosen))
    torch.testing.assert_close(part.dense(), matrix[chosen][:, chosen].triu())
    assert part.gram_to_factor()
    torch.testing.assert_close(ours.dense(), matrix.triu())


def test_says_when_a_matrix_has_no_factor():
    matrix = symmetric(12, seed=2)
    matrix[9, 9] = -1.0
    assert not packed(matrix, 5).gram_to_factor()


def test_the_diagonal():
    ours = packed(symmetric(12, seed=3), 5)
    before = ours.dense().diagonal()
    ours.add_to_diagonal(2.5)
    torch.testing.assert_close(ours.dense().diagonal(), before + 2.5)
    assert ours.largest_diagonal() == pytest.approx(float(before.max()) + 2.5)


def test_holds_little_more_than_half_of_the_square():
    size = 8 * triangle.WIDTH
    ours = Triangle(size)
    for start in range(0, size, triangle.WIDTH):
        columns = torch.ones(start + triangle.WIDTH, triangle.WIDTH, dtype=torch.float64)
        ours.append(columns)
    assert ours.nbytes <= 0.57 * 8 * size**2
