"""Time training steps: weighted against unweighted, owned exemplars against stock memories.

    python -m benchmarks training-speed [--repeats 7] [--csv FILE]

The paper's MLP (784-128-128-10), minibatches of 100, Avalanche's training loop, synthetic images:
the smallest model of the paper, so that the time around the model counts most.

- GDumb on images in tensors: stock, ours without weights, ours with weights.
- Replay on images in tensors and on PIL images behind ToTensor and Normalize, 100 current and 100
  memory rows per minibatch: stock with a reservoir; ours with a reservoir that owns its exemplars,
  without weights (``memory_share="batch"``) and with weights.

The variants take turns, so that a change in the machine's speed meets them all. A step includes the
loading of its minibatch, and the first epoch counts, in which ours reads its exemplars; each step
counts with the median of its repeats. Only the process's own time counts, not that of other
programs. Goals: weights add at most 3 % of stock's step, and ours is not slower than
stock.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median
from typing import Any

import pandas as pd
import torch
from avalanche.benchmarks.utils import AvalancheDataset, _make_taskaware_classification_dataset
from avalanche.training import Naive
from avalanche.training.plugins import GDumbPlugin, ReplayPlugin, SupervisedPlugin
from avalanche.training.storage_policy import ReservoirSamplingBuffer
from torch import Tensor, nn
from torch.utils.data import TensorDataset
from torchvision import transforms

from avalanche_gmc.exemplars import materialize
from avalanche_gmc.plugins import CoresetGDumbPlugin, CoresetReplayPlugin
from benchmarks.grid.rows import RESULTS, write_rows
from benchmarks.options import positive
from benchmarks.streams.assembly import assemble
from benchmarks.streams.models import mlp

MEMORY, CURRENT, BATCH, CLASSES = 1000, 2000, 100, 10
MOST_FOR_WEIGHTS = 0.03
CASES = ("GDumb, tensors", "replay, tensors", "replay, PIL images")
VARIANTS = ("stock", "unweighted", "weighted")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--repeats", type=positive, default=7, help="runs of each variant")
    parser.add_argument("--epochs", type=positive, default=4, help="timed epochs of each run")
    parser.add_argument("--threads", type=positive, default=1, help="threads of torch")
    parser.add_argument("--csv", type=Path, default=RESULTS / "training_speed.csv")


def run(args: argparse.Namespace) -> int:
    """Measure, print a table, write a CSV file; 1 if a goal is missed."""
    torch.set_num_threads(args.threads)
    rows = [row for case in CASES for row in measure(case, args.repeats, args.epochs)]
    print(pd.DataFrame(rows).to_string(index=False, na_rep="", float_format="{:.3f}".format))
    setting = {"repeats": args.repeats, "threads": args.threads, "torch": torch.__version__}
    write_rows(args.csv, [{**row, **setting} for row in rows])
    print(f"wrote {args.csv}", file=sys.stderr)
    return 0 if all(row["met"] for row in rows) else 1


class OwnedReservoir(ReservoirSamplingBuffer):
    """A reservoir that owns its exemplars, with random weights on demand."""

    def __init__(self, max_size: int, weighted: bool) -> None:
        super().__init__(max_size)
        self.weights: Tensor | None = None
        self._weighted = weighted

    def update_from_dataset(self, new_data: AvalancheDataset) -> None:
        super().update_from_dataset(new_data)
        size = len(self.buffer)
        self.buffer: AvalancheDataset = materialize(self.buffer, range(size))
        self.weights = torch.rand(size) if self._weighted else None


def make_plugin(case: str, variant: str) -> SupervisedPlugin:
    """Stock's GDumb memory is class-balanced, ours a reservoir of the same size."""
    gdumb, weighted = case.startswith("GDumb"), variant == "weighted"
    if variant == "stock":
        stock = ReservoirSamplingBuffer(MEMORY)
        return GDumbPlugin(MEMORY) if gdumb else ReplayPlugin(MEMORY, storage_policy=stock)
    policy = OwnedReservoir(MEMORY, weighted)
    if gdumb:
        return CoresetGDumbPlugin(MEMORY, policy)
    share = "stream" if weighted else "batch"
    return CoresetReplayPlugin(MEMORY, storage_policy=policy, memory_share=share)


def experiences(pil: bool) -> list[Any]:
    """Two experiences of synthetic images."""
    generator = torch.Generator().manual_seed(0)
    chain = transforms.Compose([transforms.ToTensor(), transforms.Normalize(0.13, 0.31)])
    to_image = transforms.ToPILImage()
    parts = []
    for _ in range(2):
        pixels = torch.rand(CURRENT, 784, generator=generator)
        targets = torch.randint(CLASSES, (CURRENT,), generator=generator)
        data: Any = TensorDataset(pixels, targets)
        if pil:
            images = [to_image(image) for image in pixels.view(-1, 1, 28, 28)]
            data = list(zip(images, targets.tolist(), strict=True))
        parts.append(
            _make_taskaware_classification_dataset(
                data,
                targets=targets.tolist(),
                task_labels=0,
                transform_groups={"train": chain, "eval": chain} if pil else None,
            )
        )
    return list(assemble(train=parts).train_stream)


def measure(case: str, repeats: int, epochs: int) -> list[dict[str, Any]]:
    """One row per variant of a case."""
    stream = experiences("PIL" in case)
    times: dict[str, list[list[float]]] = {variant: [] for variant in VARIANTS}
    for repeat in range(repeats):
        print(f"{case}: {repeat + 1} of {repeats}", file=sys.stderr)
        for variant in VARIANTS:
            times[variant].append(step_seconds(make_plugin(case, variant), stream, epochs))
    typical = {name: mean(map(median, zip(*t, strict=True))) for name, t in times.items()}
    stock, unweighted = typical["stock"], typical["unweighted"]
    return [
        {
            "case": case,
            "variant": name,
            "ms_per_step": 1e3 * seconds,
            "over_stock": seconds / stock,
            "weights_cost": (seconds - unweighted) / stock if name == "weighted" else None,
            "met": name == "stock"
            or (seconds <= stock and seconds - unweighted <= MOST_FOR_WEIGHTS * stock),
        }
        for name, seconds in typical.items()
    ]


def step_seconds(plugin: SupervisedPlugin, stream: list[Any], epochs: int) -> list[float]:
    """Seconds of each training step on the second experience, after the first filled the memory."""
    model = nn.Sequential(nn.Flatten(), mlp(784, CLASSES))
    timer = StepTimer()
    strategy = Naive(
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=1e-3),
        criterion=nn.CrossEntropyLoss(),
        train_mb_size=BATCH,
        plugins=[plugin, timer],
        evaluator=None,
    )
    with quiet():
        strategy.train(stream[0])
        timer.seconds.clear()
        strategy.train_epochs = epochs
        strategy.train(stream[1])
    return timer.seconds


class StepTimer(SupervisedPlugin):
    """The seconds of each training step."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self._start = 0.0

    def before_training_epoch(self, strategy: Any, **kwargs: Any) -> None:
        self._start = time.process_time()

    def after_training_iteration(self, strategy: Any, **kwargs: Any) -> None:
        now = time.process_time()
        self.seconds.append(now - self._start)
        self._start = now


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without Avalanche's warnings and prints."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        # Not a filter: Avalanche's deprecated functions reset the filters.
        warnings.showwarning = lambda *args, **kwargs: None
        yield
