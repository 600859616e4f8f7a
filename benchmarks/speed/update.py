"""Time an update of the default memory against an epoch of training on the same experience.

    python -m benchmarks update-cost [--only mlp cnn] [--sizes 200 1000] [--bfloat16] [--csv FILE]

Avalanche's SimpleMLP (512 hidden units) and the paper's CNN on Split Fashion-MNIST, ResNet-18 on
Split CIFAR-10: the model trains one epoch on the second experience (Avalanche's loop, Adam,
minibatches of 100), then the memory, filled by the first experience, takes in the second. Goal: an
update takes at most as long as two epochs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import torch
from avalanche.models import SimpleMLP
from avalanche.training import Naive
from torch import nn

from avalanche_gmc import GradientMatchingBuffer, LastLayerEmbedding
from avalanche_gmc.buffers.embedding_choice import last_layer_draws
from benchmarks.grid.rows import RESULTS, write_rows
from benchmarks.options import fraction, positive
from benchmarks.speed.training import quiet
from benchmarks.streams.models import cnn, resnet18
from benchmarks.streams.opening import open_stream

MOST_EPOCHS = 2.0
BATCH = 100
MODELS: dict[str, tuple[str, Callable[[], nn.Module]]] = {
    "mlp": ("split-fashion-mnist", lambda: SimpleMLP(num_classes=10, hidden_size=512)),
    "cnn": ("split-fashion-mnist", cnn),
    "resnet18": ("split-cifar10", resnet18),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--only", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--sizes", nargs="+", type=positive, default=[200, 1000], help="exemplars")
    parser.add_argument(
        "--bfloat16", action="store_true", help="forward passes of the embedding; not the default"
    )
    parser.add_argument("--threads", type=positive, default=torch.get_num_threads())
    parser.add_argument("--train-fraction", type=fraction, default=1.0, help="part of the stream")
    parser.add_argument("--data-root", type=Path, default=None, help="folder of the data")
    parser.add_argument("--csv", type=Path, default=RESULTS / "update_cost.csv")


def run(args: argparse.Namespace) -> int:
    """Measure, print a table, write a CSV file; 1 if a goal is missed."""
    torch.set_num_threads(args.threads)
    rows = [row for name in args.only for row in measure(name, args)]
    print(pd.DataFrame(rows).to_string(index=False, float_format="{:.2f}".format))
    setting = {"threads": args.threads, "torch": torch.__version__, "bfloat16": args.bfloat16}
    write_rows(args.csv, [row | setting for row in rows])
    print(f"wrote {args.csv}", file=sys.stderr)
    return 0 if all(row["met"] for row in rows) else 1


def measure(name: str, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One row for each size of the memory."""
    stream, make_model = MODELS[name]
    opened = open_stream(stream, args.data_root, args.train_fraction)
    first, second = list(opened.benchmark.train_stream)[:2]
    epoch = epoch_seconds(make_model(), first, second)
    for size in args.sizes:
        strategy = SimpleNamespace(model=make_model(), _criterion=nn.CrossEntropyLoss())
        embedding = None
        if args.bfloat16:  # with all features: where the default sums them, the pursuit is shorter
            draws = last_layer_draws(strategy.model, size)
            embedding = LastLayerEmbedding(strategy.model, draws=draws, bfloat16=True)
        buffer = GradientMatchingBuffer(size, embedding)
        buffer.update_from_dataset(first.dataset, strategy)
        update = seconds(partial(buffer.update_from_dataset, second.dataset, strategy))
        row = {"model": name, "exemplars": size, "examples": len(second.dataset)}
        row |= {"dimensions": 0 if buffer.target is None else len(buffer.target)}
        row |= {"epoch_s": epoch, "update_s": update, "epochs": update / epoch}
        print(f"{name}, {size} exemplars: {update / epoch:.2f} epochs", file=sys.stderr)
        yield row | {"met": update <= MOST_EPOCHS * epoch}


def epoch_seconds(model: nn.Module, first: Any, second: Any) -> float:
    """Seconds of one epoch on the second experience, after one on the first."""
    strategy = Naive(
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=1e-3),
        criterion=nn.CrossEntropyLoss(),
        train_mb_size=BATCH,
        evaluator=None,
    )
    with quiet():
        strategy.train(first)
        return seconds(lambda: strategy.train(second))


def seconds(work: Callable[[], object]) -> float:
    """How long it takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
