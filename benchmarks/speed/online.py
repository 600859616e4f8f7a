"""Time small updates of memories, as in online streams, against a training step.

    python -m benchmarks online-cost [--sizes 100 500 2000] [--updates 1 10 100] [--csv FILE]

Split Fashion-MNIST and Avalanche's SimpleMLP (512 hidden units). A memory is filled, then takes in
minibatches of 1, 10 and 100 examples until as many came as half of its size: two rounds of pending
examples and their pursuits. Beside it the same updates of Avalanche's reservoir and class-balanced
buffers, and a training step (forward, backward, Adam) on the same minibatches. Times are
milliseconds of the process: of one thread, which other programs do not disturb. Goal: the mean
update of gradient matching takes at most five training steps.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from types import SimpleNamespace
from typing import Any

import pandas as pd
import torch
from avalanche.benchmarks.utils import AvalancheDataset
from avalanche.models import SimpleMLP
from avalanche.training.storage_policy import ClassBalancedBuffer, ReservoirSamplingBuffer
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from torch import nn

from avalanche_gmc import GradientMatchingBuffer
from benchmarks.grid.rows import RESULTS, write_rows
from benchmarks.options import positive
from benchmarks.speed.training import quiet
from benchmarks.streams.opening import open_stream

MOST_STEPS = 5.0
FEWEST_UPDATES = 20
STREAM, make_model = "split-fashion-mnist", partial(SimpleMLP, num_classes=10)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--sizes", nargs="+", type=positive, default=[100, 500, 2000])
    parser.add_argument("--updates", nargs="+", type=positive, default=[1, 10, 100])
    parser.add_argument("--data-root", type=Path, default=None, help="folder of the data")
    parser.add_argument("--csv", type=Path, default=RESULTS / "online_cost.csv")


def run(args: argparse.Namespace) -> int:
    """Measure, print a table, write a CSV file; 1 if a goal is missed."""
    torch.set_num_threads(1)
    first, second = list(open_stream(STREAM, args.data_root).benchmark.train_stream)[:2]
    settings = itertools.product(args.sizes, args.updates)
    with threadpool_limits(1):  # NumPy's threads
        rows = [measure(first.dataset, second.dataset, *setting) for setting in settings]
    print(pd.DataFrame(rows).to_string(index=False, float_format="{:.2f}".format))
    write_rows(args.csv, [row | {"torch": torch.__version__} for row in rows])
    print(f"wrote {args.csv}", file=sys.stderr)
    return 0 if all(row["met"] for row in rows) else 1


def measure(
    first: AvalancheDataset, second: AvalancheDataset, size: int, examples: int
) -> dict[str, Any]:
    """One row: the mean and the worst update of each memory.

    :param first: fills the memories.
    :param second: what the minibatches are cut from.
    """
    print(f"{size} exemplars, updates of {examples}", file=sys.stderr)
    count = max(FEWEST_UPDATES, size // (2 * examples))
    starts = [k * examples % (len(second) - examples + 1) for k in range(count)]
    batches = [second.subset(list(range(start, start + examples))) for start in starts]
    fill = first.subset(list(range(min(2 * size, len(first)))))
    row: dict[str, Any] = {"exemplars": size, "examples": examples, "updates": count}
    step = mean(times(training_step(), batches))
    for name, update in updates(size).items():
        update(fill)
        found = times(update, batches)
        row |= {f"{name}_mean": mean(found), f"{name}_worst": max(found)}
    ratio = row["gmc_mean"] / step
    return row | {"step": step, "steps": ratio, "met": ratio <= MOST_STEPS}


def updates(size: int) -> dict[str, Callable[[AvalancheDataset], None]]:
    """Empty memories, by name, as functions that take in a dataset."""
    ours = GradientMatchingBuffer(size)
    strategy = SimpleNamespace(model=make_model(), _criterion=nn.CrossEntropyLoss())
    stock = {
        "reservoir": ReservoirSamplingBuffer(size),
        "class_balanced": ClassBalancedBuffer(size),
    }
    made: dict[str, Callable[[AvalancheDataset], None]] = {
        "gmc": lambda data: ours.update_from_dataset(data, strategy)
    }
    for name, buffer in stock.items():
        made[name] = lambda data, buffer=buffer: buffer.post_adapt(  # type: ignore[misc]
            strategy, SimpleNamespace(dataset=data)
        )
    return made


def training_step() -> Callable[[AvalancheDataset], None]:
    """A function that trains a model on a minibatch, which it reads as a loader would."""
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def train(data: AvalancheDataset) -> None:
        items = [data[k] for k in range(len(data))]
        inputs, labels = torch.stack([x for x, *_ in items]), [int(y) for _, y, *_ in items]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), torch.tensor(labels))
        torch.autograd.backward(loss)
        optimizer.step()

    return train


def times(work: Callable[[AvalancheDataset], None], batches: Sequence[Any]) -> list[float]:
    """Milliseconds of each call."""
    found = []
    with quiet():
        for batch in batches:
            start = time.process_time()
            work(batch)
            found.append(1e3 * (time.process_time() - start))
    return found
