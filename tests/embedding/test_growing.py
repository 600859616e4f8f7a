"""Gradients of heads that grow, against autograd through Avalanche's own models."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from avalanche.models import (
    PNN,
    IncrementalClassifier,
    MTSimpleMLP,
    MultiHeadClassifier,
    SimpleMLP,
    as_multitask,
)
from avalanche.models.dynamic_modules import avalanche_model_adaptation
from torch import Tensor, nn
from torch.nn import functional as F

from avalanche_gmc.dictionary import LastLayerDictionary
from avalanche_gmc.embedding import (
    GrowingHeadEmbedding,
    LastLayerEmbedding,
    LocalEmbedding,
    RandomProjectionEmbedding,
)
from avalanche_gmc.initialization import Redrawn

FEATURES, HIDDEN = 6, 5


def incremental() -> nn.Module:
    model = SimpleMLP(input_size=FEATURES, hidden_size=HIDDEN)
    model.classifier = IncrementalClassifier(HIDDEN)
    return model


def multi_task() -> nn.Module:
    return MTSimpleMLP(input_size=FEATURES, hidden_size=HIDDEN)


def decorated() -> nn.Module:
    return as_multitask(SimpleMLP(2, FEATURES, HIDDEN), "classifier")


MODELS = {"incremental": incremental, "multi-task": multi_task, "decorated": decorated}


class Labelled(torch.utils.data.Dataset):
    """Examples with the attributes that Avalanche's datasets have."""

    def __init__(self, labels: Sequence[Any], tasks: Sequence[int] | None, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.inputs = torch.randn(len(labels), FEATURES, generator=generator)
        self.targets = list(labels)
        if tasks is not None:
            self.targets_task_labels = list(tasks)

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return self.inputs[index], self.targets[index]


FIRST = Labelled([1, 0, 1, 0], [0, 0, 0, 0])
SECOND = Labelled([4, 2, 2, 0, 4, 1], [3, 3, 3, 3, 3, 0], seed=1)


def adapt(model: nn.Module, data: Labelled, task: int) -> None:
    """As a strategy does before it trains on an experience."""
    classes = [c for c, t in zip(data.targets, data.targets_task_labels, strict=True) if t == task]
    experience = SimpleNamespace(
        classes_in_this_experience=sorted(set(classes)), task_labels=[task]
    )
    avalanche_model_adaptation(model.train(), experience)


def heads_of(model: nn.Module) -> dict[int, nn.Linear]:
    found: Any = model.classifier
    if isinstance(found, IncrementalClassifier):
        return dict.fromkeys([0, 3], found.classifier)
    return {int(task): head.classifier for task, head in found.classifiers.items()}


def autograd_atoms(
    embedding: GrowingHeadEmbedding, model: nn.Module, data: Labelled, loss: Callable[..., Tensor]
) -> Tensor:
    """N×D: the model with the parameters of each draw, the gradient of its units for each example.

    :param model: adapted to all data so far.
    """
    per_task = isinstance(model.classifier, MultiHeadClassifier)
    rows = []
    for x, y, task in zip(data.inputs, data.targets, data.targets_task_labels, strict=True):
        parts = []
        for draw, units in zip(embedding._draws, embedding._weights(), strict=True):
            twin = copy.deepcopy(model).eval()
            twin.load_state_dict(draw.model.state_dict(), strict=False)
            heads = heads_of(twin)
            with torch.no_grad():
                for (task_of_unit, label), unit in zip(embedding._pairs, units, strict=True):
                    heads[task_of_unit].weight[label] = unit[:-1]
                    heads[task_of_unit].bias[label] = unit[-1]
            outputs = twin(x[None], task) if per_task else twin(x[None])
            loss(outputs, torch.tensor([y])).sum().backward()
            for task_of_unit, label in embedding._pairs:
                head = heads[task_of_unit]
                if head.weight.grad is None:
                    parts.append(torch.zeros(HIDDEN + 1))
                else:
                    parts.append(torch.cat([head.weight.grad[label], head.bias.grad[label, None]]))
        rows.append(torch.cat(parts))
    return torch.stack(rows)


@pytest.mark.parametrize(
    "loss", [F.cross_entropy, nn.CrossEntropyLoss(label_smoothing=0.2)], ids=["plain", "smoothed"]
)
@pytest.mark.parametrize("name", MODELS)
def test_atoms_equal_autograd_before_and_after_growing(
    name: str, loss: Callable[..., Tensor]
) -> None:
    model = MODELS[name]()
    embedding = GrowingHeadEmbedding(model, draws=2, loss=loss, batch_size=3)
    for data, task in ((FIRST, 0), (SECOND, 3)):
        found = embedding.embed(data)
        if task:
            adapt(model, data, 0)
        adapt(model, data, task)
        exact = autograd_atoms(embedding, model, data, loss)
        assert exact.shape == (len(data), embedding.dim)
        torch.testing.assert_close(found.rows(torch.arange(len(data))), exact)


@pytest.mark.parametrize("name", MODELS)
def test_a_head_that_grows_leaves_everything_earlier_as_it_was(name: str) -> None:
    embedding = GrowingHeadEmbedding(MODELS[name](), draws=3)
    first = embedding.embed(FIRST)
    weights = embedding._weights()
    embedding.embed(SECOND)
    assert embedding.num_units == (4 if name == "incremental" else 5)
    assert torch.equal(embedding._weights()[:, :2], weights)
    again = embedding.embed(FIRST)
    assert torch.equal(again.features, first.features)
    padded = first.with_outputs(embedding.num_units)
    assert padded.dim == embedding.dim
    assert torch.equal(padded.errors[:, :, :2], first.errors)
    assert not padded.errors[:, :, 2:].any()
    torch.testing.assert_close(embedding.extended(first.sum()), padded.sum())
    if name != "incremental":  # another task changes nothing for the examples of this one
        torch.testing.assert_close(again.errors[:, :, :2], first.errors)


def test_units_depend_neither_on_their_order_nor_on_the_size_of_the_models_head() -> None:
    model, grown = incremental(), incremental()
    late = Labelled([4, 2], [0, 0])
    adapt(grown, late, 0)
    one, other = GrowingHeadEmbedding(model, draws=2), GrowingHeadEmbedding(grown, draws=2)
    one.embed(FIRST)
    assert torch.equal(one.embed(late).features, other.embed(late).features)
    other.embed(FIRST)
    places = [one._pairs.index(pair) for pair in other._pairs]
    assert places == [2, 3, 0, 1]
    assert torch.equal(one._weights()[:, places], other._weights())


def test_units_of_draws_seeds_heads_and_classes_differ() -> None:
    units = [GrowingHeadEmbedding(multi_task(), draws=2, seed=seed) for seed in (0, 1)]
    for embedding in units:
        embedding.embed(SECOND)
    rows = torch.cat([embedding._weights().flatten(0, 1) for embedding in units])
    assert len(rows.unique(dim=0)) == len(rows)
    assert rows.abs().max() <= HIDDEN**-0.5 < 1.2 * rows.abs().max()


def test_a_state_and_a_pickle_go_on_with_the_same_units() -> None:
    model = multi_task()
    embedding = GrowingHeadEmbedding(model, draws=2)
    embedding.embed(FIRST)
    adapt(model, SECOND, 3)
    loaded = GrowingHeadEmbedding(model, draws=2, seed=5)
    loaded.load_state_dict(copy.deepcopy(embedding.state_dict()))
    pickled = pickle.loads(pickle.dumps(embedding))
    wanted = embedding.embed(SECOND)
    for twin in (loaded, pickled):
        assert twin.num_units == 2
        found = twin.embed(SECOND)
        assert torch.equal(found.errors, wanted.errors)
        assert torch.equal(found.features, wanted.features)


def test_growing_for_new_data_leaves_the_embedding_alone() -> None:
    embedding = GrowingHeadEmbedding(incremental(), draws=2)
    embedding.embed(FIRST)
    grown = embedding.grown(SECOND)
    assert (embedding.num_units, grown.num_units) == (2, 4)
    assert grown.grown(FIRST) is grown
    assert torch.equal(grown.embed(FIRST).features, embedding.embed(FIRST).features)


@pytest.mark.parametrize("label", [0, 1, 7])
def test_a_head_of_one_class_has_a_gradient(label: int) -> None:
    found = GrowingHeadEmbedding(incremental(), draws=2).embed(Labelled([label] * 3, None))
    assert found.dim == 2 * (HIDDEN + 1)
    assert (found.errors < -0.1).all()


def test_tensors_and_ignored_labels() -> None:
    embedding = GrowingHeadEmbedding(multi_task(), draws=2)
    labels, tasks = torch.tensor([1, -100, 2]), torch.tensor([0, 0, 5])
    found = embedding.embed(torch.ones(3, FEATURES), labels, tasks)
    assert embedding._pairs == ((0, 1), (5, 2))
    assert not found.errors[:, 1].any()
    assert found.errors[:, [0, 2]].any(dim=2).all()
    empty = embedding.embed(torch.ones(0, FEATURES), labels[:0], tasks[:0])
    assert (len(empty), empty.dim) == (0, embedding.dim)


def test_a_factory_makes_the_same_draws_as_its_models() -> None:
    data = Labelled([0, 1], None)
    embedding = GrowingHeadEmbedding(incremental, draws=2)
    found, again = embedding.embed(data), pickle.loads(pickle.dumps(embedding)).embed(data)
    assert torch.equal(found.features, again.features)
    assert not torch.equal(found.features[0], found.features[1])


@pytest.mark.parametrize("only", ["classifier", ["classifier", "features.3"]])
def test_a_pretrained_body_is_kept_and_its_head_may_have_grown(only: Any) -> None:
    model = SimpleMLP(input_size=FEATURES, hidden_size=HIDDEN, hidden_layers=2, drop_rate=0.0)
    model.classifier = IncrementalClassifier(HIDDEN)
    before = GrowingHeadEmbedding(Redrawn(model, only=only), draws=2)
    adapt(model, SECOND, 3)
    after = GrowingHeadEmbedding(Redrawn(model, only=only), draws=2)
    found = before.embed(SECOND)
    assert torch.equal(found.features, after.embed(SECOND).features)
    assert torch.equal(found.features[0], found.features[1]) == (only == "classifier")
    first = [draw.model.features[0].weight for draw in before._draws]
    assert torch.equal(first[0], model.features[0].weight)
    assert first[0] is first[1]  # nothing that is kept takes room twice
    if only == "classifier":
        torch.testing.assert_close(found.features[0, :, :-1], model.get_features(SECOND.inputs))


def test_a_model_may_be_nothing_but_its_head() -> None:
    embedding = GrowingHeadEmbedding(nn.Sequential(IncrementalClassifier(FEATURES)), draws=2)
    found = embedding.embed(FIRST)
    torch.testing.assert_close(found.features[1, :, :-1], FIRST.inputs)
    assert not torch.equal(found.errors[0], found.errors[1])


def test_batch_norm_is_calibrated_once() -> None:
    body = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.BatchNorm1d(HIDDEN), nn.ReLU())
    embedding = GrowingHeadEmbedding(nn.Sequential(body, IncrementalClassifier(HIDDEN)), draws=2)
    first = embedding.embed(FIRST)
    assert first.features[:, :, :-1].std() > 0.3
    embedding.embed(SECOND)
    assert torch.equal(embedding.embed(FIRST).features, first.features)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = IncrementalClassifier(FEATURES)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = 2 * self.head(x)
        return output


class TwoHeads(Scaled):
    def __init__(self) -> None:
        super().__init__()
        self.other = MultiHeadClassifier(FEATURES)


class Cosine(IncrementalClassifier):
    def forward(self, x: Tensor, **kwargs: Any) -> Tensor:
        return F.linear(F.normalize(x), F.normalize(self.classifier.weight))


@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        (multi_task(), Labelled([0], None), "one head per task.*with_task_labels"),
        (incremental(), Labelled([0.5], [0]), r"one class label per example, got the target 0\.5"),
        (incremental(), Labelled([torch.ones(2).long()], [0]), "one class label per example"),
        (incremental(), Labelled([-3], [0]), "at least 0, got -3"),
        (Scaled(), FIRST, "outputs of Scaled are not those of its growing head"),
        (TwoHeads(), FIRST, r"several heads that grow \(head, other\)"),
        (nn.Sequential(nn.Flatten(), Cosine(FEATURES)), FIRST, "no IncrementalClassifier"),
        (SimpleMLP(2, FEATURES, HIDDEN), FIRST, "no head that grows; use LastLayerEmbedding"),
        (IncrementalClassifier(FEATURES), FIRST, "as a part of it"),
        (nn.Sequential(PNN(1, FEATURES, 4), IncrementalClassifier(4)), FIRST, "PNN|several heads"),
    ],
)
def test_what_cannot_be_followed_is_refused(model: nn.Module, data: Labelled, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GrowingHeadEmbedding(model, draws=1).embed(data)


@pytest.mark.parametrize("kind", [LastLayerEmbedding, RandomProjectionEmbedding, LocalEmbedding])
def test_other_embeddings_refuse_growing_heads_and_name_the_one_that_follows(kind: Any) -> None:
    with pytest.raises(ValueError, match=r"last-layer gradients, which can grow .GrowingHeadEmb"):
        kind(multi_task())


def test_a_model_may_grow_its_head_and_nothing_else() -> None:
    model = multi_task()
    embedding = GrowingHeadEmbedding(model, draws=1)
    embedding.check_model(model)
    adapt(model, SECOND, 3)
    embedding.check_model(model)
    with pytest.raises(ValueError, match=r"features.0.weight has the shape \(9, 6\)"):
        embedding.check_model(MTSimpleMLP(FEATURES, 9))
    with pytest.raises(ValueError, match="SimpleMLP has no such head"):
        embedding.check_model(SimpleMLP(2, FEATURES, HIDDEN))


def test_layers_do_not_lose_outputs() -> None:
    dictionary = LastLayerDictionary(torch.ones(1, 2, 3), torch.ones(1, 2, 4))
    assert dictionary.with_outputs(3) is dictionary
    with pytest.raises(ValueError, match="3 outputs cannot grow to 2"):
        dictionary.with_outputs(2)
