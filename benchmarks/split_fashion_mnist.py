"""Gradient matching against reservoir sampling with GDumb on Split Fashion-MNIST.

python benchmarks/split_fashion_mnist.py --mem-size 200 --seed 0
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from avalanche.evaluation.metrics import accuracy_metrics
from avalanche.logging import InteractiveLogger
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.storage_policy import ReservoirSamplingBuffer
from avalanche.training.supervised import Naive
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))

from avalanche_gmc import CoresetGDumbPlugin, GradientMatchingBuffer
from benchmarks.streams.images import split_fashion_mnist
from benchmarks.streams.models import cnn


def train_and_test(
    benchmark: Any, model: nn.Module, storage_policy: Any, args: argparse.Namespace
) -> float:
    """Accuracy on the whole test set after the plugin has seen the whole stream."""
    memory = CoresetGDumbPlugin(args.mem_size, storage_policy, train_on="last", seed=args.seed)
    loggers = [InteractiveLogger()] if args.verbose else []
    strategy = Naive(
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=1e-3),
        criterion=nn.CrossEntropyLoss(),
        train_mb_size=100,
        train_epochs=args.epochs,
        eval_mb_size=500,
        plugins=[memory],
        evaluator=EvaluationPlugin(accuracy_metrics(stream=True), loggers=loggers),
    )
    for experience in benchmark.train_stream:
        strategy.train(experience)
    results = strategy.eval(benchmark.test_stream)
    return float(next(v for k, v in results.items() if k.startswith("Top1_Acc_Stream")))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mem-size", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--train-fraction", type=float, default=1.0)
    parser.add_argument("--data-root", default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", action="store_true", help="show Avalanche's progress")
    args = parser.parse_args(argv)

    # Five experiences of two classes; in_memory=False gives Avalanche's own SplitFMNIST.
    benchmark = split_fashion_mnist(args.data_root, train_fraction=args.train_fraction)
    policies = {
        "reservoir sampling": ReservoirSamplingBuffer(args.mem_size),
        "gradient matching": GradientMatchingBuffer(args.mem_size, seed=args.seed),
    }
    for name, policy in policies.items():
        torch.manual_seed(args.seed)
        accuracy = train_and_test(benchmark, cnn(), policy, args)
        print(f"{name:20} {args.mem_size} exemplars, accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
