"""Fast picks of last-layer gradients are those of trials with a basis, and their fit is right."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from problems import last_layer
from reference import dense_last_layer

from avalanche_gmc import LastLayerDictionary, orthogonal_matching_pursuit
from avalanche_gmc.pursuit import stepwise
from avalanche_gmc.pursuit.candidates import longest_trial, most_candidates
from avalanche_gmc.pursuit.gram_trials import GramTrials
from avalanche_gmc.pursuit.scoreboard import Scoreboard
from avalanche_gmc.pursuit.sweep import Sweep


def ignore(count: int, residual: float) -> None:
    """No progress bar."""


def both(
    dictionary: LastLayerDictionary, size: int, stop: float = 1e-6
) -> tuple[GramTrials, Sweep]:
    target = dictionary.sum()
    target = target / torch.linalg.vector_norm(target)
    board = Scoreboard(dictionary, dictionary.norms())
    trials = GramTrials(board, target, size, stop=stop)
    trials.run(ignore)
    board = Scoreboard(dictionary, dictionary.norms())
    sweep = Sweep(board, target, size, mode="fast", stop=stop)
    sweep.run(ignore)
    return trials, sweep


@given(
    count=st.integers(80, 500),
    draws=st.integers(1, 3),
    rank=st.integers(3, 14),
    size=st.integers(1, 70),
    seed=st.integers(0, 99),
)
def test_picks_are_those_of_trials_with_a_basis(count, draws, rank, size, seed):
    dictionary = last_layer(count, draws, seed, rank=rank, dtype=torch.float64)
    trials, sweep = both(dictionary, size)
    assert trials.indices.tolist() == sweep.indices.tolist()
    torch.testing.assert_close(trials.trace, sweep.trace, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(trials.coordinates, sweep.coordinates, rtol=1e-6, atol=1e-8)


def test_the_factor_is_that_of_the_picked_atoms():
    dictionary = last_layer(400, 2, seed=3)
    trials, _ = both(dictionary, 120)
    dense = dense_last_layer(dictionary.errors.double(), dictionary.features.double())
    picked = dense[trials.indices]
    picked = picked / torch.linalg.vector_norm(picked, dim=1, keepdim=True)
    factor = trials.release_factor().dense()
    assert len(factor) == 120
    torch.testing.assert_close(factor.T @ factor, picked @ picked.T)


@pytest.mark.parametrize("nonnegative", [True, False])
@pytest.mark.parametrize("size", [1, 40, 350])
def test_a_whole_selection(size, nonnegative, monkeypatch):
    monkeypatch.setattr(stepwise, "SMALL_BYTES", 0)
    monkeypatch.setattr(Sweep, "run", None)
    dictionary = last_layer(600, 2, seed=5)
    assert dictionary.dim == 252
    target = dictionary.sum()
    fast, exact = (
        orthogonal_matching_pursuit(dictionary, target, size, mode=mode, nonnegative=nonnegative)
        for mode in ("fast", "exact")
    )
    assert len(set(fast.indices.tolist())) == size
    assert fast.residual_norm <= 1.2 * exact.residual_norm + 1e-5
    dense = dense_last_layer(dictionary.errors.double(), dictionary.features.double())
    missed = target - fast.weights @ dense[fast.indices]
    assert fast.residual_norm == pytest.approx(float(missed.norm() / target.norm()), abs=1e-9)


def test_duplicates_are_picked_once_and_the_tolerance_ends_it(monkeypatch):
    monkeypatch.setattr(stepwise, "SMALL_BYTES", 0)
    one = last_layer(150, 2, seed=6)
    twice = one.concat(one)
    fast = orthogonal_matching_pursuit(twice, twice.sum(), 60, mode="fast")
    assert len({pick % 150 for pick in fast.indices.tolist()}) == 60
    stopped = orthogonal_matching_pursuit(twice, twice.sum(), 60, mode="fast", tolerance=0.5)
    assert 1 < len(stopped) < 60
    trace = stopped.residual_trace.numpy()
    assert trace[-1] <= 0.5 < trace[-2]
    np.testing.assert_allclose(trace, fast.residual_trace[: len(trace)])


def test_an_exhausted_span_ends_a_sweep(monkeypatch):
    monkeypatch.setattr(stepwise, "SMALL_BYTES", 0)
    few = last_layer(20, 1, seed=7, rank=2)
    many = few.take(torch.arange(20).repeat(30))
    coreset = orthogonal_matching_pursuit(many, many.sum(), 100, mode="fast")
    assert len(set(coreset.indices.tolist())) == 100
    assert coreset.residual_norm < 1e-3


@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_trials_are_a_part_of_all_picks_and_of_the_candidates(mode):
    for size in range(1, 6000, 7):
        trial, pool = longest_trial(mode, size), most_candidates(mode, size)
        assert 64 <= pool <= max(64, 4 * size)
        if mode == "fast":
            assert 5 * trial <= pool
            assert trial == 1 or 8 * trial <= size
            assert trial <= longest_trial(mode, size + 1)
