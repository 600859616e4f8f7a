"""The pursuit in the span of the atoms picks what it picks in all dimensions."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from avalanche_gmc import DenseDictionary, LastLayerDictionary, orthogonal_matching_pursuit
from avalanche_gmc.buffers import own_span
from avalanche_gmc.buffers.own_span import in_own_span


def dense(count, dim, generator):
    return DenseDictionary(torch.randn(count, dim, generator=generator, dtype=torch.float64))


def last_layer(count, dim, generator):
    errors = torch.randn(2, count, 4, generator=generator, dtype=torch.float64)
    features = torch.randn(2, count, dim // 8, generator=generator, dtype=torch.float64)
    return LastLayerDictionary(errors, features)


KINDS = {"dense": dense, "last layer": last_layer}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@settings(max_examples=12)
@given(count=st.integers(2, 40), seed=st.integers(0, 10**6), outside=st.sampled_from([0.0, 30.0]))
def test_same_picks_weights_and_residual(kind, count, seed, outside):
    generator = torch.Generator().manual_seed(seed)
    atoms = kind(count, 120, generator)
    target = atoms.sum() + outside * torch.randn(120, generator=generator, dtype=torch.float64)
    size = max(1, 2 * count // 3)
    rows, coordinates = in_own_span(atoms, target, size)
    assert rows.dim == count + 1
    assert float(coordinates.norm()) == pytest.approx(float(target.norm()))
    torch.testing.assert_close(rows.norms(), atoms.norms())
    plain = orthogonal_matching_pursuit(atoms, target, size)
    spanned = orthogonal_matching_pursuit(rows, coordinates, size)
    assert spanned.indices.tolist() == plain.indices.tolist()
    torch.testing.assert_close(spanned.weights, plain.weights, rtol=1e-6, atol=1e-6)
    assert spanned.residual_norm == pytest.approx(plain.residual_norm, abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_and_zero_atoms(dtype):
    rows = torch.randn(6, 50, dtype=dtype)
    atoms = DenseDictionary(torch.cat([rows, rows, torch.zeros(2, 50, dtype=dtype)]))
    target = rows.double().sum(dim=0)
    found = orthogonal_matching_pursuit(*in_own_span(atoms, target, 12), 6)
    assert found.residual_norm < 1e-5
    assert {pick % 6 for pick in found.indices.tolist()} == set(range(6))


@pytest.mark.parametrize(("count", "dim", "size"), [(30, 50, 20), (30, 100, 14)])
def test_unchanged_where_it_would_not_save_time(count, dim, size):
    atoms = dense(count, dim, torch.Generator().manual_seed(0))
    target = atoms.sum()
    assert in_own_span(atoms, target, size) == (atoms, target)


def test_many_last_layer_gradients_stay_as_they_are(monkeypatch):
    atoms = last_layer(30, 120, torch.Generator().manual_seed(0))
    monkeypatch.setattr(own_span, "MOST_FACTORED", 29)
    assert in_own_span(atoms, atoms.sum(), 20)[0] is atoms
    monkeypatch.setattr(own_span, "MOST_FACTORED", 30)
    assert in_own_span(atoms, atoms.sum(), 20)[0] is not atoms
