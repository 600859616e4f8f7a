"""What the three scripts have in common: options, and two memories compared with one plugin."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
from avalanche.evaluation.metrics import accuracy_metrics
from avalanche.logging import InteractiveLogger
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.storage_policy import ReservoirSamplingBuffer
from avalanche.training.supervised import Naive
from torch import nn

from avalanche_gmc import GradientMatchingBuffer


def script_parser(
    description: str | None, *, mem_size: int, epochs: int
) -> argparse.ArgumentParser:
    """The options of a script."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=description, formatter_class=raw)
    parser.add_argument("--mem-size", type=int, default=mem_size)
    parser.add_argument("--epochs", type=int, default=epochs)
    parser.add_argument("--train-fraction", type=float, default=1.0)
    parser.add_argument("--data-root", default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", action="store_true", help="show Avalanche's progress")
    return parser


def compare(
    benchmark: Any,
    make_model: Callable[[], nn.Module],
    make_plugin: Callable[[Any], Any],
    args: argparse.Namespace,
) -> None:
    """Print the accuracy on the whole test set after the whole stream, for both memories.

    :param make_plugin: from a storage policy to the plugin that trains on it.
    """
    policies = {
        "reservoir sampling": ReservoirSamplingBuffer(args.mem_size),
        "gradient matching": GradientMatchingBuffer(args.mem_size, seed=args.seed),
    }
    for name, policy in policies.items():
        torch.manual_seed(args.seed)
        model = make_model()
        loggers = [InteractiveLogger()] if args.verbose else []
        strategy = Naive(
            model=model,
            optimizer=torch.optim.Adam(model.parameters(), lr=1e-3),
            criterion=nn.CrossEntropyLoss(),
            train_mb_size=100,
            train_epochs=args.epochs,
            eval_mb_size=500,
            plugins=[make_plugin(policy)],
            evaluator=EvaluationPlugin(accuracy_metrics(stream=True), loggers=loggers),
        )
        for experience in benchmark.train_stream:
            strategy.train(experience)
        results = strategy.eval(benchmark.test_stream)
        accuracy = next(v for k, v in results.items() if k.startswith("Top1_Acc_Stream"))
        print(f"{name:20} {args.mem_size} exemplars, accuracy {accuracy:.3f}")
