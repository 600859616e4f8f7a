"""A training script as users write it, started by torchrun in test_distributed_training.py."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from avalanche.distributed import DistributedHelper
from small_streams import naive, parameters
from torch import nn

from avalanche_gmc import CoresetGDumbPlugin, CoresetReplay, CoresetReplayPlugin
from benchmarks.streams.models import mlp
from benchmarks.streams.tabular import digits


def train(plugin: Any, *, epochs: int) -> tuple[nn.Module, Any]:
    """A model trained over the stream of digits on all ranks."""
    torch.manual_seed(7)
    model = DistributedHelper.wrap_model(mlp(num_features=64, num_classes=10))
    optimizer = torch.optim.Adam(model.parameters())
    options: dict[str, Any] = dict(
        optimizer=optimizer,
        train_mb_size=48 // DistributedHelper.world_size,  # 48 on all ranks together
        train_epochs=epochs,
    )
    if plugin is None:
        strategy = CoresetReplay(
            model=model, criterion=nn.CrossEntropyLoss(), mem_size=60, evaluator=None, **options
        )
        plugin = next(p for p in strategy.plugins if isinstance(p, CoresetReplayPlugin))
    else:
        strategy = naive(model, plugin, **options)
    for experience in digits().train_stream:
        strategy.train(experience)
    return DistributedHelper.unwrap_model(strategy.model), plugin.storage_policy


def summary(model: nn.Module, memory: Any) -> dict[str, Any]:
    test = [example for experience in digits().test_stream for example in experience.dataset]
    inputs = torch.stack([x for x, *_ in test])
    classes = torch.tensor([y for _, y, *_ in test])
    with torch.no_grad():
        accuracy = (model.eval()(inputs).argmax(dim=1) == classes).double().mean()
    return {
        "parameters": parameters(model),
        "accuracy": float(accuracy),
        "inputs": torch.stack([x for x, *_ in memory.buffer.eval()]),
        "weights": memory.weights,
        "target": memory.target,
    }


def main(folder: Path) -> None:
    DistributedHelper.init_distributed(random_seed=1, backend="gloo", use_cuda=False)
    torch.set_num_threads(1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = {
            "replay": summary(*train(CoresetReplayPlugin(mem_size=60), epochs=4)),
            "strategy": summary(*train(None, epochs=1)),
            "gdumb": summary(*train(CoresetGDumbPlugin(mem_size=60, train_on="last"), epochs=40)),
        }
    assert not any("not compatible" in str(warning.message) for warning in caught)
    found["ranks"] = DistributedHelper.world_size
    torch.save(found, folder / f"{DistributedHelper.rank}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
