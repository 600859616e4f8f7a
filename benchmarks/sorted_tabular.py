"""Gradient matching against reservoir sampling on a task-free stream: a table sorted by a feature.

python benchmarks/sorted_tabular.py --mem-size 1000 --seed 0
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from avalanche.evaluation.metrics import accuracy_metrics
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.storage_policy import ReservoirSamplingBuffer
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))

from avalanche_gmc import CoresetGDumb, GradientMatchingBuffer
from benchmarks.streams.models import mlp
from benchmarks.streams.tabular import sorted_tabular


def train_and_test(
    benchmark: Any, model: nn.Module, storage_policy: Any, args: argparse.Namespace
) -> float:
    """Accuracy on the whole test set after GDumb has seen the whole stream."""
    strategy = CoresetGDumb(
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=1e-3),
        criterion=nn.CrossEntropyLoss(),
        mem_size=args.mem_size,
        storage_policy=storage_policy,
        train_on="last",
        seed=args.seed,
        train_mb_size=100,
        train_epochs=args.epochs,
        eval_mb_size=1000,
        evaluator=EvaluationPlugin(accuracy_metrics(stream=True)),
    )
    for experience in benchmark.train_stream:
        strategy.train(experience)
    results = strategy.eval(benchmark.test_stream)
    return float(next(v for k, v in results.items() if k.startswith("Top1_Acc_Stream")))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", choices=["covertype", "electricity"], default="electricity")
    parser.add_argument("--mem-size", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--train-fraction", type=float, default=1.0)
    parser.add_argument("--data-root", default=None)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)

    # Ten experiences: the rows of the training set in the order of their first feature.
    benchmark = sorted_tabular(
        args.dataset, feature=0, root=args.data_root, train_fraction=args.train_fraction
    )
    num_features = len(benchmark.train_stream[0].dataset[0][0])
    num_classes = 1 + max(max(e.dataset.targets) for e in benchmark.train_stream)

    policies = {
        "reservoir sampling": ReservoirSamplingBuffer(args.mem_size),
        "gradient matching": GradientMatchingBuffer(args.mem_size, seed=args.seed),
    }
    for name, policy in policies.items():
        torch.manual_seed(args.seed)
        model = mlp(num_features, num_classes)
        accuracy = train_and_test(benchmark, model, policy, args)
        print(f"{name:20} {args.mem_size} exemplars, accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
