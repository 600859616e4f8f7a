"""A last layer of few features keeps inner products on average, and exactly its own seed."""

import torch

from avalanche_gmc import LastLayerEmbedding
from benchmarks.grid.buffers import make_embedding
from benchmarks.grid.cells import make_cells
from benchmarks.grid.few_features import FewFeatures
from benchmarks.streams.models import mlp
from benchmarks.streams.opening import open_stream
from benchmarks.streams.registry import LAST_FEATURES, STREAMS, last_layer_dim


def examples(count=6):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(count, 5, generator=generator)
    return inputs, torch.arange(count) % 3


def rows_of(atoms):
    return atoms.rows(torch.arange(len(atoms)))


def test_gradients_are_outer_products_with_random_sums_of_the_features():
    whole = LastLayerEmbedding(lambda: mlp(5, 3, width=20), draws=2, seed=1)
    few = FewFeatures(LastLayerEmbedding(lambda: mlp(5, 3, width=20), draws=2, seed=1), 2 * 3 * 4)
    atoms, fewer = whole.embed(*examples()), few.embed(*examples())
    assert fewer.dim == few.dim == 2 * 3 * 4
    (sums,) = few._sums.values()
    assert sums.shape == (2, 21, 4) and torch.equal(sums.abs(), torch.full_like(sums, 0.5))
    expected = []
    for example in range(6):
        parts = [
            torch.outer(atoms.errors[draw, example], atoms.features[draw, example] @ sums[draw])
            for draw in range(2)
        ]
        expected.append(torch.cat([part.flatten() for part in parts]))
    torch.testing.assert_close(rows_of(fewer), torch.stack(expected))
    torch.testing.assert_close(rows_of(few.embed(*examples())), rows_of(fewer))


def test_inner_products_are_those_of_all_features_on_average():
    gaps = []
    for seed in range(10):
        inner = LastLayerEmbedding(lambda: mlp(5, 3, width=20), draws=60, seed=seed)
        few = rows_of(FewFeatures(inner, 60 * 3 * 2).embed(*examples()))
        whole = rows_of(inner.embed(*examples()))
        products, all_features = few @ few.T, whole @ whole.T
        gaps.append((products - all_features) / all_features.diagonal().mean())
    assert torch.stack(gaps).mean(0).abs().max() < 0.1


def test_a_cell_of_equal_dimension_has_that_dimension():
    stream = open_stream("digits")
    inputs, labels = stream.test_inputs[:4], stream.test_labels[:4]
    dims = {}
    for draws in (4, 16, 64):
        (cell,) = make_cells(
            "gdumb", ["digits"], ["gmc-last-layer"], [10], [0], draws=draws, same_dim_as=4
        )
        dims[draws] = make_embedding(cell, stream.make_model).embed(inputs, labels).dim
    assert dims == {4: 4 * 1290, 16: 16 * 320, 64: 64 * 80}


def test_the_registry_knows_the_last_layers():
    for name in ("digits", "noisy-digits", "sorted-digits"):
        stream = open_stream(name)
        assert STREAMS[name].classes == stream.num_classes
        *_, weight, bias = stream.make_model().parameters()
        assert last_layer_dim(name) == weight.numel() + bias.numel()
    assert {info.model for info in STREAMS.values()} <= set(LAST_FEATURES)
