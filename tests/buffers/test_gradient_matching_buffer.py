"""The gradient-matching memory against a plain reading of Algorithm 2, on streams of any shape."""

import pickle
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from avalanche.benchmarks.utils import AvalancheDataset
from avalanche.benchmarks.utils.data_attribute import DataAttribute, TaskLabels
from avalanche.benchmarks.utils.transform_groups import TransformGroups
from avalanche.training.storage_policy import ReservoirSamplingBuffer
from reference import naive_pursuit
from scipy.optimize import nnls
from sklearn.datasets import load_digits
from small_streams import mlp
from torch import nn
from torch.utils.data import TensorDataset

from avalanche_gmc.buffers import GradientMatchingBuffer, chunks, gradient_matching, streaming
from avalanche_gmc.dictionary import DenseDictionary
from avalanche_gmc.embedding import LastLayerEmbedding, LocalEmbedding, RandomProjectionEmbedding

FEATURES = 6
CLASSES = 6


class FakeEmbedding:
    """A fixed nonlinear map to D numbers, in float64, so that picks are unambiguous."""

    def __init__(self, dim=60):
        self.dim = dim
        generator = torch.Generator().manual_seed(5)
        self._map = torch.randn(FEATURES, dim, generator=generator, dtype=torch.float64)
        self._shift = torch.randn(CLASSES, dim, generator=generator, dtype=torch.float64)
        self.calls = []

    def embed(self, dataset):
        self.calls.append(len(dataset))
        rows = [torch.tanh(x.double() @ self._map) + self._shift[y] for x, y, *_ in dataset]
        return DenseDictionary(torch.stack(rows))

    def state_dict(self):
        return {"map": self._map}

    def load_state_dict(self, state):
        self._map = state["map"]


def dataset(size, number=0, classes=CLASSES, transforms=None):
    generator = torch.Generator().manual_seed(number)
    x = torch.randn(size, FEATURES, generator=generator) + number % 3
    y = torch.randint(classes, (size,), generator=generator)
    return AvalancheDataset(
        [TensorDataset(x, y)],
        data_attributes=[DataAttribute(y.tolist(), "targets"), TaskLabels([0] * size)],
        transform_groups=transforms,
    )


def stream(*sizes):
    return [dataset(size, number) for number, size in enumerate(sizes)]


def feed(buffer, datasets, strategy=None):
    for data in datasets:
        buffer.update_from_dataset(data, strategy)
    return buffer


def inputs(buffer):
    """The exemplars, without the train transform."""
    return [tuple(x.tolist()) for x, *_ in buffer.buffer.eval()]


def contents(buffer):
    return inputs(buffer), buffer.weights.tolist(), buffer.target.tolist(), buffer.residual_norm


def algorithm_2(datasets, size, embedding):
    """The paper's pseudo-code, with examples and embeddings in plain lists."""
    target, kept = np.zeros(embedding.dim), []
    for data in datasets:
        atoms = embedding.embed(data).atoms.numpy()
        examples = [tuple(x.tolist()) for x, *_ in data]
        target = target + atoms.sum(axis=0)
        candidates = kept + list(zip(examples, atoms, strict=True))
        matrix = np.stack([atom for _, atom in candidates])
        picks = naive_pursuit(torch.tensor(matrix), torch.tensor(target), size)[0][0]
        chosen = matrix[picks].T
        fit = nnls(chosen, target)[0]
        kept = [candidates[pick] for pick in picks]
    residual = np.linalg.norm(target - chosen @ fit) / np.linalg.norm(target)
    return [example for example, _ in kept], fit, target, residual


def residual_of(buffer, embedding, datasets, weights=None):
    """How far the weighted memory is from everything seen, relative to it."""
    target = sum(embedding.embed(data.eval()).sum() for data in datasets)
    atoms = embedding.embed(buffer.buffer.eval()).rows(torch.arange(len(buffer.buffer)))
    weights = buffer.weights if weights is None else weights
    return float((target - weights.double() @ atoms.double()).norm() / target.norm())


def test_equals_algorithm_2_on_three_experiences():
    datasets = stream(50, 40, 45)
    buffer = feed(GradientMatchingBuffer(15, FakeEmbedding()), datasets)
    examples, weights, target, residual = algorithm_2(datasets, 15, FakeEmbedding())
    assert inputs(buffer) == examples
    np.testing.assert_allclose(buffer.weights, weights, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(buffer.target, target, rtol=1e-12)
    assert buffer.residual_norm == pytest.approx(residual, rel=1e-6)
    assert buffer.num_seen == 135


def test_small_updates_end_as_algorithm_2_on_merged_batches():
    datasets = [dataset(10, number) for number in range(16)]
    buffer = GradientMatchingBuffer(80, FakeEmbedding(100))
    feed(buffer, datasets)
    assert buffer.num_seen == 160
    # Nine updates overflow the memory, then every second one completes a quarter of it.
    merged = [concat(datasets[:9]), *(concat(datasets[k : k + 2]) for k in (9, 11, 13))]
    shown = inputs(buffer)
    assert shown[-10:] == [tuple(x.tolist()) for x, *_ in datasets[15]]
    assert buffer.weights[-10:].tolist() == [1] * 10
    examples, weights, target, _ = algorithm_2(merged, 80, FakeEmbedding(100))
    assert shown[:70] == examples[:70]
    np.testing.assert_allclose(buffer.weights[:70], weights[:70], rtol=1e-4, atol=1e-4)
    latest = FakeEmbedding(100).embed(datasets[15]).sum().numpy()
    np.testing.assert_allclose(buffer.target, target + latest, rtol=1e-9, atol=1e-9)
    buffer.flush()
    examples, weights, target, _ = algorithm_2([*merged, datasets[15]], 80, FakeEmbedding(100))
    assert inputs(buffer) == examples
    np.testing.assert_allclose(buffer.weights, weights, rtol=1e-4, atol=1e-4)
    before = contents(buffer)
    buffer.flush()
    assert contents(buffer) == before


def concat(datasets):
    joined = datasets[0]
    for data in datasets[1:]:
        joined = joined.concat(data)
    return joined


def test_everything_seen_is_kept_with_weight_1_while_it_fits():
    datasets = stream(7, 1, 12)
    buffer = feed(GradientMatchingBuffer(20, FakeEmbedding()), datasets)
    assert inputs(buffer) == [tuple(x.tolist()) for data in datasets for x, *_ in data]
    assert buffer.weights.tolist() == [1] * 20
    assert buffer.weights.dtype == torch.float32
    assert buffer.residual_norm == 0
    assert buffer.effective_size == pytest.approx(20)
    assert residual_of(buffer, FakeEmbedding(), datasets) < 1e-12


STREAMS = {
    "class-incremental": [[0, 1], [2, 3], [4, 5]],
    "sorted": None,
    "one large": [[0, 1, 2, 3, 4, 5]],
}


def long_stream(name):
    if name == "sorted":
        data = dataset(900)
        order = sorted(range(900), key=lambda i: float(data[i][0][0]))
        return [data.subset(order[k : k + 90]) for k in range(0, 900, 90)]
    parts = []
    for number, classes in enumerate(STREAMS[name]):
        data = dataset(600, number)
        parts.append(data.subset([i for i, y in enumerate(data.targets) if y in classes]))
    return parts


KINDS = {
    "last layer": LastLayerEmbedding,
    "projection": lambda model: RandomProjectionEmbedding(model, dim=200),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("name", STREAMS)
def test_residual_is_far_below_a_uniform_sample(name, kind):
    datasets = long_stream(name)
    embedding = kind(mlp(CLASSES))
    buffer = feed(GradientMatchingBuffer(30, embedding), datasets)
    residual = residual_of(buffer, embedding, datasets)
    assert residual == pytest.approx(buffer.residual_norm, rel=1e-3)
    reservoir = ReservoirSamplingBuffer(30)
    for data in datasets:
        reservoir.update_from_dataset(data)
    weights = torch.full((30,), buffer.num_seen / 30)
    assert residual < 0.35 * residual_of(reservoir, embedding, datasets, weights)


def test_chunks_leave_about_the_same_residual():
    datasets = digits_by_class()
    embedding = LastLayerEmbedding(nn.Sequential(nn.Linear(64, 50), nn.ReLU(), nn.Linear(50, 10)))
    whole = feed(GradientMatchingBuffer(50, embedding), datasets)
    chunked = feed(GradientMatchingBuffer(50, embedding, chunk_size=90), datasets)
    assert chunked.num_seen == whole.num_seen == 1797
    torch.testing.assert_close(chunked.target, whole.target)
    assert chunked.residual_norm < 1.15 * whole.residual_norm
    residual = residual_of(chunked, embedding, datasets)
    assert residual == pytest.approx(chunked.residual_norm, rel=1e-4)


def digits_by_class():
    """Scikit-learn's digits, two classes at a time."""
    x, y = (torch.tensor(array) for array in load_digits(return_X_y=True))
    whole = AvalancheDataset(
        [TensorDataset(x.float() / 16, y)], data_attributes=[DataAttribute(y.tolist(), "targets")]
    )
    return [whole.subset((y // 2 == t).nonzero()[:, 0].tolist()) for t in range(5)]


def test_chunks_bound_what_is_embedded_at_once_and_are_even():
    embedding = FakeEmbedding()
    feed(GradientMatchingBuffer(10, embedding, chunk_size=60), [dataset(200)])
    assert embedding.calls == [50, 50, 50, 50]


def test_automatic_chunks_fit_the_budget(monkeypatch):
    sizes = []
    absorb = streaming.absorb

    def spy(memory, chunk, *options):
        sizes.append((len(chunk), chunk.embeddings.nbytes))
        return absorb(memory, chunk, *options)

    monkeypatch.setattr(gradient_matching, "absorb", spy)
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 40_000)
    dense = RandomProjectionEmbedding(mlp(CLASSES), draws=1, dim=100)
    feed(GradientMatchingBuffer(10, dense), [dataset(250)])
    assert [count for count, _ in sizes] == [83, 83, 84]
    sizes.clear()
    # 4 draws of 6 errors and 9 features each are 240 bytes, not 4·216.
    feed(GradientMatchingBuffer(10, LastLayerEmbedding(mlp(CLASSES))), [dataset(250)])
    assert all(nbytes <= 40_000 for _, nbytes in sizes)
    assert len(sizes) == 2


def test_embeddings_use_the_eval_transform_and_replay_the_train_transform():
    transforms = TransformGroups({"train": lambda x: x * 0 - 99, "eval": lambda x: x / 2})
    data = dataset(40, transforms=transforms)
    embedding = FakeEmbedding()
    buffer = feed(GradientMatchingBuffer(10, embedding), [data])
    torch.testing.assert_close(buffer.target, embedding.embed(data.eval()).sum())
    assert residual_of(buffer, embedding, [data]) == pytest.approx(buffer.residual_norm, rel=1e-4)
    assert buffer.buffer[0][0].tolist() == [-99] * FEATURES
    assert buffer.buffer.train()[3][0].tolist() == [-99] * FEATURES


def test_shrinking_is_a_pursuit_over_the_stored_embeddings():
    embedding = FakeEmbedding()
    buffer = feed(GradientMatchingBuffer(20, embedding), stream(60, 50))
    atoms = embedding.embed(buffer.buffer).atoms
    picks = naive_pursuit(atoms, buffer.target, 7)[0][0]
    expected = [inputs(buffer)[pick] for pick in picks]
    target = buffer.target.clone()
    weights = nnls(atoms[picks].T.numpy(), target.numpy())[0]
    calls = len(embedding.calls)
    buffer.resize(None, 7)
    assert inputs(buffer) == expected
    np.testing.assert_allclose(buffer.weights, weights, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(buffer.target, target)
    assert len(embedding.calls) == calls


def test_shrinking_includes_pending_examples():
    datasets = [*stream(90), dataset(10, 1)]
    buffer = feed(GradientMatchingBuffer(80, FakeEmbedding(100)), datasets)
    assert buffer.weights[-10:].tolist() == [1] * 10
    buffer.resize(None, 80)
    assert buffer.weights[-10:].tolist() == [1] * 10
    buffer.resize(None, 79)
    assert buffer.residual_norm == pytest.approx(
        residual_of(buffer, FakeEmbedding(100), datasets), rel=1e-4
    )


def test_growing_after_examples_were_dropped():
    datasets = stream(40, 30)
    buffer = feed(GradientMatchingBuffer(10, FakeEmbedding()), datasets[:1])
    before = inputs(buffer)
    buffer.resize(None, 60)
    assert inputs(buffer) == before
    feed(buffer, datasets[1:])
    assert len(buffer.buffer) == 40
    assert set(before) <= set(inputs(buffer))
    assert residual_of(buffer, FakeEmbedding(), datasets) == pytest.approx(
        buffer.residual_norm, rel=1e-3, abs=1e-6
    )


SPECS = {
    "default": lambda: None,
    "last-layer": lambda: "last-layer",
    "random-projection": lambda: "random-projection",
    "local": lambda: "local",
    "given": FakeEmbedding,
}


@pytest.mark.parametrize("make", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("before", [(), (4,), (40, 5)], ids=["empty", "not full", "full"])
def test_a_state_dict_goes_on_to_the_identical_memory(make, before):
    strategy = SimpleNamespace(model=mlp(CLASSES))
    buffer = feed(GradientMatchingBuffer(12, make(), seed=3), stream(*before), strategy)
    state = pickle.loads(pickle.dumps(buffer.state_dict()))
    twin = GradientMatchingBuffer(99, make(), seed=3)
    twin.load_state_dict(state)
    if before:
        assert contents(twin) == contents(buffer)
        assert pickle.dumps(twin.state_dict()["embedding"]) == pickle.dumps(state["embedding"])
    more = [dataset(5, 7), dataset(30, 8)]
    feed(buffer, more, strategy)
    feed(twin, more, strategy)
    assert contents(twin) == contents(buffer)
    assert twin.max_size == 12


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        (None, LastLayerEmbedding),
        ("last-layer", LastLayerEmbedding),
        ("random-projection", RandomProjectionEmbedding),
    ],
)
def test_built_embeddings_take_model_and_seed(spec, kind):
    model = mlp(CLASSES)
    built = GradientMatchingBuffer(8, spec, seed=4)
    feed(built, stream(40, 30), SimpleNamespace(model=model))
    given = feed(GradientMatchingBuffer(8, kind(model, seed=4)), stream(40, 30))
    assert contents(built) == contents(given)
    other = GradientMatchingBuffer(8, spec, seed=5)
    feed(other, stream(40, 30), SimpleNamespace(model=model))
    assert contents(other) != contents(given)


def test_the_criterion_is_the_loss():
    model, criterion = mlp(CLASSES), nn.CrossEntropyLoss(label_smoothing=0.3)
    strategy = SimpleNamespace(model=model, _criterion=criterion)
    built = feed(GradientMatchingBuffer(8), stream(40), strategy)
    given = GradientMatchingBuffer(8, LastLayerEmbedding(model, loss=criterion))
    assert contents(built) == contents(feed(given, stream(40)))
    plain = GradientMatchingBuffer(8, LastLayerEmbedding(model))
    assert contents(built) != contents(feed(plain, stream(40)))
    assert criterion.reduction == "mean"


@pytest.mark.parametrize("given", [False, True], ids=["by name", "given"])
def test_the_local_variant_embeds_the_memory_again(given):
    strategy = SimpleNamespace(model=mlp(CLASSES))
    first, second = stream(40, 30)
    spec = LocalEmbedding(strategy.model) if given else "local"
    buffer = feed(GradientMatchingBuffer(8, spec), [first], strategy)
    memory, weights = buffer.buffer, buffer.weights.double()
    strategy.model = mlp(CLASSES, seed=9)
    now = LocalEmbedding(strategy.model)
    old, new = now.embed(memory), now.embed(second)
    target = weights @ old.rows(torch.arange(8)).double() + new.sum()
    feed(buffer, [second], strategy)
    torch.testing.assert_close(buffer.target, target, rtol=1e-5, atol=1e-5)
    atoms = torch.cat([old.rows(torch.arange(8)), new.rows(torch.arange(30))])
    picks = naive_pursuit(atoms, target, 8)[0][0]
    examples = [tuple(x.tolist()) for data in (memory, second) for x, *_ in data]
    assert inputs(buffer) == [examples[pick] for pick in picks]


def test_a_given_local_embedding_keeps_its_options_and_follows_the_model():
    model = mlp(CLASSES)
    options = {"reduction": "random-projection", "dim": 50, "seed": 3}
    buffer = feed(GradientMatchingBuffer(8, LocalEmbedding(model, **options)), stream(40))
    torch.testing.assert_close(
        buffer.target, LocalEmbedding(model, **options).embed(stream(40)[0]).sum()
    )
    weights, memory = buffer.weights.double(), buffer.buffer
    moved = mlp(CLASSES, seed=9)
    now = LocalEmbedding(moved, **options)
    target = weights @ now.embed(memory).rows(torch.arange(8)).double()
    second = dataset(30, 1)
    feed(buffer, [second], SimpleNamespace(model=moved))
    torch.testing.assert_close(buffer.target, target + now.embed(second).sum())


def test_what_is_handed_out_can_be_changed_without_harm():
    buffer = feed(GradientMatchingBuffer(12, FakeEmbedding()), stream(40))
    before = contents(buffer)
    state = buffer.state_dict()
    twin = GradientMatchingBuffer(12, FakeEmbedding())
    twin.load_state_dict(state)
    picked, seen = state["memory"].picked, state["memory"].seen
    for tensor in (buffer.weights, buffer.target, picked.stands_for, seen.sums[0]):
        tensor.zero_()
    picked.embeddings.atoms.zero_()
    more = [dataset(30, 5)]
    assert contents(buffer) == contents(twin) == before
    assert contents(feed(buffer, more)) == contents(feed(twin, more))


def test_in_place_transforms_leave_the_exemplars_alone():
    transforms = TransformGroups({"train": lambda x: x.mul_(3), "eval": lambda x: x.add_(1)})
    data = dataset(40, transforms=transforms)
    buffer = feed(GradientMatchingBuffer(10, "local"), [data], SimpleNamespace(model=mlp(CLASSES)))
    first = [[x.tolist() for x, *_ in view] for view in (buffer.buffer, buffer.buffer.eval())]
    again = [[x.tolist() for x, *_ in view] for view in (buffer.buffer, buffer.buffer.eval())]
    assert again == first


def test_a_stream_of_small_updates_costs_the_same_all_along(monkeypatch):
    atoms = []
    pursuit = streaming.orthogonal_matching_pursuit

    def spy(dictionary, *args, **options):
        atoms.append(len(dictionary))
        return pursuit(dictionary, *args, **options)

    monkeypatch.setattr(streaming, "orthogonal_matching_pursuit", spy)
    embedding = FakeEmbedding(100)
    buffer, data, sizes = GradientMatchingBuffer(64, embedding), dataset(1200), []
    for k in range(120):
        buffer.update_from_dataset(data.subset(list(range(10 * k, 10 * k + 10))))
        assert len(buffer.buffer) == min(10 * k + 10, 64)
        sizes.append(len(pickle.dumps(buffer.state_dict())))
    assert embedding.calls == [10] * 120
    assert max(atoms) < 64 + 16 + 10
    assert len(atoms) == 57
    assert max(sizes[60:]) <= max(sizes[10:60]) + 16
    expected = embedding.embed(data).sum()
    torch.testing.assert_close(buffer.target, expected, rtol=1e-9, atol=1e-9)
    assert buffer.num_seen == 1200
    buffer.flush()
    assert residual_of(buffer, embedding, [data]) == pytest.approx(buffer.residual_norm, rel=1e-3)


@pytest.mark.slow
def test_two_thousand_small_updates_are_flat_in_time_and_memory():
    buffer, strategy = GradientMatchingBuffer(100), SimpleNamespace(model=mlp(CLASSES))
    data, times, sizes = dataset(20_000), [], []
    for k in range(2000):
        part = data.subset(list(range(10 * k, 10 * k + 10)))
        start = time.process_time()  # the machine may be busy
        buffer.update_from_dataset(part, strategy)
        times.append(time.process_time() - start)
        sizes.append(len(pickle.dumps(buffer)))
    early, late = sum(times[200:800]), sum(times[1400:])
    assert late < 1.5 * early
    assert max(sizes[1000:]) <= max(sizes[20:1000]) + 100
    assert buffer.num_seen == 20_000


def test_without_a_strategy_there_must_be_an_embedding():
    buffer = GradientMatchingBuffer(5)
    with pytest.raises(ValueError, match=r"update_from_dataset\(data, strategy\)"):
        buffer.update_from_dataset(dataset(10))
    feed(buffer, [dataset(10)], SimpleNamespace(model=mlp(CLASSES)))
    buffer.update_from_dataset(dataset(10, 1))
    assert buffer.num_seen == 20


def test_a_criterion_that_cannot_be_had_for_each_example():
    strategy = SimpleNamespace(model=mlp(CLASSES), _criterion=lambda out, y: out.sum())
    with pytest.raises(ValueError, match="reduction"):
        feed(GradientMatchingBuffer(5), [dataset(10)], strategy)


def test_a_growing_head_is_refused_and_leaves_the_memory_alone():
    strategy = SimpleNamespace(model=mlp(2))
    buffer = feed(GradientMatchingBuffer(5), [dataset(20, classes=2)], strategy)
    before = contents(buffer)
    strategy.model = mlp(4)
    with pytest.raises(ValueError, match="from the start"):
        feed(buffer, [dataset(20, 1)], strategy)
    assert contents(buffer) == before


class Products:
    """Embeddings for targets of any shape: the products of inputs and targets."""

    dim = 24

    def embed(self, dataset):
        rows = [torch.outer(x, y.flatten().float()).flatten() for x, y, *_ in dataset]
        rows = torch.stack(rows)
        return DenseDictionary(torch.nn.functional.pad(rows, (0, self.dim - rows.shape[1])))


TARGETS = {
    "regression": torch.rand(40) + 1,
    "several numbers": torch.rand(40, 3),
    "several labels": torch.randint(2, (40, 4)),
    "one label in a vector": torch.randint(3, (40, 1)),
}


@pytest.mark.parametrize("targets", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("labelled", [True, False])
def test_targets_need_not_be_classes(targets, labelled):
    attributes = [DataAttribute(list(targets), "targets")] if labelled else []
    leaf = TensorDataset(torch.rand(40, FEATURES), targets)
    data = AvalancheDataset([leaf], data_attributes=attributes)
    buffer = feed(GradientMatchingBuffer(5, Products()), [data])
    assert len(buffer.buffer) == 5
    assert residual_of(buffer, Products(), [data]) == pytest.approx(buffer.residual_norm, rel=1e-3)
    classes = labelled and targets.shape == (40, 1)
    assert sum(buffer.class_counts.values()) == (5 if classes else 0)
    assert ("classes" in repr(buffer)) == classes


@pytest.mark.parametrize("target", ["cat", None, {"label": 1}], ids=["text", "None", "dict"])
@pytest.mark.parametrize("labelled", [True, False])
def test_targets_that_are_no_numbers_are_refused_in_a_sentence(target, labelled):
    leaf = [(torch.rand(FEATURES), target)] * 10
    attributes = [DataAttribute([0] * 9 + [target], "targets")] if labelled else []
    data = AvalancheDataset([leaf], data_attributes=attributes)
    buffer = feed(GradientMatchingBuffer(5, FakeEmbedding()), stream(20))
    before = contents(buffer)
    with pytest.raises(ValueError, match=f"example {9 if labelled else 0} is .*must be a number"):
        feed(buffer, [data])
    assert contents(buffer) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"embedding": "gradient"}, "last-layer"),
        ({"embedding": 3}, "embed"),
        ({"mode": "quick"}, "mode"),
        ({"chunk_size": 0}, "chunk_size"),
        ({"chunk_size": 1.5}, "chunk_size"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        GradientMatchingBuffer(10, **options)


def test_repr():
    buffer = feed(GradientMatchingBuffer(10, FakeEmbedding()), stream(30))
    text = repr(buffer)
    assert text.startswith("GradientMatchingBuffer(10 of 10 exemplars, 30 seen, residual 0.")
    assert f"effective size {buffer.effective_size:.1f}" in text
    assert sum(buffer.class_counts.values()) == 10
    assert str(buffer.class_counts) in text
