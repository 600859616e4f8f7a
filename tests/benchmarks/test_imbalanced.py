"""The imbalanced stream and its training are those that were published."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.utils import shuffle

from benchmarks.grid import runner, training
from benchmarks.grid.buffers import make_buffer
from benchmarks.grid.cells import make_cells, make_groups
from benchmarks.grid.experiments import EXPERIMENTS
from benchmarks.grid.rows import ResultsFile
from benchmarks.report import tables
from benchmarks.streams import images
from benchmarks.streams.models import count_parameters, dropout_cnn
from benchmarks.streams.opening import open_stream


def test_stream_has_four_small_tasks_and_a_large_one(mnist):
    benchmark = images.imbalanced_mnist()
    assert [len(e.dataset) for e in benchmark.train_stream] == [125] * 22
    labels = np.concatenate([list(e.dataset.targets) for e in benchmark.train_stream])
    assert np.bincount(labels // 2).tolist() == [200, 200, 200, 200, 1950]
    assert (np.diff(labels // 2) >= 0).all()
    assert [set(e.classes_in_this_experience) for e in benchmark.test_stream] == [
        {0, 1},
        {2, 3},
        {4, 5},
        {6, 7},
        {8, 9},
    ]
    seen = {tuple(x[0][0, 0, :2].tolist()) for e in benchmark.train_stream for x in e.dataset}
    assert len(seen) == 22 * 125


def test_images_are_the_ones_of_the_authors_for_every_seed(mnist):
    """Drawn and put in order as their description says, with NumPy's older generator."""
    draw, expected = np.random.RandomState(0), []
    for pair, count in zip(range(5), (200, 200, 200, 200, 2000), strict=True):
        labels = mnist.train[1]
        chosen = draw.choice(np.where(labels // 2 == pair)[0], count, replace=False)
        expected += shuffle(chosen, random_state=0).tolist()
    pixels = images.normalized(mnist.train[0][expected[:2750]], images.MNIST_PIXELS)
    cells = make_cells("imbalanced", ["imbalanced-mnist"], ["reservoir"], [100], [0, 1])
    for cell in cells:
        stream = runner.open_for(cell, None).benchmark.train_stream
        found = torch.stack([x[0] for e in stream for x in e.dataset])
        assert torch.equal(found, pixels)


def test_model_is_the_published_one():
    model = dropout_cnn()
    kinds = [type(layer).__name__ for layer in model]
    block = ["Conv2d", "Dropout", "ReLU", "MaxPool2d"]
    assert kinds == [*block, *block, "Flatten", "Linear", "ReLU", "Dropout", "Linear"]
    assert model(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    assert count_parameters(model) == 832 + 51_264 + 131_200 + 1_290


def test_score_is_the_mean_over_tasks(mnist):
    stream = open_stream("imbalanced-mnist")
    assert len(stream.test_sizes) == 5 and sum(stream.test_sizes) == 200
    model = torch.nn.Linear(1, 10)
    model.forward = lambda x: torch.nn.functional.one_hot(torch.zeros(len(x)).long(), 10)
    first = (stream.test_labels[: stream.test_sizes[0]] == 0).float().mean()
    assert runner.score(model, stream, "float32") == pytest.approx(float(first) / 5)


def test_training_is_the_published_one(mnist, monkeypatch):
    """Per batch 40 steps of a new Adam on batch and whole memory, the memory ten times."""
    seen = []

    class Watched(training.Replay):
        def train(self, experience, **kwargs):
            seen.append((self.optimizer, self.optimizer.state == {}))
            super().train(experience, **kwargs)

        def backward(self):
            plugin = next(p for p in self.plugins if hasattr(p, "memory_share"))
            sizes.add(len(self.mb_x))
            assert plugin.memory_share == pytest.approx(10 / 11)
            super().backward()

    sizes = set()
    monkeypatch.setattr(training, "Replay", Watched)
    (cell,) = make_cells("imbalanced", ["imbalanced-mnist"], ["class-balanced"], [100], [0])
    assert (cell.epochs, cell.batch_size, cell.learning_rate) == (40, 256, 5e-4)
    stream = runner.open_for(cell, None)
    recipe = replace(runner.recipe_of(cell, stream), epochs=2)
    few = list(stream.benchmark.train_stream[:2])
    training.train("replay", recipe, few, make_buffer(cell, None))
    assert len({id(optimizer) for optimizer, _ in seen}) == 2 and all(new for _, new in seen)
    assert sizes == {125, 225}
    factor = EXPERIMENTS["imbalanced"].memory_factor
    assert (factor("reservoir"), factor("gmc")) == (100.0, 10.0)
    assert EXPERIMENTS["replay"].memory_factor("reservoir") is None


@pytest.mark.parametrize("method", EXPERIMENTS["imbalanced"].methods)
def test_methods_run_and_stand_beside_the_published_figures(mnist, tmp_path, method):
    options = {"epochs": 1, "train_fraction": 0.2}
    cells = make_cells("imbalanced", ["imbalanced-mnist"], [method], [20], [0], **options)
    for group in make_groups(cells):
        assert runner.run_group(group, tmp_path, None)
    (row,) = ResultsFile(tmp_path / "imbalanced.csv").rows()
    assert 0 <= float(row["accuracy"]) <= 1 and row["accuracy_per_experience"] == ""
    assert "| CBRS | not run | 0 | 0.897 ± 0.013 |" in tables.markdown("imbalanced", [row])
