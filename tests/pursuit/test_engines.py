"""Every way to find the picks gives those of the plain loop, whatever the dictionary's spectrum."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import dense_last_layer, naive_pursuit
from torch import Tensor

from avalanche_gmc import (
    DenseDictionary,
    LastLayerDictionary,
    orthogonal_matching_pursuit,
)
from avalanche_gmc.dictionary import products
from avalanche_gmc.pursuit import candidates, gram_choice, rounded, stepwise, sweep


def gaussian(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def decaying(count: int, dim: int, seed: int) -> Tensor:
    return gaussian(count, dim, seed=seed) * torch.arange(1, dim + 1) ** -1.0


def low_rank_and_noise(count: int, dim: int, seed: int) -> Tensor:
    low = gaussian(count, 5, seed=seed) @ gaussian(5, dim, seed=seed + 1)
    return low + 0.1 * gaussian(count, dim, seed=seed + 2)


def clusters(count: int, dim: int, seed: int) -> Tensor:
    centres = 3 * gaussian(7, dim, seed=seed)
    return centres[torch.arange(count) % 7] + 0.3 * gaussian(count, dim, seed=seed + 1)


def exchangeable(count: int, dim: int, seed: int) -> Tensor:
    return gaussian(count, dim, seed=seed) + 0.3 * gaussian(1, dim, seed=seed + 1)


def duplicates(count: int, dim: int, seed: int) -> Tensor:
    return exchangeable(count // 3, dim, seed).repeat(3, 1)


SPECTRA = [decaying, low_rank_and_noise, clusters, exchangeable, duplicates]
ENGINES = {
    "inner products": {},
    "steps": {"whole": 0},
    "trials": {"light": 0, "short": 0, "bfloat16": False},
    "bfloat16 checks": {"light": 0, "short": 0, "bfloat16": True},
    "bfloat16 guesses": {"light": 0, "short": 99, "bfloat16": True},
    "no bfloat16": {"light": 0, "short": 99, "bfloat16": False},
}


@contextmanager
def engine(name: str) -> Iterator[None]:
    """Find picks in this way only."""
    options = ENGINES[name]
    with pytest.MonkeyPatch.context() as patch:
        if "light" in options:
            patch.setattr(stepwise, "SMALL_BYTES", options["light"])
            patch.setattr(sweep, "SHORT_RUN", options["short"])
            patch.setattr(candidates, "MOST_CANDIDATES", 64)
        if "whole" in options:
            patch.setattr(gram_choice, "WHOLE", options["whole"])
        if "bfloat16" in options:
            patch.setattr(rounded, "has_fast_bfloat16", lambda: options["bfloat16"])
        yield


def assert_plain_picks(atoms: Tensor, size: int) -> None:
    target = atoms.double().sum(dim=0)
    picks, trace = naive_pursuit(atoms, target, size)
    coreset = orthogonal_matching_pursuit(atoms, target, size, nonnegative=False)
    assert coreset.indices.tolist() == [pick for run in picks for pick in run]
    best = np.minimum.accumulate(trace)
    np.testing.assert_allclose(coreset.residual_trace, best, atol=1e-5)


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("spectrum", SPECTRA, ids=lambda spectrum: spectrum.__name__)
@settings(max_examples=6)
@given(
    count=st.integers(20, 130),
    dim=st.integers(8, 60),
    fraction=st.floats(0.1, 0.9),
    seed=st.integers(0, 99),
)
def test_picks_are_those_of_the_plain_loop(spectrum, name, count, dim, fraction, seed):
    atoms = spectrum(count, dim, seed)
    # In float32, what is left of a residual near the rank is rounding.
    size = max(1, int(fraction * min(len(atoms), dim, 30)))
    with engine(name):
        assert_plain_picks(atoms.float(), size)


@pytest.mark.parametrize("name", ENGINES)
def test_long_runs_switch_between_the_ways(name):
    atoms = low_rank_and_noise(900, 160, 3).float()
    with engine(name):
        assert_plain_picks(atoms, 110)


@pytest.mark.parametrize("name", ["inner products", "steps", "trials", "no bfloat16"])
def test_residuals_far_below_single_precision(name):
    atoms = decaying(60, 20, seed=4)
    with engine(name):
        assert_plain_picks(atoms, 20)
        coreset = orthogonal_matching_pursuit(atoms, atoms.sum(dim=0), 20, nonnegative=False)
        assert coreset.residual_norm < 1e-12


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("gap", [1e-3, 1e-5, 1e-6])
def test_near_ties_that_bfloat16_cannot_tell_apart(name, gap):
    """Each atom has a twin with a slightly larger score at a higher index."""
    atoms = exchangeable(80, 40, seed=5).float()
    target = atoms.double().sum(dim=0)
    better = (atoms.double() + gap * target / target.norm() * atoms.norm(dim=1)[:, None]).float()
    both = torch.cat([atoms, better])
    picks, _ = naive_pursuit(both, target, 12)
    assert max(picks[0]) >= 80
    with engine(name):
        coreset = orthogonal_matching_pursuit(both, target, 12)
    assert coreset.indices.tolist() == picks[0]


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("outputs", [2, 7])
def test_structured_atoms(outputs, name):
    errors = gaussian(3, 150, outputs, seed=6).float()
    features = gaussian(3, 150, 11, seed=7).float()
    dictionary, dense = LastLayerDictionary(errors, features), dense_last_layer(errors, features)
    picks, _ = naive_pursuit(dense, dense.double().sum(dim=0), 25)
    with engine(name):
        coreset = orthogonal_matching_pursuit(dictionary, dictionary.sum(), 25)
    assert coreset.indices.tolist() == picks[0]


def test_the_products_do_not_depend_on_the_kernel(monkeypatch):
    few, many = gaussian(5, 33, seed=8).float(), gaussian(70, 33, seed=9).float()
    fast = products.inner_products(few, many)
    monkeypatch.setattr(products, "_ONE_DNN", None)
    torch.testing.assert_close(products.inner_products(few, many), fast)
    vector = gaussian(33, seed=10).float()
    dictionary = DenseDictionary(many)
    by_numpy = torch.from_numpy(dictionary.correlate_numpy(vector.numpy()))
    torch.testing.assert_close(by_numpy, dictionary.correlate(vector))


def test_the_number_of_threads_is_as_before():
    atoms = exchangeable(60, 20, seed=11)
    before = torch.get_num_threads()
    orthogonal_matching_pursuit(atoms, atoms.sum(dim=0), 10)
    with pytest.raises(ValueError, match="between 1 and"):
        orthogonal_matching_pursuit(atoms, atoms.sum(dim=0), 100)
    assert torch.get_num_threads() == before
