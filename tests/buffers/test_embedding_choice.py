"""How many draws a memory takes when it builds its embedding itself."""

import pickle
import warnings
from types import SimpleNamespace

import pytest
import torch
from avalanche.benchmarks.utils import as_classification_dataset
from torch import nn
from torch.utils.data import TensorDataset

from avalanche_gmc import GradientMatchingBuffer, LastLayerEmbedding
from avalanche_gmc.buffers.embedding_choice import (
    ALWAYS_KEPT,
    fewer_dimensions,
    last_layer_draws,
)
from avalanche_gmc.embedding import fewer_features
from avalanche_gmc.embedding.fewer_features import FEWEST_FEATURES, FewerFeatures

FEATURES, CLASSES = 5, 2
PER_DRAW = 2 * (9 + 1)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 9), nn.ReLU(), nn.Linear(9, CLASSES))


def examples(size: int, number: int = 0):
    generator = torch.Generator().manual_seed(number)
    x = torch.randn(size, FEATURES, generator=generator)
    data = TensorDataset(x, (x[:, 0] > 0).long())
    data.targets = data.tensors[1]
    return as_classification_dataset(data)


def contents(buffer: GradientMatchingBuffer):
    exemplars = [tuple(x.tolist()) for x, *_ in buffer.buffer.eval()]
    return exemplars, buffer.weights.tolist()


@pytest.mark.parametrize(
    ("size", "draws"),
    [
        *[(1, 4), (4, 4), (5, 5), (6, 6), (15, 15), (16, 16), (17, 16)],
        *[(45, 16), (46, 17), (100, 35), (182, 64), (183, 64), (10**6, 64)],
    ],
)
def test_twenty_dimensions_per_exemplar_where_4_to_16_draws_have_them(size, draws):
    assert LastLayerEmbedding(model(), draws=1).dim == PER_DRAW
    assert last_layer_draws(model(), size) == draws


@pytest.mark.parametrize(
    ("per_draw", "size", "draws"),
    [(1000, 1, 4), (2000, 1, 4), (2000, 400, 4), (2000, 401, 5), (9000, 1, 4), (9000, 1801, 5)],
)
def test_never_fewer_draws_than_the_papers(per_draw, size, draws):
    assert last_layer_draws(nn.Linear(per_draw // CLASSES - 1, CLASSES), size) == draws


@pytest.mark.parametrize("spec", [None, "last-layer"])
@pytest.mark.parametrize(("size", "draws"), [(4, 4), (10, 10)])
def test_a_memory_draws_for_its_size(spec, size, draws):
    built, strategy = GradientMatchingBuffer(size, spec, seed=3), SimpleNamespace(model=model())
    given = GradientMatchingBuffer(size, LastLayerEmbedding(model(), draws=draws, seed=3))
    built.update_from_dataset(examples(60), strategy)
    given.update_from_dataset(examples(60))
    assert built.state_dict()["embedding"]["draws"] == draws
    assert contents(built) == contents(given)


@pytest.mark.parametrize(("first", "then"), [(14, 6), (6, 14)])
def test_a_resized_memory_keeps_its_draws_through_a_checkpoint(first, then):
    strategy = SimpleNamespace(model=model())
    buffer = GradientMatchingBuffer(first)
    buffer.update_from_dataset(examples(60), strategy)
    draws = buffer.state_dict()["embedding"]["draws"]
    buffer.resize(strategy, then)
    twin = GradientMatchingBuffer(then)
    twin.load_state_dict(buffer.state_dict())
    for memory in (buffer, twin):
        memory.update_from_dataset(examples(50, number=1), strategy)
    assert twin.state_dict()["embedding"]["draws"] == draws == first
    assert contents(twin) == contents(buffer)


@pytest.mark.parametrize("spec", ["random-projection", "given"])
def test_other_embeddings_keep_theirs(spec):
    embedding = LastLayerEmbedding(model(), draws=2) if spec == "given" else spec
    buffer = GradientMatchingBuffer(300, embedding)
    buffer.update_from_dataset(examples(40), SimpleNamespace(model=model()))
    assert buffer.state_dict()["embedding"]["draws"] == (2 if spec == "given" else 4)


def test_an_embedding_with_fewer_dimensions_than_exemplars_is_warned_of():
    embedding = LastLayerEmbedding(model(), draws=2)  # 40 dimensions
    with pytest.warns(UserWarning, match="40 dimensions for 41 exemplars"):
        GradientMatchingBuffer(41, embedding).update_from_dataset(examples(60))


@pytest.mark.parametrize(
    ("size", "draws"), [(40, 2), (41, None), (60, 2)], ids=["enough", "built here", "all kept"]
)
def test_no_warning_where_there_is_no_reason(size, draws):
    embedding = None if draws is None else LastLayerEmbedding(model(), draws=draws)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        buffer = GradientMatchingBuffer(size, embedding)
        buffer.update_from_dataset(examples(60), SimpleNamespace(model=model()))


def wide(features: int = 6000) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, features), nn.ReLU(), nn.Linear(features, CLASSES))


def test_a_wide_layer_has_fewer_features_the_same_after_a_checkpoint():
    strategy, buffer = SimpleNamespace(model=wide()), GradientMatchingBuffer(30)
    buffer.update_from_dataset(examples(60), strategy)
    # 4 draws of 2·6001 dimensions are 48,008.
    assert buffer.target.shape == (ALWAYS_KEPT,)
    twin = GradientMatchingBuffer(99)
    twin.load_state_dict(pickle.loads(pickle.dumps(buffer.state_dict())))
    third = pickle.loads(pickle.dumps(buffer))
    buffer.resize(None, 20)
    for memory in (twin, third):
        memory.resize(None, 20)
    for memory in (buffer, twin, third):
        memory.update_from_dataset(examples(50, number=1), strategy)
    assert contents(twin) == contents(buffer) == contents(third)
    twin.resize(None, 500)
    twin.update_from_dataset(examples(400, number=2), strategy)
    assert twin.target.shape == (ALWAYS_KEPT,)


@pytest.mark.parametrize(
    ("dim", "size", "reduced"),
    [
        *[(39_999, 1, None), (40_000, 1000, 20_000), (40_039, 1001, None)],
        *[(40_040, 1001, 20_020), (10**6, 9, 20_000)],
    ],
)
def test_features_are_summed_only_where_that_halves_the_dimensions(dim, size, reduced):
    assert fewer_dimensions(dim, size) == reduced


def test_a_memory_keeps_all_features_of_a_layer_that_is_not_wide():
    strategy, buffer = SimpleNamespace(model=wide()), GradientMatchingBuffer(1300)
    buffer.update_from_dataset(examples(10), strategy)
    assert buffer.target.shape == (4 * CLASSES * 6001,)  # 26,000 would not be half
    twin = GradientMatchingBuffer(30)
    twin.load_state_dict(buffer.state_dict())
    twin.update_from_dataset(examples(5, number=1), strategy)
    assert twin.target.shape == buffer.target.shape


def test_fewer_features_keep_the_inner_products():
    inner = LastLayerEmbedding(wide(3000), draws=2)
    few = FewerFeatures(LastLayerEmbedding(wide(3000), draws=2), 4000)
    full, less = (embedding.embed(examples(40)) for embedding in (inner, few))
    assert (less.dim, few.dim) == (4000, 4000)
    every = torch.arange(40)
    grams = [rows @ rows.T for rows in (full.rows(every), less.rows(every))]
    assert float((grams[1] - grams[0]).norm() / grams[0].norm()) < 0.05
    narrow = FewerFeatures(LastLayerEmbedding(wide(3000), draws=2), 10)
    assert narrow.embed(examples(3)).dim == 2 * CLASSES * FEWEST_FEATURES
    same = FewerFeatures(LastLayerEmbedding(model(), draws=2), 10)
    assert same.embed(examples(3)).dim == 2 * PER_DRAW
    with pytest.raises(ValueError, match="dim=4000"):
        narrow.load_state_dict(few.state_dict())


def test_signs_that_are_many_are_drawn_in_blocks_and_not_kept(monkeypatch):
    whole, parts = (FewerFeatures(LastLayerEmbedding(wide(3000), draws=2), 4000) for _ in range(2))
    kept = whole.embed(examples(5))
    monkeypatch.setattr(fewer_features, "SIGNS_KEPT", 10)
    monkeypatch.setattr(fewer_features, "SIGNS_AT_ONCE", 12345)
    drawn = parts.embed(examples(5))
    assert parts._signs is None
    torch.testing.assert_close(drawn.features, kept.features)
    assert torch.equal(drawn.errors, kept.errors)
