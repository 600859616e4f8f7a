"""Structured dictionaries answer as the dense one built from them."""

from __future__ import annotations

import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import dense_last_layer

import avalanche_gmc.dictionary.last_layer as dictionary_module
from avalanche_gmc import DenseDictionary, Dictionary, LastLayerDictionary


def make_last_layer(seed: int = 0, shape: tuple[int, int, int, int] = (2, 9, 3, 4)):
    draws, count, outputs, features = shape
    generator = torch.Generator().manual_seed(seed)
    errors = torch.randn(draws, count, outputs, generator=generator, dtype=torch.float64)
    inputs = torch.randn(draws, count, features, generator=generator, dtype=torch.float64)
    return LastLayerDictionary(errors, inputs)


def make_dense() -> DenseDictionary:
    atoms = torch.randn(9, 24, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return DenseDictionary(atoms)


def matrix_of(dictionary: Dictionary) -> torch.Tensor:
    if isinstance(dictionary, LastLayerDictionary):
        return dense_last_layer(dictionary.errors, dictionary.features)
    assert isinstance(dictionary, DenseDictionary)
    return dictionary.atoms


MAKERS = pytest.mark.parametrize("make", [make_dense, make_last_layer])


@MAKERS
def test_answers_are_those_of_the_matrix(make):
    dictionary = make()
    matrix = matrix_of(dictionary)
    vectors = torch.randn(dictionary.dim, 5, dtype=torch.float64)
    chosen = torch.tensor([4, 0, 4])
    assert (dictionary.num_atoms, dictionary.dim) == matrix.shape
    assert len(dictionary) == len(matrix)
    torch.testing.assert_close(dictionary.correlate(vectors), matrix @ vectors)
    torch.testing.assert_close(dictionary.correlate(vectors[:, 0]), matrix @ vectors[:, 0])
    torch.testing.assert_close(dictionary.norms(), matrix.norm(dim=1))
    torch.testing.assert_close(dictionary.rows(chosen), matrix[chosen])
    some = dictionary.correlate_some(chosen, vectors[:, 1].clone())
    torch.testing.assert_close(some, matrix[chosen] @ vectors[:, 1])
    torch.testing.assert_close(dictionary.sum(), matrix.sum(dim=0))
    torch.testing.assert_close(matrix_of(dictionary.take(chosen)), matrix[chosen])
    both = dictionary.concat(dictionary.take(chosen))
    torch.testing.assert_close(matrix_of(both), torch.cat([matrix, matrix[chosen]]))


@MAKERS
def test_packed_atoms_are_the_same_elsewhere(make):
    dictionary, chosen = make(), torch.tensor([4, 0, 4])
    packed = dictionary.packed(chosen)
    elsewhere = dictionary.take(torch.arange(0)).unpacked(packed.clone())
    assert type(elsewhere) is type(dictionary)
    assert torch.equal(matrix_of(elsewhere), matrix_of(dictionary)[chosen])
    assert packed.nbytes == dictionary.take(chosen).nbytes
    assert dictionary.packed(torch.arange(0)).shape == (0, packed.shape[1])


@given(
    shape=st.tuples(st.integers(1, 3), st.integers(0, 7), st.integers(1, 4), st.integers(1, 5)),
    count=st.integers(1, 4),
    seed=st.integers(0, 999),
)
def test_last_layer_equals_dense_in_every_shape(shape, count, seed):
    dictionary = make_last_layer(seed, shape)
    vectors = torch.randn(dictionary.dim, count, dtype=torch.float64)
    rows = dictionary.rows(torch.arange(shape[1]))
    torch.testing.assert_close(dictionary.correlate(vectors), rows @ vectors)
    torch.testing.assert_close(dictionary.norms(), rows.norm(dim=1))
    torch.testing.assert_close(dictionary.sum(), rows.sum(dim=0))


@MAKERS
def test_small_blocks_give_the_same_answers(make, monkeypatch):
    dictionary = make()
    vectors = torch.randn(dictionary.dim, 5, dtype=torch.float64)
    whole = dictionary.correlate(vectors), dictionary.sum()
    monkeypatch.setattr(dictionary_module, "CHUNK_ELEMENTS", 1)
    monkeypatch.setattr("avalanche_gmc.dictionary.dense.BLOCK_ROWS", 2)
    torch.testing.assert_close((dictionary.correlate(vectors), dictionary.sum()), whole)


def test_norms_and_sums_are_wide_enough_for_large_entries():
    huge = DenseDictionary(torch.full((2, 3), 1e30))
    assert huge.norms().dtype == torch.float64
    torch.testing.assert_close(huge.norms(), torch.full((2,), 3**0.5 * 1e30, dtype=torch.float64))
    assert huge.sum().dtype == torch.float64


def test_last_layer_needs_a_fifth_of_the_memory_for_ten_classes():
    structured = LastLayerDictionary(torch.zeros(4, 50, 10), torch.zeros(4, 50, 129))
    assert 5 * structured.nbytes <= DenseDictionary(torch.zeros(50, structured.dim)).nbytes


@MAKERS
def test_take_owns_its_atoms_and_survives_pickling(make):
    dictionary = make()
    taken = dictionary.take(torch.arange(2))
    assert taken.nbytes * 9 == dictionary.nbytes * 2
    assert len(pickle.dumps(taken)) < len(pickle.dumps(dictionary)) * 2 / 3
    restored = pickle.loads(pickle.dumps(taken))
    assert torch.equal(matrix_of(restored), matrix_of(taken))
    assert torch.equal(matrix_of(taken.to("cpu")), matrix_of(taken))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DenseDictionary(torch.zeros(3)), "matrix N×D, got shape"),
        (lambda: DenseDictionary(torch.zeros(3, 2, dtype=torch.int64)), "got torch.int64"),
        (lambda: LastLayerDictionary(torch.zeros(1, 2, 3), torch.zeros(1, 4, 3)), "same S and N"),
        (
            lambda: LastLayerDictionary(torch.zeros(1, 2, 3), torch.zeros(1, 2, 3).double()),
            "agree in dtype",
        ),
        (
            lambda: DenseDictionary(torch.zeros(1, 2)).concat(DenseDictionary(torch.zeros(1, 3))),
            "agree in dimension, got 2 and 3",
        ),
        (
            lambda: make_last_layer().concat(make_last_layer(shape=(2, 9, 4, 4))),
            "agree in shape of errors",
        ),
    ],
)
def test_bad_input_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_repr_tells_size_and_place():
    expected = "DenseDictionary(num_atoms=9, dim=24, dtype=float64, device='cpu')"
    assert repr(make_dense()) == expected
