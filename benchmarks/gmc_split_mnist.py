"""GMC with GDumb on Split-MNIST, in the form of ContinualAI's continual-learning-baselines.

python -m benchmarks.gmc_split_mnist --mem-size 500 --seed 0

One function with the settings of that project's `gdumb_smnist` except the size of the memory, and
the accuracy it should reach. There it would be `experiments/split_mnist/gmc.py`: see
docs/add_to_avalanche.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from avalanche.benchmarks import SplitMNIST
from avalanche.evaluation.metrics import accuracy_metrics
from avalanche.logging import InteractiveLogger
from avalanche.training.plugins import EvaluationPlugin
from torch import nn

from avalanche_gmc import CoresetGDumb, GradientMatchingBuffer
from benchmarks.data.datasets import ensure
from benchmarks.streams.models import mlp

DEFAULTS: Mapping[str, Any] = {
    "mem_size": 500,
    "mode": "exact",
    "hidden_size": 400,
    "epochs": 10,
    "learning_rate": 0.1,
    "train_mb_size": 16,
    "seed": 0,
    "device": "cuda" if torch.cuda.is_available() else "cpu",
    "dataset_root": None,
}
TARGET_ACCURACY, ACCEPTED = 0.89, 0.03
"""What the defaults reach, and how much less the baselines accept."""


def gmc_gdumb_smnist(override_args: Mapping[str, Any] | None = None) -> dict[str, float]:
    """Train on the five experiences of Split-MNIST; the results of the last evaluation."""
    args = SimpleNamespace(**{**DEFAULTS, **(override_args or {})})
    torch.manual_seed(args.seed)
    root = ensure("mnist", args.dataset_root).parent
    benchmark = SplitMNIST(5, return_task_id=False, seed=args.seed, dataset_root=root)
    model = nn.Sequential(nn.Flatten(), mlp(28 * 28, 10, width=args.hidden_size))
    strategy = CoresetGDumb(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=args.learning_rate),
        criterion=nn.CrossEntropyLoss(),
        mem_size=args.mem_size,
        storage_policy=GradientMatchingBuffer(args.mem_size, mode=args.mode, seed=args.seed),
        seed=args.seed,
        train_mb_size=args.train_mb_size,
        train_epochs=args.epochs,
        eval_mb_size=128,
        device=args.device,
        evaluator=EvaluationPlugin(accuracy_metrics(stream=True), loggers=[InteractiveLogger()]),
    )
    results: dict[str, float] = {}
    for experience in benchmark.train_stream:
        strategy.train(experience)
        results = strategy.eval(benchmark.test_stream)
    return results


def main(argv: Sequence[str] | None = None) -> int:
    """Run once; 1 if the target is missed by more than the baselines accept."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name in ("mem_size", "epochs", "seed"):
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=int, default=DEFAULTS[name], help="default: %(default)s")
    parser.add_argument("--mode", choices=("exact", "fast"), default=DEFAULTS["mode"])
    parser.add_argument("--data-root", dest="dataset_root")
    options = vars(parser.parse_args(argv))
    results = gmc_gdumb_smnist(options)
    accuracy = next(value for key, value in results.items() if key.startswith("Top1_Acc_Stream"))
    print(f"accuracy {accuracy:.4f}; the target of the defaults is {TARGET_ACCURACY}")
    return int(options.items() <= DEFAULTS.items() and accuracy < TARGET_ACCURACY - ACCEPTED)


if __name__ == "__main__":
    sys.exit(main())
