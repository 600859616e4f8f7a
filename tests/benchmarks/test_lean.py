"""A lean strategy trains exactly as the library's own does."""

import pytest
import torch
from avalanche.benchmarks.utils import data_loader
from avalanche.training.plugins import EvaluationPlugin

from avalanche_gmc import CoresetGDumb, CoresetReplay
from benchmarks.grid import training
from benchmarks.grid.training import Memory, PlayedBackBuffer, Recipe
from benchmarks.streams.models import mlp
from benchmarks.streams.opening import open_stream


def trained(monkeypatch, paradigm, kinds):
    """Parameters after two experiences with the given strategies."""
    for name, kind in kinds.items():
        monkeypatch.setattr(training, name, kind)
    stream = open_stream("digits")
    experiences = list(stream.benchmark.train_stream[:2])
    generator = torch.Generator().manual_seed(0)
    memory = Memory(
        torch.randn(30, 64, generator=generator),
        torch.randint(0, 10, (30,), generator=generator),
        torch.rand(30, generator=generator),
        None,
    )
    recipe = Recipe(lambda: mlp(64, 10), 2, 20, 1e-2, 0)
    policy = PlayedBackBuffer(30, [memory, memory], weighted=True)
    return list(training.train(paradigm, recipe, experiences, policy).parameters())


@pytest.mark.parametrize("paradigm", ["gdumb", "replay"])
def test_the_same_bits_as_the_librarys_strategies(monkeypatch, paradigm):
    lean = trained(monkeypatch, paradigm, {})
    plain = trained(monkeypatch, paradigm, {"GDumb": CoresetGDumb, "Replay": CoresetReplay})
    assert all(torch.equal(a, b) for a, b in zip(lean, plain, strict=True))


def test_avalanche_is_as_before_afterwards():
    before = data_loader.has_ffcv_support
    model, events = mlp(64, 10), []

    class Noted(EvaluationPlugin):
        def before_training(self, strategy, **kwargs):
            events.append("evaluated")

    strategy = training.Replay(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        criterion=torch.nn.CrossEntropyLoss(),
        mem_size=10,
        evaluator=Noted(),
    )
    strategy.train(open_stream("digits").benchmark.train_stream[0])
    assert data_loader.has_ffcv_support is before
    assert any(isinstance(plugin, Noted) for plugin in strategy.plugins) and not events
