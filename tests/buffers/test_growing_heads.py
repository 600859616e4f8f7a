"""Memories of models whose heads appear and grow with the stream."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from avalanche.benchmarks.utils import AvalancheDataset
from avalanche.models import IncrementalClassifier, MTSimpleMLP, SimpleMLP, as_multitask
from small_streams import FEATURES, dataset
from torch import Tensor, nn

from avalanche_gmc import GradientMatchingBuffer, GrowingHeadEmbedding
from avalanche_gmc.buffers.embedding_choice import last_layer_draws
from avalanche_gmc.initialization import Redrawn

HIDDEN = 8


def incremental() -> nn.Module:
    model = SimpleMLP(input_size=FEATURES, hidden_size=HIDDEN)
    model.classifier = IncrementalClassifier(HIDDEN)
    return model


MODELS: dict[str, Callable[[], nn.Module]] = {
    "incremental": incremental,
    "multi-task": lambda: MTSimpleMLP(FEATURES, HIDDEN),
    "decorated": lambda: as_multitask(SimpleMLP(2, FEATURES, HIDDEN), "classifier"),
}


def experiences(sizes: tuple[int, ...] = (30, 25, 3, 40)) -> list[AvalancheDataset]:
    """Each with a class that is new and one that is not, sorted by class, and a task of its own."""
    found = []
    for task, size in enumerate(sizes):
        data = dataset([task, task + 1], size, task=task % 3, seed=task)
        found.append(data.subset(sorted(range(size), key=lambda i: int(data.targets[i]))))
    return found


def feed(buffer: Any, data: list[AvalancheDataset], model: nn.Module | None) -> Any:
    for part in data:
        buffer.update_from_dataset(part, None if model is None else SimpleNamespace(model=model))
    return buffer


def contents(buffer: GradientMatchingBuffer) -> tuple[Any, ...]:
    inputs = [tuple(x.tolist()) for x, *_ in buffer.buffer.eval()]
    target = None if buffer.target is None else buffer.target.tolist()
    return inputs, buffer.weights.tolist(), target, buffer.residual_norm


def sums_as_seen(model: nn.Module, data: list[AvalancheDataset], draws: int) -> Tensor:
    """Each experience embedded with the units known then, the sums padded to those known last."""
    embedding = GrowingHeadEmbedding(copy.deepcopy(model), draws=draws)
    sums = [embedding.embed(part.eval()).sum() for part in data]
    return sum((embedding.extended(part) for part in sums), torch.zeros(embedding.dim))


@pytest.mark.parametrize("chunk_size", [None, 7])
@pytest.mark.parametrize("name", MODELS)
def test_the_target_is_the_sum_of_the_gradients_as_they_were_seen(
    name: str, chunk_size: int | None
) -> None:
    model, data = MODELS[name](), experiences()
    buffer = feed(GradientMatchingBuffer(12, chunk_size=chunk_size), data, model)
    wanted = sums_as_seen(model, data, last_layer_draws(model, 12))
    torch.testing.assert_close(buffer.target, wanted.double(), rtol=1e-5, atol=1e-5)
    assert len(buffer.buffer) == 12
    assert 0 < buffer.residual_norm < 0.5
    assert set(buffer.class_counts) == set(range(5))


@pytest.mark.parametrize("name", MODELS)
def test_a_balanced_target_grows_too(name: str) -> None:
    buffer = feed(GradientMatchingBuffer(15, target="balanced"), experiences(), MODELS[name]())
    weights, labels = buffer.weights, torch.tensor([int(y) for _, y, *_ in buffer.buffer])
    per_class = torch.tensor([float(weights[labels == label].sum()) for label in range(5)])
    torch.testing.assert_close(per_class, torch.full((5,), 98 / 5), rtol=0.5, atol=0)


def test_memories_may_share_an_embedding() -> None:
    body = [nn.Linear(FEATURES, HIDDEN), nn.BatchNorm1d(HIDDEN), nn.ReLU()]
    shared = GrowingHeadEmbedding(nn.Sequential(*body, IncrementalClassifier(HIDDEN)), draws=4)
    data = experiences()
    first, second = GradientMatchingBuffer(12, shared), GradientMatchingBuffer(12, shared)
    feed(first, data[:1], None)
    before = first._embedding._embedding.embed(data[0].eval()).features
    feed(second, data[2:], None)
    assert torch.equal(first._embedding._embedding.embed(data[0].eval()).features, before)
    feed(first, data[1:], None)
    assert len(first.target) == 4 * 5 * (HIDDEN + 1)


def test_a_trained_model_is_named_in_the_warning() -> None:
    model = SimpleMLP(input_size=32, hidden_size=32)
    with torch.no_grad():
        model.features[0].weight[::2] *= 10
    model.classifier = IncrementalClassifier(32)
    with pytest.warns(UserWarning, match="SimpleMLP looks trained"):
        GrowingHeadEmbedding(model)


def test_one_class_at_a_time_stays_in_the_memory() -> None:
    data = [dataset([label], 20, seed=label) for label in (3, 0, 5, 1)]
    buffer = feed(GradientMatchingBuffer(12), data, incremental())
    assert set(buffer.class_counts) == {0, 1, 3, 5}


@pytest.mark.parametrize("given", [False, True], ids=["built", "given"])
def test_new_classes_need_no_strategy_once_there_is_an_embedding(given: bool) -> None:
    model, data = incremental(), experiences()
    draws = last_layer_draws(model, 12)
    embedding = GrowingHeadEmbedding(model, draws=draws) if given else None
    buffer = feed(GradientMatchingBuffer(12, embedding), data[:1], model)
    feed(buffer, data[1:], None)
    twin = feed(GradientMatchingBuffer(12), data, model)
    assert contents(buffer) == contents(twin)


@pytest.mark.parametrize("fails_at", [0, 2])
@pytest.mark.parametrize("given", [False, True], ids=["built", "given"])
def test_an_update_that_fails_changes_nothing(given: bool, fails_at: int) -> None:
    model, data = MODELS["multi-task"](), experiences()
    embedding = GrowingHeadEmbedding(model, draws=4) if given else None
    buffer = feed(GradientMatchingBuffer(12, embedding), data[:fails_at], model)
    before, state = contents(buffer), buffer.state_dict()["embedding"]
    broken = dataset([7, 8], 20, task=9)
    broken[3][0].fill_(float("nan"))
    with pytest.raises(ValueError, match="finite"):
        feed(buffer, [broken], model)
    assert contents(buffer) == before
    after = buffer.state_dict()["embedding"]
    assert (after and after["units"]) == (state and state["units"])
    embedding = GrowingHeadEmbedding(model, draws=4) if given else None
    twin = feed(GradientMatchingBuffer(12, embedding), data, model)
    assert contents(feed(buffer, data[fails_at:], model)) == contents(twin)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("way", ["state", "pickle"])
def test_a_saved_memory_goes_on_as_if_nothing_had_happened(name: str, way: str) -> None:
    model, data = MODELS[name](), experiences()
    whole = feed(GradientMatchingBuffer(12), data, model)
    half = feed(GradientMatchingBuffer(12), data[:2], model)
    if way == "pickle":
        again = pickle.loads(pickle.dumps(half))
    else:
        again = GradientMatchingBuffer(12)
        again.load_state_dict(pickle.loads(pickle.dumps(half.state_dict())))
    assert contents(again) == contents(half)
    assert contents(feed(again, data[2:], model)) == contents(whole)


def test_pending_examples_grow_and_a_memory_shrinks() -> None:
    model = incremental()
    data = experiences((40, 3, 4, 1))
    buffer = feed(GradientMatchingBuffer(36), data, model)
    dims = {part.embeddings.dim for part in (buffer._memory.picked, buffer._memory.pending)}
    assert dims == {len(buffer.target)}
    buffer.flush()
    buffer.resize(None, 5)
    assert len(buffer.buffer) == 5


def test_a_pretrained_body_of_a_growing_model() -> None:
    model = incremental()
    buffer = GradientMatchingBuffer(12, model_factory=Redrawn(model, only="classifier"))
    feed(buffer, experiences(), model)
    assert set(buffer.class_counts) == set(range(5))


def test_a_factory_of_growing_models() -> None:
    state = torch.random.get_rng_state()
    buffer = GradientMatchingBuffer(12, model_factory=incremental)
    feed(buffer, experiences(), incremental())
    assert set(buffer.class_counts) == set(range(5))
    torch.random.set_rng_state(state)
    incremental()
    after_one_model = torch.random.get_rng_state()
    torch.random.set_rng_state(state)
    feed(GradientMatchingBuffer(12, model_factory=incremental), experiences(), incremental())
    assert torch.equal(torch.random.get_rng_state(), after_one_model)


@pytest.mark.parametrize("kind", ["random-projection", "local"])
def test_embeddings_that_cannot_follow_the_head_are_refused(kind: Any) -> None:
    buffer = GradientMatchingBuffer(12, kind)
    with pytest.raises(ValueError, match=r"dynamic module .*use last-layer gradients"):
        feed(buffer, experiences(), incremental())
    assert len(buffer.buffer) == 0


def test_several_heads_need_task_labels() -> None:
    data = dataset([0, 1], 20)
    plain = AvalancheDataset([[(x, int(y)) for x, y, *_ in data]])
    with pytest.raises(ValueError, match="no task labels"):
        feed(GradientMatchingBuffer(12), [plain], MTSimpleMLP(FEATURES, HIDDEN))


def test_another_body_is_refused() -> None:
    data = experiences()
    buffer = feed(GradientMatchingBuffer(12), data[:1], MTSimpleMLP(FEATURES, HIDDEN))
    with pytest.raises(ValueError, match="cannot be compared"):
        feed(buffer, data[1:2], MTSimpleMLP(FEATURES, HIDDEN + 1))
