"""The pursuit on inner products alone gives the picks of the plain loop."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from problems import FEATURES, last_layer
from reference import dense_last_layer, naive_pursuit
from torch import Tensor

from avalanche_gmc import DenseDictionary, LastLayerDictionary, orthogonal_matching_pursuit
from avalanche_gmc.dictionary.gram import DenseGram, Gram, LastLayerGram
from avalanche_gmc.pursuit import gram_choice, gram_columns
from avalanche_gmc.pursuit.gram_choice import is_factored
from avalanche_gmc.pursuit.gram_sweep import GramSweep


def assert_plain_picks(dictionary: LastLayerDictionary, size: int) -> None:
    assert is_factored(dictionary)
    dense = dense_last_layer(dictionary.errors.double(), dictionary.features.double())
    target = dictionary.sum()
    sweeps, trace = naive_pursuit(dense, target, size)
    coreset = orthogonal_matching_pursuit(dictionary, target, size, nonnegative=False)
    assert coreset.indices.tolist() == [pick for sweep in sweeps for pick in sweep]
    best = np.minimum.accumulate(trace)
    np.testing.assert_allclose(coreset.residual_trace, best, atol=1e-6)


@pytest.fixture
def small_blocks(monkeypatch):
    """Few candidates and columns at a time, so that guesses fail often."""
    monkeypatch.setattr(gram_columns, "CANDIDATES", ((0, 8),))
    monkeypatch.setattr(gram_columns, "WHOLE", 0)


@given(
    count=st.integers(10, 90),
    draws=st.integers(1, 3),
    rank=st.integers(1, FEATURES),
    fraction=st.floats(0.05, 0.8),
    seed=st.integers(0, 99),
)
def test_picks_are_those_of_the_plain_loop(count, draws, rank, fraction, seed):
    assert_plain_picks(last_layer(count, draws, seed, rank=rank), max(1, int(fraction * count)))


@pytest.mark.parametrize("rank", [2, 5, FEATURES])
def test_wrong_guesses_cost_time_and_nothing_else(rank, small_blocks):
    assert_plain_picks(last_layer(300, 2, seed=rank, rank=rank), 80)


@pytest.mark.parametrize("copies", [2, 5])
def test_duplicates_go_to_the_first(copies, small_blocks):
    one = last_layer(40, 2, seed=3)
    repeated = LastLayerDictionary(
        one.errors.repeat(1, copies, 1), one.features.repeat(1, copies, 1)
    )
    assert_plain_picks(repeated, 60)


@pytest.mark.parametrize("gap", [1e-3, 1e-5, 1e-6])
def test_near_ties(gap, small_blocks):
    one = last_layer(50, 2, seed=4)
    twin = LastLayerDictionary(one.errors, one.features + gap * torch.randn_like(one.features))
    assert_plain_picks(one.concat(twin), 30)


def test_residuals_far_below_single_precision(small_blocks):
    dictionary = last_layer(400, 1, seed=5, dtype=torch.float64)
    target = dictionary.sum()
    coreset = orthogonal_matching_pursuit(dictionary, target, 126, nonnegative=False)
    assert coreset.residual_norm < 1e-11
    assert_plain_picks(dictionary, 100)


def test_a_residual_that_shrinks_is_computed_again(monkeypatch, small_blocks):
    renewals: list[float] = []
    renew = GramSweep._renew

    def counted(self):
        renew(self)
        renewals.append(self._renewed_at)

    monkeypatch.setattr(GramSweep, "_renew", counted)
    assert_plain_picks(last_layer(400, 1, seed=5, dtype=torch.float64), 115)
    assert renewals
    assert renewals == sorted(renewals, reverse=True)


def test_an_atom_at_the_limit_of_dependence_is_passed_over_once(monkeypatch):
    """Two sums of its distance from the span may round to different sides of the limit."""
    asked: list[int] = []
    distance = GramSweep._distance

    def at_the_limit(self, pick):
        asked.append(pick)
        assert asked.count(asked[0]) < 3, "the same atom again and again"
        return 0.0 if pick == asked[0] else distance(self, pick)

    monkeypatch.setattr(GramSweep, "_distance", at_the_limit)
    dictionary = last_layer(60, 1, seed=11)
    coreset = orthogonal_matching_pursuit(dictionary, dictionary.sum(), 10)
    assert len(coreset) == 10
    assert asked[0] not in coreset.indices


def test_more_picks_than_dimensions_take_several_sweeps():
    dictionary = last_layer(300, 1, seed=7)
    coreset = orthogonal_matching_pursuit(dictionary, dictionary.sum(), 250)
    assert len(set(coreset.indices.tolist())) == 250
    assert bool((coreset.weights >= 0).all())
    assert coreset.residual_norm < 1e-4


def test_what_does_not_fit_is_pursued_otherwise(monkeypatch):
    monkeypatch.setattr(gram_choice, "GRAM_BYTES", 0)
    monkeypatch.setattr(GramSweep, "run", None)
    assert_plain_picks(last_layer(60, 2, seed=8), 20)


@pytest.mark.parametrize("kind", ["last layer", "dense"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_inner_products(dtype, kind):
    structured = last_layer(30, 3, seed=9, dtype=dtype)
    rows = dense_last_layer(structured.errors.double(), structured.features.double())
    scale = torch.rand(30, dtype=torch.float64)
    scaled = rows * scale[:, None]
    ids = np.array([4, 0, 17])
    vector: Tensor = torch.randn(rows.shape[1], dtype=torch.float64)
    gram: Gram = LastLayerGram(structured, scale)
    if kind == "dense":
        gram = DenseGram(DenseDictionary(rows), scale)
    close = {"rtol": 1e-9, "atol": 1e-9}
    np.testing.assert_allclose(gram.columns(ids), scaled[ids] @ scaled.T, **close)
    np.testing.assert_allclose(gram.block(ids), scaled[ids] @ scaled[ids].T, **close)
    np.testing.assert_allclose(gram.correlate(vector.numpy()), scaled @ vector, **close)


def test_columns_that_were_dropped_are_fetched_again(monkeypatch, small_blocks):
    monkeypatch.setattr(gram_columns, "MOST_KEPT", 0)
    monkeypatch.setattr(gram_columns, "MOST_COLUMNS", 4)
    assert_plain_picks(last_layer(200, 2, seed=12, rank=3), 60)
