"""Random projections: linear, unbiased, of known variance, and the same everywhere."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from avalanche_gmc.embedding.layers import Block, Columns
from avalanche_gmc.embedding.projection import PROJECTIONS, random_signs

KINDS = pytest.mark.parametrize("kind", list(PROJECTIONS))


def matrix(
    kind: str, size: int, dim: int, *, seed: int = 0, draw: int = 0, block: int = 0
) -> Tensor:
    """The projection as a size×dim matrix: what it does to unit vectors."""
    out = torch.zeros(size, dim)
    PROJECTIONS[kind](dim, seed=seed, draw=draw).add(out, Block(torch.eye(size)), block)
    return out


@given(size=st.integers(1, 60), dim=st.integers(1, 25), seed=st.integers(0, 9))
def test_sparse_gives_each_parameter_one_sign_and_one_bucket(
    size: int, dim: int, seed: int
) -> None:
    rows = matrix("sparse", size, dim, seed=seed)
    assert torch.equal(rows.abs().sum(dim=1), torch.ones(size))
    assert torch.equal(rows.abs().amax(dim=1), torch.ones(size))


@given(size=st.integers(1, 60), dim=st.integers(1, 25), seed=st.integers(0, 9))
def test_dense_entries_are_plus_or_minus_one_over_the_root_of_d(
    size: int, dim: int, seed: int
) -> None:
    rows = matrix("rademacher", size, dim, seed=seed)
    assert torch.allclose(rows.abs(), torch.full((size, dim), 1 / math.sqrt(dim)))


@KINDS
def test_projections_are_linear_and_add_up(kind: str) -> None:
    gradients = torch.randn(7, 300, generator=torch.Generator().manual_seed(0))
    out = torch.ones(7, 40)
    PROJECTIONS[kind](40, seed=2, draw=1).add(out, Block(3 * gradients), 5)
    expected = 1 + 3 * gradients @ matrix(kind, 300, 40, seed=2, draw=1, block=5)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)


@KINDS
@given(size=st.integers(1, 60), dim=st.integers(1, 25), ends=st.sets(st.integers(0, 60)))
def test_columns_that_are_left_out_count_as_zeros(
    kind: str, size: int, dim: int, ends: set[int]
) -> None:
    places = sorted(end for end in ends if end <= size)
    kept = tuple(slice(*pair) for pair in zip(places[::2], places[1::2], strict=False))
    there = torch.randn(3, sum(s.stop - s.start for s in kept))
    columns = Columns(size, kept)
    whole = torch.zeros(3, size)
    if kept:
        whole[:, torch.cat([torch.arange(size)[some] for some in kept])] = there
    torch.testing.assert_close(columns.spread(there), whole)
    found = torch.zeros(3, dim)
    PROJECTIONS[kind](dim, seed=4, draw=1).add(found, Block(there, columns), 2)
    expected = whole @ matrix(kind, size, dim, seed=4, draw=1, block=2)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@KINDS
def test_chunks_of_the_matrix_are_not_repeated(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("avalanche_gmc.embedding.projection.CHUNK_ENTRIES", 4 * 50)
    rows = matrix(kind, 200, 50)
    assert len({tuple(row.tolist()) for row in rows}) > 80  # of 100 sparse, 2^50 dense rows


@KINDS
def test_inner_products_are_unbiased_and_their_variance_is_the_textbook_one(kind: str) -> None:
    generator = torch.Generator().manual_seed(1)
    size, dim, repeats = 90, 16, 4000
    x, y = torch.randn(2, size, generator=generator)
    y = y + x
    pair = torch.stack([x, y])
    estimates = []
    for seed in range(repeats):
        out = torch.zeros(2, dim)
        PROJECTIONS[kind](dim, seed=seed, draw=0).add(out, Block(pair), 0)
        estimates.append(out[0] @ out[1])
    found = torch.stack(estimates).double()
    exact = float(x @ y)
    squares, products = float((x**2).sum() * (y**2).sum()), float((x * y).square().sum())
    textbook = (squares + exact**2 - 2 * products) / dim
    assert float(found.mean()) == pytest.approx(exact, abs=4 * math.sqrt(textbook / repeats))
    # Runs of the sparse projection never meet themselves, which only lowers the variance.
    lowest = 0.75 if kind == "sparse" else 0.9
    assert lowest * textbook < float(found.var()) < 1.1 * textbook


@KINDS
def test_seeds_draws_and_blocks_are_independent(kind: str) -> None:
    first = matrix(kind, 400, 50)
    for other in ({"seed": 1}, {"draw": 1}, {"block": 1}):
        second = matrix(kind, 400, 50, **other)
        agreement = float((first * second).sum() / (first * first).sum())
        # Sparse ones must agree in the bucket as well as in the sign.
        assert abs(agreement) < (0.15 if kind == "sparse" else 0.04)
    assert torch.equal(first, matrix(kind, 400, 50))


@KINDS
def test_nothing_global_changes(kind: str) -> None:
    state = torch.get_rng_state()
    matrix(kind, 10, 5)
    assert torch.equal(state, torch.get_rng_state())


def test_signs_are_balanced_uncorrelated_and_use_every_bit() -> None:
    signs = random_signs(64 * 4000, torch.Generator().manual_seed(0))
    assert set(signs.unique().tolist()) == {-1.0, 1.0}
    assert abs(float(signs.mean())) < 4 / math.sqrt(len(signs))
    for lag in (1, 31, 32, 63, 64, 4000, 8000, 64000):
        correlation = float((signs[lag:] * signs[:-lag]).mean())
        assert abs(correlation) < 5 / math.sqrt(len(signs) - lag), lag
