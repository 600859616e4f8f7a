"""Streams whose targets are no classes: a regression on a sorted table, several labels each."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from avalanche.benchmarks import benchmark_from_datasets
from avalanche.benchmarks.utils import AvalancheDataset
from avalanche.benchmarks.utils.data_attribute import DataAttribute
from sklearn.datasets import load_diabetes
from small_streams import naive
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from avalanche_gmc import (
    CoresetGDumbPlugin,
    CoresetReplayPlugin,
    GradientMatchingBuffer,
    LastLayerEmbedding,
)

REGRESSION = [nn.MSELoss(), nn.L1Loss(), nn.HuberLoss()]
PLUGINS = [CoresetGDumbPlugin, CoresetReplayPlugin]


def table(*, labels: bool = False) -> tuple[Tensor, Tensor]:
    """Diabetes, sorted by its target: 442×10; the target 442×1, or two labels 442×2."""
    x, y = (torch.from_numpy(a).float() for a in load_diabetes(return_X_y=True))
    order = y.argsort()
    x, y = x[order] / x.std(0), ((y[order] - y.mean()) / y.std())[:, None]
    return x, torch.cat([y > 0, y > 1], dim=1).float() if labels else y


def stream(x: Tensor, y: Tensor, *, attribute: bool = True) -> list[Any]:
    """Five experiences in the order of the table."""
    parts = []
    for rows in torch.arange(len(x)).tensor_split(5):
        targets = [DataAttribute(list(y[rows]), "targets")] if attribute else []
        parts.append(AvalancheDataset([TensorDataset(x[rows], y[rows])], data_attributes=targets))
    return list(benchmark_from_datasets(train=parts).train_stream)


def model(outputs: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, outputs))


def error(criterion: nn.Module, x: Tensor, y: Tensor, *plugins: Any) -> float:
    """On the whole table, of a model that saw it experience by experience."""
    torch.manual_seed(0)
    net = model(y.shape[1])
    options: dict[str, Any] = {"optimizer": torch.optim.Adam(net.parameters(), lr=0.01)}
    options |= {"train_mb_size": 32, "train_epochs": 15}
    strategy = naive(net, *plugins, criterion=criterion, **options)
    for experience in stream(x, y):
        strategy.train(experience)
    return float(criterion(strategy.model(x), y))


@pytest.mark.parametrize("plugin_class", PLUGINS)
@pytest.mark.parametrize("criterion", REGRESSION, ids=lambda c: type(c).__name__)
def test_a_memory_keeps_a_regression_from_forgetting(criterion, plugin_class):
    x, y = table()
    buffer = GradientMatchingBuffer(40)
    plugin = plugin_class(40, storage_policy=buffer)
    assert error(criterion, x, y, plugin) < 0.8 * error(criterion, x, y)
    assert len(buffer.buffer) == 40 and buffer.num_seen == len(x)
    assert buffer.class_counts == {} and "classes" not in repr(buffer)


@pytest.mark.parametrize("plugin_class", PLUGINS)
def test_several_labels_per_example(plugin_class):
    x, y = table(labels=True)
    criterion = nn.BCEWithLogitsLoss()
    buffer = GradientMatchingBuffer(40)
    plugin = plugin_class(40, storage_policy=buffer)
    assert error(criterion, x, y, plugin) < 0.8 * error(criterion, x, y)
    assert len(buffer.buffer) == 40 and buffer.class_counts == {}


@pytest.mark.parametrize("attribute", [True, False], ids=["targets", "no attribute"])
@pytest.mark.parametrize(
    ("labels", "criterion"),
    [*((False, c) for c in REGRESSION), (True, nn.BCEWithLogitsLoss())],
    ids=lambda v: type(v).__name__,
)
def test_the_memory_matches_the_gradient_of_the_stream(labels, criterion, attribute):
    """The target against autograd at the draws, and the weighted exemplars against a sample."""
    x, y = table(labels=labels)
    embedding = LastLayerEmbedding(model(y.shape[1]), draws=3, loss=criterion, seed=1)
    buffer = GradientMatchingBuffer(60, embedding)
    for experience in stream(x, y, attribute=attribute):
        buffer.post_adapt(None, experience)
    buffer.flush()

    def gradient(inputs: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        total = []
        for draw in embedding._draws:
            each = torch.stack(
                [criterion(draw(a[None]), b[None]) for a, b in zip(inputs, targets, strict=True)]
            )
            head = list(draw[2].parameters())
            parts = torch.autograd.grad((weights * each).sum(), head)
            total.append(torch.cat([parts[0], parts[1][:, None]], dim=1).flatten())
        return torch.cat(total).double()

    whole = gradient(x, y, torch.ones(len(x)))
    torch.testing.assert_close(buffer.target, whole, rtol=1e-4, atol=1e-4 * float(whole.norm()))
    kept = [torch.stack(column) for column in zip(*(d[:2] for d in buffer.buffer), strict=True)]
    ours = gradient(*kept, buffer.weights)
    rows = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:60]
    sample = gradient(x[rows], y[rows], torch.full((60,), len(x) / 60))
    assert (whole - ours).norm() < 0.2 * (whole - sample).norm()


def test_a_balanced_target_needs_classes():
    x, y = table()
    buffer = GradientMatchingBuffer(40, LastLayerEmbedding(model(1)), target="balanced")
    with pytest.raises(ValueError, match="one integer class label per example"):
        buffer.update_from_dataset(stream(x, y)[0].dataset)
    assert buffer.num_seen == 0
