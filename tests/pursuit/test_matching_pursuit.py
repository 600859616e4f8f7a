"""The pursuit against the plain loop, on friendly and unfriendly dictionaries."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from reference import dense_last_layer, naive_pursuit
from scipy.optimize import nnls
from torch import Tensor

from avalanche_gmc import (
    Coreset,
    DenseDictionary,
    LastLayerDictionary,
    orthogonal_matching_pursuit,
)
from avalanche_gmc.pursuit import candidates, stepwise

MODES = pytest.mark.parametrize("mode", ["exact", "fast", "large and fast"], indirect=True)


@pytest.fixture
def mode(request, monkeypatch):
    """A mode; small dictionaries are taken for large ones where it says so."""
    if request.param == "large and fast":
        monkeypatch.setattr(stepwise, "SMALL_BYTES", 0)
        return "fast"
    return request.param


SHAPES = st.tuples(st.integers(2, 60), st.integers(1, 25))


def random_problem(
    shape: tuple[int, int],
    seed: int,
    *,
    correlated: float = 0.5,
    dtype: torch.dtype = torch.float64,
) -> tuple[Tensor, Tensor]:
    """Atoms of various lengths that share a direction, and their sum."""
    generator = torch.Generator().manual_seed(seed)
    atoms = torch.randn(*shape, generator=generator, dtype=torch.float64)
    atoms += correlated * torch.randn(1, shape[1], generator=generator, dtype=torch.float64)
    atoms *= torch.rand(shape[0], 1, generator=generator, dtype=torch.float64).exp()
    return atoms.to(dtype), atoms.to(dtype).sum(dim=0)


def weighted_sum(coreset: Coreset, atoms: Tensor) -> Tensor:
    return coreset.weights @ atoms[coreset.indices].double()


def relative_residual(coreset: Coreset, atoms: Tensor, target: Tensor) -> float:
    missed = target.double() - weighted_sum(coreset, atoms)
    return float(missed.norm() / target.double().norm())


def assert_same_picks(coreset: Coreset, sweeps: list[list[int]]) -> None:
    assert coreset.indices.tolist() == [index for sweep in sweeps for index in sweep]


@given(shape=SHAPES, fraction=st.floats(0.01, 1.0), seed=st.integers(0, 999))
def test_exact_picks_and_weights_are_those_of_the_plain_loop(shape, fraction, seed):
    atoms, target = random_problem(shape, seed)
    size = max(1, int(fraction * shape[0]))
    sweeps, trace = naive_pursuit(atoms, target, size)
    coreset = orthogonal_matching_pursuit(atoms, target, size, nonnegative=False)
    assert_same_picks(coreset, sweeps)
    best = np.minimum.accumulate(trace)
    np.testing.assert_allclose(coreset.residual_trace, best, atol=1e-7)
    if len(sweeps) == 1:
        weights = np.linalg.lstsq(atoms[sweeps[0]].T.numpy(), target.numpy(), rcond=None)[0]
        np.testing.assert_allclose(coreset.weights, weights, rtol=1e-5, atol=1e-7)
        assert coreset.residual_norm == pytest.approx(trace[-1], abs=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_long_runs_with_a_pool_smaller_than_the_dictionary(dtype, monkeypatch):
    monkeypatch.setattr(candidates, "MOST_CANDIDATES", 64)
    monkeypatch.setattr(stepwise, "SMALL_BYTES", 0)
    atoms, target = random_problem((700, 150), seed=1, dtype=dtype)
    sweeps, trace = naive_pursuit(atoms, target, 120)
    coreset = orthogonal_matching_pursuit(atoms, target, 120, nonnegative=False)
    assert_same_picks(coreset, sweeps)
    np.testing.assert_allclose(coreset.residual_trace, trace, atol=1e-6)
    weights = np.linalg.lstsq(atoms[sweeps[0]].double().T.numpy(), target.double().numpy())[0]
    np.testing.assert_allclose(coreset.weights, weights, rtol=1e-6)


def test_fast_mode_leaves_about_the_residual_of_exact_mode(monkeypatch):
    monkeypatch.setattr(stepwise, "SMALL_BYTES", 0)
    monkeypatch.setattr(candidates, "MOST_CANDIDATES", 64)
    atoms, target = random_problem((900, 200), seed=2, dtype=torch.float32)
    exact, fast = (
        orthogonal_matching_pursuit(atoms, target, 100, mode=mode) for mode in ("exact", "fast")
    )
    assert len(set(fast.indices.tolist())) == 100
    assert fast.residual_norm <= 1.1 * exact.residual_norm
    assert fast.residual_norm == pytest.approx(relative_residual(fast, atoms, target), rel=1e-6)


@MODES
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # one mode for all examples
@given(shape=SHAPES, fraction=st.floats(0.01, 1.0), seed=st.integers(0, 999))
def test_properties_of_every_coreset(mode, shape, fraction, seed):
    atoms, target = random_problem(shape, seed)
    size = max(1, int(fraction * shape[0]))
    options = {"mode": mode}
    coreset = orthogonal_matching_pursuit(atoms, target, size, **options)
    signed = orthogonal_matching_pursuit(atoms, target, size, nonnegative=False, **options)
    assert len(set(coreset.indices.tolist())) == len(coreset) == size
    assert torch.equal(coreset.indices, signed.indices)
    assert bool((coreset.weights >= 0).all())
    trace = coreset.residual_trace
    assert bool((trace[1:] <= trace[:-1]).all())
    assert coreset.residual_norm == pytest.approx(
        relative_residual(coreset, atoms, target), abs=1e-9
    )
    missed = target - weighted_sum(signed, atoms)
    overlap = atoms[signed.indices] @ missed / atoms[signed.indices].norm(dim=1)
    assert float(overlap.abs().max()) <= 1e-6 * float(target.norm())
    assert signed.residual_norm <= coreset.residual_norm + 1e-9


@given(shape=SHAPES, seed=st.integers(0, 999))
def test_full_size_equals_least_squares(shape, seed):
    atoms, _ = random_problem(shape, seed)
    target = torch.randn(shape[1], generator=torch.Generator().manual_seed(seed)).double()
    coreset = orthogonal_matching_pursuit(atoms, target, shape[0], nonnegative=False)
    fitted = np.linalg.lstsq(atoms.T.numpy(), target.numpy(), rcond=None)[0] @ atoms.numpy()
    np.testing.assert_allclose(weighted_sum(coreset, atoms), fitted, atol=1e-5)


@given(shape=SHAPES, fraction=st.floats(0.01, 1.0), seed=st.integers(0, 999))
def test_nonnegative_weights_are_the_best_nonnegative_ones(shape, fraction, seed):
    atoms, target = random_problem(shape, seed, correlated=0.1)
    size = max(1, int(fraction * shape[0]))
    coreset = orthogonal_matching_pursuit(atoms, target, size)
    best = nnls(atoms[coreset.indices].T.numpy(), target.numpy())[1] / float(target.norm())
    assert coreset.residual_norm <= best + 1e-6


@given(seed=st.integers(0, 999), permutation=st.permutations(range(30)))
def test_permuting_the_atoms_permutes_the_picks(seed, permutation):
    atoms, target = random_problem((30, 20), seed)
    order = torch.tensor(permutation)
    coreset = orthogonal_matching_pursuit(atoms, target, 15)
    permuted = orthogonal_matching_pursuit(atoms[order], target, 15)
    assert torch.equal(order[permuted.indices], coreset.indices)


@MODES
@pytest.mark.parametrize("scale", [1e-12, 1e12, 1e-150, 1e150])
def test_scaling_the_target_scales_the_weights(mode, scale):
    atoms, target = random_problem((40, 20), seed=4)
    coreset = orthogonal_matching_pursuit(atoms, target, 30, mode=mode)
    scaled = orthogonal_matching_pursuit(atoms, target * scale, 30, mode=mode)
    assert torch.equal(scaled.indices, coreset.indices)
    torch.testing.assert_close(scaled.weights / scale, coreset.weights, rtol=1e-6, atol=1e-9)
    assert scaled.residual_norm == pytest.approx(coreset.residual_norm, abs=1e-9)


def test_atoms_of_wildly_different_scale():
    atoms, _ = random_problem((50, 20), seed=5, dtype=torch.float32)
    scales = torch.logspace(-25, 25, 50)
    target = atoms.double().sum(dim=0)
    plain = orthogonal_matching_pursuit(atoms, target, 10)
    scaled = orthogonal_matching_pursuit(atoms * scales[:, None], target, 10)
    assert torch.equal(plain.indices, scaled.indices)
    expected = plain.weights / scales[plain.indices].double()
    torch.testing.assert_close(scaled.weights, expected, rtol=1e-4, atol=0.0)


def test_recovers_a_sparse_combination():
    generator = torch.Generator().manual_seed(6)
    atoms = torch.randn(100, 400, generator=generator, dtype=torch.float64)
    chosen, weights = torch.tensor([70, 3, 12, 55]), torch.tensor([4.0, 3.0, 2.0, 1.0]).double()
    coreset = orthogonal_matching_pursuit(atoms, weights @ atoms[chosen], 4)
    assert coreset.indices.tolist() == chosen.tolist()
    torch.testing.assert_close(coreset.weights, weights)


@MODES
def test_ties_and_duplicates_go_to_the_lowest_index(mode):
    atoms, _ = random_problem((20, 15), seed=7, dtype=torch.float32)
    doubled = torch.cat([atoms, atoms])
    target = atoms.double().sum(dim=0)
    once = orthogonal_matching_pursuit(atoms, target, 10, mode=mode)
    twice = orthogonal_matching_pursuit(doubled, target, 10, mode=mode)
    assert torch.equal(once.indices, twice.indices)
    torch.testing.assert_close(once.weights, twice.weights)


@MODES
def test_identical_atoms_share_the_weight(mode):
    atoms = torch.randn(1, 6, generator=torch.Generator().manual_seed(8)).repeat(700, 1)
    coreset = orthogonal_matching_pursuit(atoms, 700 * atoms[0], 5, mode=mode)
    assert coreset.indices.tolist() == [0, 1, 2, 3, 4]
    torch.testing.assert_close(coreset.weights, torch.full((5,), 140.0).double())
    assert coreset.residual_norm < 1e-6


@MODES
def test_a_pool_full_of_dependent_atoms_does_not_end_the_pursuit(mode):
    # After the first pick all its copies score 0 and the other atoms, which oppose what is left of
    # the target, score less: they are among the best scores without being candidates.
    copies = torch.tensor([[1.0, 0.0, 0.0]]).repeat(600, 1)
    others = torch.tensor([[0.1, -1.0, 0.0], [0.0, -1.0, 1.0]])
    atoms = torch.cat([copies, others]).double()
    target = torch.tensor([1.0, 0.1, 0.0]).double()
    sweeps, _ = naive_pursuit(atoms, target, 3)
    coreset = orthogonal_matching_pursuit(atoms, target, 3, mode=mode)
    assert sweeps[0][0] == 0
    assert sweeps[0][1] >= 600
    assert_same_picks(coreset, sweeps)


@MODES
@pytest.mark.parametrize("nonnegative", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_more_picks_than_dimensions(mode, nonnegative, dtype):
    atoms, target = random_problem((300, 12), seed=9, dtype=dtype)
    coreset = orthogonal_matching_pursuit(atoms, target, 100, mode=mode, nonnegative=nonnegative)
    assert len(set(coreset.indices.tolist())) == 100
    assert coreset.residual_norm < 1e-5
    assert int((coreset.weights != 0).sum()) > 60
    if nonnegative:
        assert float(coreset.weights.sum()) == pytest.approx(300, rel=0.6)


@MODES
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_span_exhausted_before_the_residual_is(mode, dtype):
    generator = torch.Generator().manual_seed(16)
    atoms = torch.randn(700, 3, generator=generator) @ torch.randn(3, 10, generator=generator)
    atoms, target = atoms.to(dtype), torch.randn(10, generator=generator)
    coreset = orthogonal_matching_pursuit(atoms, target, 20, mode=mode, nonnegative=False)
    assert len(set(coreset.indices.tolist())) == 20
    matrix, goal = atoms.double().T.numpy(), target.double().numpy()
    fitted = matrix @ np.linalg.lstsq(matrix, goal, rcond=1e-6)[0]
    best = np.linalg.norm(goal - fitted) / np.linalg.norm(goal)
    assert coreset.residual_norm == pytest.approx(best, rel=1e-4)


def test_residual_spent_before_the_span_is():
    atoms = torch.eye(50, dtype=torch.float64)
    target = atoms[:3].sum(dim=0)
    coreset = orthogonal_matching_pursuit(atoms, target, 20)
    assert coreset.indices.tolist()[:3] == [0, 1, 2]
    assert len(set(coreset.indices.tolist())) == 20
    torch.testing.assert_close(weighted_sum(coreset, atoms), target, atol=1e-5, rtol=0.0)


def test_zero_atoms_come_last_with_a_warning():
    atoms, target = random_problem((10, 8), seed=10)
    atoms[[0, 4]] = 0.0
    with pytest.warns(UserWarning, match="only 8 of the 10 atoms are not zero"):
        coreset = orthogonal_matching_pursuit(atoms, target, 9)
    assert coreset.indices.tolist()[-1] == 0
    assert coreset.weights[-1] == 0
    assert len(set(coreset.indices.tolist())) == 9
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert {0, 4}.isdisjoint(orthogonal_matching_pursuit(atoms, target, 8).indices.tolist())


def test_only_zero_atoms():
    with pytest.warns(UserWarning, match="only 0 of the 3"):
        coreset = orthogonal_matching_pursuit(torch.zeros(3, 2), torch.ones(2), 2)
    assert coreset.indices.tolist() == [0, 1]
    assert coreset.residual_norm == 1.0


def test_a_zero_target_asks_for_nothing():
    atoms, target = random_problem((10, 8), seed=11)
    coreset = orthogonal_matching_pursuit(atoms, target * 0, 4)
    assert coreset.indices.tolist() == [0, 1, 2, 3]
    assert coreset.weights.tolist() == [0.0] * 4
    assert coreset.residual_norm == 0.0


@MODES
@pytest.mark.parametrize("tolerance", [0.5, 0.1, 1e-3])
def test_tolerance_stops_at_the_first_small_residual(mode, tolerance):
    atoms, target = random_problem((80, 40), seed=12)
    coreset = orthogonal_matching_pursuit(
        atoms, target, 80, mode=mode, tolerance=tolerance, nonnegative=False
    )
    full = orthogonal_matching_pursuit(atoms, target, 40, mode=mode, nonnegative=False)
    expected = int((full.residual_trace > tolerance).sum()) + 1
    assert len(coreset) == expected
    assert coreset.residual_norm <= tolerance


@MODES
def test_structured_equals_dense(mode):
    generator = torch.Generator().manual_seed(13)
    errors = torch.randn(2, 200, 3, generator=generator, dtype=torch.float64)
    features = torch.randn(2, 200, 9, generator=generator, dtype=torch.float64)
    dense = dense_last_layer(errors, features)
    target = dense.sum(dim=0)
    options = {"mode": mode}
    # Past D = 54 picks, what fast mode picks from a spent residual is up to rounding.
    size = 70 if mode == "exact" else 45
    expected = orthogonal_matching_pursuit(DenseDictionary(dense), target, size, **options)
    actual = orthogonal_matching_pursuit(
        LastLayerDictionary(errors, features), target, size, **options
    )
    assert torch.equal(actual.indices, expected.indices)
    torch.testing.assert_close(actual.weights, expected.weights, rtol=1e-4, atol=1e-6)


@given(shape=SHAPES, seed=st.integers(0, 999))
def test_same_input_same_output(shape, seed):
    assume(shape[0] > 2)
    atoms, target = random_problem(shape, seed, dtype=torch.float32)
    first, second = (
        orthogonal_matching_pursuit(atoms, target, shape[0] // 2 + 1) for _ in range(2)
    )
    assert torch.equal(first.indices, second.indices)
    assert torch.equal(first.weights, second.weights)


def test_input_is_left_alone_and_types_are_as_promised():
    atoms, target = random_problem((30, 10), seed=14, dtype=torch.float32)
    before = atoms.clone(), target.clone()
    coreset = orthogonal_matching_pursuit(atoms, target, 12)
    assert torch.equal(atoms, before[0])
    assert torch.equal(target, before[1])
    assert coreset.indices.dtype == torch.int64
    assert coreset.weights.dtype == coreset.residual_trace.dtype == torch.float64


def test_a_numpy_integer_is_a_size():
    atoms, target = random_problem((30, 10), seed=17)
    expected = orthogonal_matching_pursuit(atoms, target, 5)
    assert torch.equal(
        orthogonal_matching_pursuit(atoms, target, np.int64(5)).indices, expected.indices
    )


def test_pairs_of_opposite_atoms_end():
    generator = torch.Generator().manual_seed(1)
    atoms = torch.randn(100, 32, generator=generator)
    atoms[:, :16] = 0
    atoms = torch.cat([atoms, -atoms])
    target = torch.randn(32, generator=generator)
    coreset = orthogonal_matching_pursuit(atoms, target, 200)
    best = nnls(atoms.double().T.numpy(), target.double().numpy())[1] / float(target.norm())
    assert sorted(coreset.indices.tolist()) == list(range(200))
    assert coreset.residual_norm == pytest.approx(best, rel=1e-4)


@MODES
@pytest.mark.parametrize("kind", ["dense", "last layer"])
def test_autocast_and_gradients_change_nothing(mode, kind):
    atoms, target = random_problem((60, 24), seed=18, dtype=torch.float32)
    dictionary = DenseDictionary(atoms)
    if kind == "last layer":
        errors, features = torch.randn(2, 60, 3), torch.randn(2, 60, 4)
        dictionary = LastLayerDictionary(errors, features)
        target = dictionary.sum()
    expected = orthogonal_matching_pursuit(dictionary, target, 20, mode=mode)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = orthogonal_matching_pursuit(dictionary, target, 20, mode=mode)
        torch.testing.assert_close(dictionary.sum(), target.double(), rtol=1e-6, atol=1e-6)
    assert torch.equal(actual.indices, expected.indices)
    assert torch.equal(actual.weights, expected.weights)


@MODES
def test_atoms_that_require_gradients(mode):
    atoms, target = random_problem((60, 24), seed=18, dtype=torch.float32)
    expected = orthogonal_matching_pursuit(atoms, target, 20, mode=mode)
    actual = orthogonal_matching_pursuit(
        atoms.requires_grad_(), target.requires_grad_(), 20, mode=mode
    )
    assert torch.equal(actual.indices, expected.indices)
    assert not actual.weights.requires_grad


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16], ids=str)
def test_numpy_atoms_and_targets(dtype):
    atoms, target = random_problem((30, 10), seed=19)
    atoms, target = atoms.numpy().astype(dtype), target.numpy().astype(dtype)
    coreset = orthogonal_matching_pursuit(atoms, target, 5)
    expected = orthogonal_matching_pursuit(
        torch.from_numpy(atoms.astype(np.float64)), torch.from_numpy(target).double(), 5
    )
    assert coreset.indices.tolist() == expected.indices.tolist()


@MODES
@pytest.mark.parametrize(
    ("dtype", "scale"),
    [
        (torch.float64, 1e160),
        (torch.float64, 1e-200),
        (torch.float32, 1e37),
        (torch.float32, 1e-30),
    ],
)
def test_atoms_of_extreme_scale(mode, dtype, scale):
    atoms, _ = random_problem((50, 20), seed=20, dtype=dtype)
    target = atoms.double().sum(dim=0)
    plain = orthogonal_matching_pursuit(atoms, target, 12, mode=mode)
    scaled = orthogonal_matching_pursuit(atoms * scale, target, 12, mode=mode)
    assert torch.equal(plain.indices, scaled.indices)
    torch.testing.assert_close(scaled.weights * scale, plain.weights, rtol=1e-4, atol=1e-9)
    assert scaled.residual_norm == pytest.approx(plain.residual_norm, abs=1e-6)


def test_a_zero_target_and_zero_atoms_match():
    with pytest.warns(UserWarning, match="only 0 of the 3"):
        coreset = orthogonal_matching_pursuit(torch.zeros(3, 2), torch.zeros(2), 2)
    assert coreset.residual_norm == 0.0
    assert coreset.residual_trace.tolist() == [0.0, 0.0]


def spoiled(row: int, value: float) -> Tensor:
    atoms = torch.ones(5, 3)
    atoms[row, 1] = value
    return atoms


@pytest.mark.parametrize(
    ("atoms", "target", "size", "options", "message"),
    [
        (spoiled(2, float("nan")), torch.ones(3), 1, {}, "row 2 has a NaN or infinite"),
        (spoiled(4, float("inf")), torch.ones(3), 1, {}, "row 4 has a NaN or infinite"),
        (torch.ones(5, 3), torch.tensor([0, 0, torch.nan]), 1, {}, "nan at position 2"),
        (torch.ones(5, 3), torch.ones(4), 1, {}, r"dimension of the atoms, \(3,\), got shape"),
        (torch.ones(5, 3), torch.ones(3, 1), 1, {}, "got shape"),
        (torch.ones(5, 3), torch.ones(3), 0, {}, "between 1 and the number of atoms, 5, got 0"),
        (torch.ones(5, 3), torch.ones(3), 6, {}, "between 1 and the number of atoms, 5, got 6"),
        (torch.ones(5, 3), torch.ones(3), 2.0, {}, "size must be an integer"),
        (torch.ones(5, 3).long(), torch.ones(3), 1, {}, "float32 or float64, got torch.int64"),
        (np.ones((5, 3), int), torch.ones(3), 1, {}, "float32 or float64, got torch.int64"),
        ([[1.0, 2.0]], torch.ones(2), 1, {}, "a tensor or a NumPy array"),
        (torch.ones(5, 3), [1.0, 1.0, 1.0], 1, {}, "target must be a tensor or a NumPy array"),
        (torch.ones(5, 3), torch.ones(3).long(), 1, {}, "target must be a floating-point"),
        (torch.ones(5), torch.ones(3), 1, {}, "matrix N×D"),
        (torch.ones(0, 3), torch.ones(3), 1, {}, "dictionary is empty"),
        (torch.ones(3, 0), torch.ones(0), 1, {}, "dimension 0"),
        (torch.ones(5, 3), torch.ones(3), 1, {"mode": "slow"}, "mode must be one of"),
        (torch.ones(5, 3), torch.ones(3), 1, {"tolerance": -0.1}, "tolerance must be"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(atoms, target, size, options, message):
    with pytest.raises(ValueError, match=message) as refusal:
        orthogonal_matching_pursuit(atoms, target, size, **options)
    assert "\n" not in str(refusal.value)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@MODES
def test_gpu_equals_cpu(mode):
    atoms, target = random_problem((500, 100), seed=15)
    expected = orthogonal_matching_pursuit(atoms, target, 80, mode=mode)
    actual = orthogonal_matching_pursuit(atoms.cuda(), target.cuda(), 80, mode=mode)
    assert torch.equal(actual.indices.cpu(), expected.indices)
    torch.testing.assert_close(actual.weights, expected.weights)
