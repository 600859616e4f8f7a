"""Trainings of the grid use the memory they are given, its weights included, and their seed."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from avalanche_gmc import GradientMatchingBuffer, LastLayerEmbedding
from avalanche_gmc.initialization import derive_seed, fresh_draws
from benchmarks.grid.buffers import SharedEmbedding, make_buffer, make_embedding
from benchmarks.grid.cells import make_cells
from benchmarks.grid.selection import memory_of, select, shared_embeddings
from benchmarks.grid.training import (
    BFLOAT16,
    FLOAT32,
    Memory,
    PlayedBackBuffer,
    Recipe,
    accuracy,
    train,
)
from benchmarks.streams.assembly import assemble
from benchmarks.streams.models import mlp
from benchmarks.streams.opening import open_stream


def memory(weights=None, seed=0):
    """Two classes, told apart by the sign of the first feature."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(40, 3, generator=generator)
    return Memory(inputs, (inputs[:, 0] > 0).long(), weights, None)


def recipe(make_model=lambda: mlp(3, 2), **options):
    defaults = {"epochs": 25, "batch_size": 20, "learning_rate": 1e-2, "seed": 0}
    return Recipe(make_model, **{**defaults, **options})


def train_gdumb(recipe, experience, memory):
    policy = PlayedBackBuffer(len(memory.labels), [memory], weighted=recipe.weighted)
    return train("gdumb", recipe, [experience], policy)


@pytest.fixture
def experience():
    return open_stream("digits").benchmark.train_stream[0]


def test_accuracy_counts_every_example_in_evaluation_mode(monkeypatch):
    model = nn.Sequential(nn.Dropout(0.9), nn.Linear(3, 2))
    inputs, labels = torch.randn(103, 3), torch.randint(0, 2, (103,))
    monkeypatch.setattr("benchmarks.grid.training.EVALUATION_NUMBERS", 30)
    found = accuracy(model, inputs, labels)
    assert model.training
    model.eval()
    expected = sum(
        int(model(x[None]).argmax()) == int(y) for x, y in zip(inputs, labels, strict=True)
    )
    assert found == expected / 103


def test_gdumb_learns_the_memory_and_nothing_else(experience):
    data = memory()
    model = train_gdumb(recipe(), experience, data)
    assert accuracy(model, data.inputs, data.labels) > 0.95
    assert model(torch.zeros(1, 3)).shape == (1, 2)


def test_training_depends_on_the_seed_alone(experience):
    torch.manual_seed(1)
    first = train_gdumb(recipe(epochs=3), experience, memory())
    torch.manual_seed(2)
    again = train_gdumb(recipe(epochs=3), experience, memory())
    other = train_gdumb(recipe(epochs=3, seed=1), experience, memory())
    for mine, same, different in zip(
        first.parameters(), again.parameters(), other.parameters(), strict=True
    ):
        assert torch.equal(mine, same) and not torch.equal(mine, different)


def test_exemplars_of_weight_zero_do_not_count(experience):
    """Labels of half the exemplars are wrong; their weight decides whether that matters."""
    clean = memory()
    wrong = Memory(
        torch.cat([clean.inputs, clean.inputs]),
        torch.cat([clean.labels, 1 - clean.labels]),
        torch.cat([torch.ones(40), torch.zeros(40)]),
        None,
    )
    weighted = train_gdumb(recipe(), experience, wrong)
    plain = train_gdumb(recipe(weighted=False), experience, wrong)
    assert accuracy(weighted, clean.inputs, clean.labels) > 0.95
    assert accuracy(plain, clean.inputs, clean.labels) < 0.9


def test_played_back_memories_come_in_order():
    first, second = memory(torch.arange(40.0)), memory(seed=1)
    buffer = PlayedBackBuffer(40, [first, second], weighted=True)
    assert len(buffer.buffer) == 0
    buffer.post_adapt(None, None)
    assert torch.equal(torch.stack([row[0] for row in buffer.buffer]), first.inputs)
    assert torch.equal(buffer.weights, first.weights)
    buffer.post_adapt(None, None)
    assert torch.equal(torch.stack([row[0] for row in buffer.buffer]), second.inputs)
    assert buffer.weights is None
    with pytest.raises(NotImplementedError):
        buffer.resize(None, 3)


def test_class_counts_include_classes_that_are_missing():
    found = Memory(torch.zeros(3, 1), torch.tensor([2, 0, 2]), None, None)
    assert found.class_counts(4) == [1, 0, 2, 0]


def test_shared_embedding_refuses_data_it_was_not_prepared_for():
    stream = open_stream("digits")
    (cell,) = make_cells("gdumb", ["digits"], ["gmc-last-layer"], [10], [0])
    shared = SharedEmbedding(make_embedding(cell, stream.make_model))
    first, second = (e.dataset for e in stream.benchmark.train_stream[:2])
    shared.begin_experience()
    atoms = shared.embed(first.eval())
    assert len(atoms) == len(first) and shared.seconds > 0
    seconds = shared.seconds
    shared.begin_buffer()
    assert shared.embed(first) is atoms and shared.seconds == seconds
    shared.begin_buffer()
    with pytest.raises(RuntimeError, match="different data"):
        shared.embed(second)


def assert_as_alone(memory, cell, stream):
    """A memory of the grid is that of a buffer which has the stream to itself."""
    buffer = GradientMatchingBuffer(cell.memory_size, seed=0)
    (model,) = fresh_draws(stream.make_model, 1, derive_seed(0))
    for experience in stream.benchmark.train_stream:
        buffer.update_from_dataset(experience.dataset, SimpleNamespace(model=model))
    assert torch.equal(memory.inputs, memory_of(buffer).inputs)
    assert torch.equal(memory.weights, buffer.weights)


def test_default_memories_share_equal_embeddings_and_keep_what_they_would_alone(monkeypatch):
    """Chunks of a few rows, so that a memory embeds several in each experience."""
    monkeypatch.setattr("avalanche_gmc.buffers.chunks.CHUNK_BYTES", 2**20)
    stream = open_stream("digits", train_fraction=0.3)
    cells = make_cells("gdumb", ["digits"], ["gmc"], [10, 20, 5000], [0])
    shared = shared_embeddings(cells, stream)
    assert shared[cells[0]] is shared[cells[1]] is not shared[cells[2]]
    selected = select(cells, stream)
    for cell in cells:
        assert_as_alone(selected[cell.key()].memories[4], cell, stream)
        assert selected[cell.key()].embedding_seconds > 0


def test_memories_with_fewer_draws_take_them_from_those_with_more(monkeypatch):
    stream = open_stream("digits", train_fraction=0.3)
    # 10 outputs of 8 features and a bias: 90 dimensions a draw, so 5, 9 and 16 draws.
    small = partial(mlp, 64, 10, width=8)
    stream = replace(stream, make_model=small)
    cells = make_cells("gdumb", ["digits"], ["gmc"], [20, 40, 200], [0])
    calls = []
    embed = LastLayerEmbedding.embed
    monkeypatch.setattr(
        LastLayerEmbedding, "embed", lambda self, data: calls.append(self.dim) or embed(self, data)
    )
    selected = select(cells, stream)
    assert len(set(calls)) == 1 and len(calls) == 5
    for cell in cells:
        assert_as_alone(selected[cell.key()].memories[4], cell, stream)
    seconds = [selected[cell.key()].embedding_seconds for cell in cells]
    assert 0 < seconds[0] < seconds[1] < seconds[2]


class Precisions(nn.Module):
    """Notes the precision in which its layer computes."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.seen = set()

    def forward(self, inputs):
        outputs = self.layer(inputs)
        self.seen.add(outputs.dtype)
        return outputs


@pytest.mark.parametrize("precision", [FLOAT32, BFLOAT16])
@pytest.mark.parametrize("paradigm", ["gdumb", "replay"])
def test_the_precision_is_that_of_passes_through_the_model_only(paradigm, precision):
    data = memory(torch.arange(1.0, 41.0))
    stream = assemble(train=[data.dataset(), data.dataset()], test=[data.dataset()]).train_stream
    training = recipe(make_model=Precisions, precision=precision, epochs=2)
    policy = PlayedBackBuffer(40, [data, data], weighted=True)
    model = train(paradigm, training, stream, policy)
    expected = torch.bfloat16 if precision == BFLOAT16 else torch.float32
    assert model.seen == {expected}
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())


@pytest.mark.parametrize(
    "method", ["reservoir", "class-balanced", "sliding-window", "facility-location"]
)
def test_baselines_keep_as_many_exemplars_as_asked(method):
    (cell,) = make_cells("gdumb", ["digits"], [method], [30], [0])
    buffer = make_buffer(cell, None)
    for experience in open_stream("digits").benchmark.train_stream:
        buffer.update_from_dataset(experience.dataset)
    assert len(buffer.buffer) == 30


def test_gss_at_draws_does_not_look_at_the_model_being_trained():
    (cell,) = make_cells("rivals", ["digits"], ["gss-draws"], [30], [0])
    stream = open_stream("digits")
    buffer = make_buffer(cell, make_embedding(cell, stream.make_model))
    for experience in stream.benchmark.train_stream:
        buffer.update_from_dataset(experience.dataset)
    labels = {int(sample[1]) for sample in buffer.buffer}
    assert len(buffer.buffer) == 30 and len(labels) > 5


@pytest.mark.parametrize("projection", ["sparse", "rademacher"])
def test_projection_options_reach_the_embedding(projection):
    options = {"draws": 2, "dim": 50, "projection": projection}
    (cell,) = make_cells("gdumb", ["digits"], ["gmc-projection"], [10], [0], **options)
    embedding = make_embedding(cell, open_stream("digits").make_model)
    assert embedding.dim == 100
    dictionary = embedding.embed(open_stream("digits").benchmark.train_stream[0].dataset)
    assert dictionary.dim == 100
