"""A memory whose target is the mean of the class means, on streams of any shape."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from avalanche.benchmarks.utils import AvalancheDataset
from avalanche.benchmarks.utils.data_attribute import DataAttribute
from reference import naive_pursuit
from scipy.optimize import nnls
from small_streams import mlp
from torch.utils.data import TensorDataset

from avalanche_gmc import DenseDictionary, GradientMatchingBuffer
from avalanche_gmc.buffers import class_sums
from avalanche_gmc.collectives import RankValueError

FEATURES, CLASSES, DIM = 5, 3, 70


class Features:
    """A fixed nonlinear map to D numbers, in float64, so that picks are unambiguous."""

    dim = DIM

    def __init__(self):
        generator = torch.Generator().manual_seed(3)
        self._map = torch.randn(FEATURES, DIM, generator=generator).double()
        self._shift = torch.randn(CLASSES, DIM, generator=generator).double()

    def embed(self, data):
        return DenseDictionary(self.rows(data))

    def rows(self, data):
        rows = [torch.tanh(x.double() @ self._map) + self._shift[int(y)] for x, y, *_ in data]
        return torch.stack(rows) if rows else torch.zeros(0, DIM).double()


def dataset(counts, seed=0):
    """So many examples of each class, shuffled."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(CLASSES).repeat_interleave(torch.tensor(counts))
    y = y[torch.randperm(len(y), generator=generator)]
    x = torch.randn(len(y), FEATURES, generator=generator) + y[:, None]
    return AvalancheDataset(
        [TensorDataset(x, y)], data_attributes=[DataAttribute(y.tolist(), "targets")]
    )


IMBALANCED = [dataset([40, 0, 0], 1), dataset([0, 10, 0], 2), dataset([5, 5, 300], 3)]


def balanced(size, **options):
    return GradientMatchingBuffer(size, Features(), target="balanced", **options)


def feed(buffer, datasets):
    for data in datasets:
        buffer.update_from_dataset(data)
    return buffer


def examples(data):
    return [tuple(x.tolist()) for x, *_ in data]


def target_of(datasets):
    """N times the mean of the class means."""
    rows = torch.cat([Features().rows(data) for data in datasets])
    labels = torch.tensor([label for data in datasets for label in data.targets])
    means = [rows[labels == label].mean(dim=0) for label in labels.unique()]
    return len(labels) * torch.stack(means).mean(dim=0)


def residual_of(buffer, datasets):
    target = target_of(datasets)
    left = target - buffer.weights.double() @ Features().rows(buffer.buffer)
    return float(left.norm() / target.norm())


def by_class(buffer):
    labels = torch.tensor(list(buffer.buffer.targets))
    return [float(buffer.weights[labels == label].sum()) for label in range(CLASSES)]


def algorithm_2(datasets, size):
    """The paper's pseudo-code with the other target."""
    kept = []
    for seen in range(1, len(datasets) + 1):
        target = target_of(datasets[:seen])
        new = datasets[seen - 1]
        candidates = kept + list(zip(examples(new), Features().rows(new), strict=True))
        matrix = torch.stack([row for _, row in candidates])
        picks = naive_pursuit(matrix, target, size)[0][0]
        weights = nnls(matrix[picks].T.numpy(), target.numpy())[0]
        kept = [candidates[pick] for pick in picks]
    return [example for example, _ in kept], weights


def test_equals_algorithm_2_with_the_mean_of_class_means():
    buffer = feed(balanced(20), IMBALANCED)
    kept, weights = algorithm_2(IMBALANCED, 20)
    assert examples(buffer.buffer) == kept
    np.testing.assert_allclose(buffer.weights, weights, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(buffer.target, target_of(IMBALANCED))
    assert buffer.residual_norm == pytest.approx(residual_of(buffer, IMBALANCED), rel=1e-4)
    assert buffer.num_seen == 360


def test_classes_count_alike_where_the_stream_has_them_unequal():
    stream = feed(GradientMatchingBuffer(30, Features()), IMBALANCED)
    buffer = feed(balanced(30), IMBALANCED)
    assert by_class(stream)[1] < 0.2 * by_class(stream)[2]
    for weight in by_class(buffer):
        assert weight == pytest.approx(120, rel=0.15)


def test_while_everything_fits_weights_balance_the_classes():
    buffer = feed(balanced(100), [dataset([6, 0, 0]), dataset([0, 2, 12], 1)])
    assert by_class(buffer) == pytest.approx([20 / 3] * 3)
    labels = torch.tensor(list(buffer.buffer.targets))
    expected = torch.tensor([20 / (3 * count) for count in (6, 2, 12)])[labels]
    torch.testing.assert_close(buffer.weights, expected)
    assert buffer.residual_norm == 0
    assert residual_of(buffer, [dataset([6, 0, 0]), dataset([0, 2, 12], 1)]) < 1e-6


def test_one_class_or_equal_classes_are_the_stream():
    for datasets in ([dataset([50, 0, 0])], [dataset([20, 20, 20])]):
        stream = feed(GradientMatchingBuffer(15, Features()), datasets)
        buffer = feed(balanced(15), datasets)
        assert examples(buffer.buffer) == examples(stream.buffer)
        torch.testing.assert_close(buffer.weights, stream.weights)


def test_pending_examples_of_a_new_class_get_their_weight_at_once():
    datasets = [dataset([70, 40, 0]), dataset([0, 0, 4], 1)]
    buffer = feed(balanced(60), datasets)
    assert list(buffer.buffer.targets)[-4:] == [2] * 4
    # 114 examples of 3 classes: each class has a third of the weight.
    assert buffer.weights[-4:].tolist() == pytest.approx([114 / (3 * 4)] * 4)
    assert by_class(buffer) == pytest.approx([38] * 3, rel=0.3)
    torch.testing.assert_close(buffer.target, target_of(datasets))
    buffer.flush()
    assert residual_of(buffer, datasets) == pytest.approx(buffer.residual_norm, rel=1e-3)


def test_chunks_small_updates_and_resizing_keep_the_target():
    datasets = [*IMBALANCED, dataset([2, 1, 0], 5), dataset([0, 3, 2], 6)]
    for options in ({}, {"chunk_size": 130}):
        buffer = feed(balanced(40, **options), datasets)
        torch.testing.assert_close(buffer.target, target_of(datasets))
        buffer.resize(None, 25)
        assert len(buffer.buffer) == 25
        torch.testing.assert_close(buffer.target, target_of(datasets))
        assert residual_of(buffer, datasets) == pytest.approx(buffer.residual_norm, rel=1e-3)


def test_a_state_and_a_pickle_go_on_to_the_same_memory():
    buffer = feed(balanced(50), [*IMBALANCED, dataset([2, 1, 0], 5)])
    twin = balanced(50)
    twin.load_state_dict(pickle.loads(pickle.dumps(buffer.state_dict())))
    third = pickle.loads(pickle.dumps(buffer))
    assert len(pickle.dumps(buffer._memory.seen)) < 3 * 8 * DIM + 2500
    for memory in (buffer, twin, third):
        feed(memory, [dataset([0, 3, 2], 6), dataset([30, 3, 2], 7)])
    assert examples(twin.buffer) == examples(buffer.buffer) == examples(third.buffer)
    assert twin.weights.tolist() == buffer.weights.tolist() == third.weights.tolist()
    with pytest.raises(ValueError, match="target='balanced'"):
        GradientMatchingBuffer(50, Features()).load_state_dict(buffer.state_dict())


def test_the_local_variant_keeps_the_balance():
    strategy = SimpleNamespace(model=mlp(CLASSES))
    strategy.model[0] = torch.nn.Linear(FEATURES, 8)
    buffer = GradientMatchingBuffer(20, "local", target="balanced")
    for data in IMBALANCED:
        buffer.update_from_dataset(data, strategy)
    assert by_class(buffer) == pytest.approx([120] * 3, rel=0.4)


def test_sums_that_would_take_too_much_room_are_refused(monkeypatch):
    monkeypatch.setattr(class_sums, "MOST_BYTES", 2 * 8 * DIM)
    buffer = feed(balanced(10), [dataset([20, 20, 0])])
    with pytest.raises(ValueError, match=r"sum of 70 numbers for each class, .* for 3 classes"):
        feed(buffer, [dataset([0, 0, 5])])
    assert buffer.num_seen == 40
    feed(GradientMatchingBuffer(10, Features()), [dataset([20, 20, 20])])


@pytest.mark.parametrize("targets", [torch.rand(20), torch.randint(2, (20, 3))])
def test_targets_that_are_no_classes_are_refused(targets):
    data = AvalancheDataset(
        [TensorDataset(torch.rand(20, FEATURES), targets)],
        data_attributes=[DataAttribute(list(targets), "targets")],
    )
    with pytest.raises(ValueError, match="one integer class label per example"):
        feed(balanced(5), [data])
    with pytest.raises(ValueError, match="target must be one of"):
        GradientMatchingBuffer(5, target="classes")


def on_a_rank(rank, mixed):
    target = "balanced" if not mixed or rank else "stream"
    buffer = GradientMatchingBuffer(30, Features(), target=target)
    try:
        feed(buffer, [*IMBALANCED, dataset([1, 1, 1], 5), dataset([1, 0, 0], 6)])
    except RankValueError as error:
        return error
    return examples(buffer.buffer), buffer.weights, buffer.target


def test_two_ranks_have_the_memory_of_one_process(pair):
    alone = on_a_rank(0, False)
    for found in pair.results(on_a_rank, False):
        assert found[0] == alone[0]
        torch.testing.assert_close(found[1], alone[1], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(found[2], alone[2])
    for error in pair.run(on_a_rank, True):
        assert "same target of the pursuit, but rank 0 has stream" in str(error)
