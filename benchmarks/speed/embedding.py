"""Time gradient embeddings against the work they cannot avoid and against alternatives.

    python -m benchmarks embedding-speed [--repeats 5] [--only last-layer] [--csv FILE]

Rows are ratios of times measured in one run, variants taking turns, the fastest of the repeats
each; "met" compares them with the goals. Images and targets are random: time does not depend on
them.

- last-layer: the embedding against the forward passes of its S = 4 draws, in the same memory
  format, on the paper's three models.
- projection: the sparse projection (d = 2000, one draw) against the dense one, and both against
  ``vmap(grad)`` and a ready-made dense matrix, as one would write it by hand.
- memory: 1,000 CIFAR-shaped images, S = 4, torchvision's ResNet-18, sparse projection, in a
  process of its own: seconds, and its peak memory above that of the imported libraries.
"""

from __future__ import annotations

import argparse
import multiprocessing
import platform
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from avalanche_gmc.embedding import LastLayerEmbedding, RandomProjectionEmbedding
from avalanche_gmc.embedding.examples import Examples
from avalanche_gmc.initialization import fresh_draws
from benchmarks.grid.rows import RESULTS, write_rows
from benchmarks.options import positive
from benchmarks.speed.peak_memory import peak_memory
from benchmarks.streams.models import channels_last, cnn, mlp, resnet18

DIM = 2000
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (lambda: mlp(784, 10), (784,)),
    "cnn": (cnn, (1, 28, 28)),
    "resnet18": (resnet18, (3, 32, 32)),
}
MEMORY_BOUND = 1000.0
"""Megabytes that the ResNet-18 row may take above the imported libraries."""


class Row(NamedTuple):
    """One comparison: ours takes ``ratio`` times the reference, at most ``goal`` times it."""

    case: str
    ours: str
    reference: str
    ours_value: float
    reference_value: float
    ratio: float
    goal: str
    met: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--repeats", type=positive, default=5, help="turns of each variant")
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--threads", type=positive, default=2, help="threads of torch")
    parser.add_argument("--csv", type=Path, default=RESULTS / "embedding_speed.csv")


def run(args: argparse.Namespace) -> int:
    """Measure, print a table, write a CSV file; 1 if a goal is missed."""
    torch.set_num_threads(args.threads)
    rows = []
    for name in args.only:
        for row in CASES[name](args.repeats):
            rows.append(row)
            print(*(f"{v:.3f}" if isinstance(v, float) else v for v in row), sep="  ", flush=True)
    setting = {"repeats": args.repeats, "threads": args.threads}
    setting |= {"torch": torch.__version__, "machine": platform.machine()}
    write_rows(args.csv, [row._asdict() | setting for row in rows])
    return 0 if all(row.met for row in rows) else 1


def last_layer_rows(repeats: int) -> Iterator[Row]:
    """The embedding against the forward passes that it needs."""
    for name, count in (("mlp", 20000), ("cnn", 1024), ("resnet18", 256)):
        inputs, targets = examples(name, count)
        embedding = LastLayerEmbedding(MODELS[name][0])
        draws = [channels_last(model.eval()) for model in fresh_draws(MODELS[name][0], 4, 0)]
        size = embedding.batch_size_for(Examples(inputs, targets))
        tasks = partial(embedding.embed, inputs, targets), partial(forward, draws, inputs, size)
        ours, reference = fastest(repeats, *tasks)
        yield at_most(1.3, f"last layer, {name}", "embed", "4 forward passes", ours, reference)


def forward(draws: list[nn.Module], inputs: Tensor, size: int) -> None:
    """Plain forward passes of all draws over N inputs, ``size`` at a time."""
    with torch.no_grad():
        for batch in torch.split(inputs, size):
            images = batch.ndim == 4
            x = batch.contiguous(memory_format=torch.channels_last) if images else batch
            for draw in draws:
                draw(x)


def projection_rows(repeats: int) -> Iterator[Row]:
    """Both projections against torch.func by hand, and against each other."""
    for name in ("mlp", "cnn"):
        inputs, targets = examples(name, 512)
        by_hand = FunctionalGradients(MODELS[name][0]())
        tasks = [
            partial(
                RandomProjectionEmbedding(MODELS[name][0], draws=1, dim=DIM, projection=kind).embed,
                inputs,
                targets,
            )
            for kind in ("sparse", "rademacher")
        ]
        sparse, dense, hand = fastest(repeats, *tasks, partial(by_hand, inputs, targets))
        yield at_most(0.2, f"projection, {name}", "sparse", "dense", sparse, dense)
        yield at_most(1.0, f"projection, {name}", "sparse", "vmap(grad) @ matrix", sparse, hand)
        yield at_most(1.0, f"projection, {name}", "dense", "vmap(grad) @ matrix", dense, hand)


class FunctionalGradients:
    """Per-example gradients and their projection as one writes them with torch.func."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model.eval()
        self._parameters = {name: p.detach() for name, p in model.named_parameters()}
        size = sum(parameter.numel() for parameter in self._parameters.values())
        self._matrix = torch.randint(0, 2, (size, DIM)).mul_(2).sub_(1).float().div_(DIM**0.5)
        self._gradients = vmap(grad(self._loss), in_dims=(None, 0, 0))

    def _loss(self, parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(self._model, parameters, (x[None],)), y[None])

    def __call__(self, inputs: Tensor, targets: Tensor) -> None:
        for x, y in zip(torch.split(inputs, 64), torch.split(targets, 64), strict=True):
            gradients = self._gradients(self._parameters, x, y).values()
            torch.cat([gradient.flatten(1) for gradient in gradients], dim=1) @ self._matrix


def memory_rows(repeats: int) -> Iterator[Row]:
    """Time and peak memory of a ResNet-18 embedding, in a fresh process."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as workers:
        seconds, megabytes = workers.apply(resnet_memory, (torch.get_num_threads(),))
    yield at_most(float("inf"), "ResNet-18, 1,000 images", "seconds", "", seconds, 1.0)
    yield at_most(1.0, "ResNet-18, 1,000 images", "peak MB", "bound", megabytes, MEMORY_BOUND)


def resnet_memory(threads: int) -> tuple[float, float]:
    """Seconds, and megabytes of peak memory above the imported libraries."""
    torch.set_num_threads(threads)
    inputs, targets = examples("resnet18", 1000)
    with peak_memory() as peak:
        start = time.perf_counter()
        RandomProjectionEmbedding(resnet18, dim=DIM).embed(inputs, targets)
        seconds = time.perf_counter() - start
    return seconds, peak[0] / 1e6


CASES: dict[str, Callable[[int], Iterator[Row]]] = {
    "last-layer": last_layer_rows,
    "projection": projection_rows,
    "memory": memory_rows,
}


def examples(name: str, count: int) -> tuple[Tensor, Tensor]:
    """Random inputs and targets."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(count, *MODELS[name][1], generator=generator)
    return inputs, torch.randint(10, (count,), generator=generator)


def fastest(repeats: int, *tasks: Callable[[], object]) -> list[float]:
    """Seconds of each task, the tasks taking turns; one more turn goes first, to warm up."""
    best = [float("inf")] * len(tasks)
    for turn in range(repeats + 1):
        for position, task in enumerate(tasks):
            start = time.perf_counter()
            task()
            if turn:
                best[position] = min(best[position], time.perf_counter() - start)
    return best


def at_most(limit: float, case: str, ours: str, reference: str, time: float, other: float) -> Row:
    """A row whose goal is that ours takes at most ``limit`` times the reference."""
    ratio = time / other
    return Row(case, ours, reference, time, other, ratio, f"<= {limit:g}", ratio <= limit)
