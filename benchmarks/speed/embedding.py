"""Time gradient embeddings against the work they cannot avoid and against alternatives.

    python -m benchmarks embedding-speed [--repeats 5] [--only last-layer dense] [--csv FILE]

Rows are ratios of times measured in one run, variants taking turns, the fastest of the repeats
each; "met" compares them with the goals. Images and targets are random: time does not depend on
them.

- last layer: the embedding against the forward passes of its S = 4 draws, in the same memory
  format, on the paper's three models.
- dense: the ±1 projection of the paper's CNN (d = 2000, one draw) against its two parts, the
  per-example gradients and a product with a ready-made matrix.
- sparse: against the dense one; "projection" leaves the per-example gradients out of both.
- torch.func: against ``vmap(grad)`` and a ready-made dense matrix, as one would write it by hand;
  TRAK: the same gradients with the ``BasicProjector`` of ``traker``, if that is installed.
- memory: 1,000 CIFAR-shaped images, S = 4, torchvision's ResNet-18, sparse projection, in a
  process of its own: seconds, and its peak memory above that of the imported libraries.
"""

from __future__ import annotations

import argparse
import importlib.util
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
from avalanche_gmc.embedding.losses import ExampleLoss
from avalanche_gmc.embedding.per_example import PerExampleGradients, Piece
from avalanche_gmc.embedding.projection import PROJECTIONS
from avalanche_gmc.initialization import fresh_draws
from benchmarks.grid.rows import RESULTS, write_rows
from benchmarks.options import positive
from benchmarks.speed.peak_memory import peak_memory
from benchmarks.streams.models import channels_last, cnn, count_parameters, mlp, resnet18

DIM = 2000
SHAPES = {"mlp": (784,), "cnn": (1, 28, 28), "resnet18": (3, 32, 32)}
MODELS: dict[str, Callable[[], nn.Module]] = {
    "mlp": lambda: mlp(784, 10),
    "cnn": cnn,
    "resnet18": resnet18,
}
MEMORY_BOUND = 1000.0
"""Megabytes that the ResNet-18 row may take above the imported libraries."""

Task = Callable[[], object]


class Row(NamedTuple):
    """One comparison; ``ratio`` is the quantity that the goal speaks of."""

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
    parser.add_argument(
        "--only", nargs="+", choices=tuple(CASES), default=list(CASES), help="which ones"
    )
    parser.add_argument("--threads", type=positive, default=2, help="threads of torch")
    parser.add_argument("--csv", type=Path, default=RESULTS / "embedding_speed.csv")


def run(args: argparse.Namespace) -> int:
    """Measure, print a table, write a CSV file; 1 if a goal is missed."""
    torch.set_num_threads(args.threads)
    rows = []
    for name in args.only:
        for row in CASES[name](args.repeats):
            rows.append(row)
            print_row(row)
    setting = {"repeats": args.repeats, "threads": args.threads}
    setting |= {"torch": torch.__version__, "machine": platform.machine()}
    write_rows(args.csv, [row._asdict() | setting for row in rows])
    return 0 if all(row.met for row in rows) else 1


def last_layer_rows(repeats: int) -> Iterator[Row]:
    """The embedding against the forward passes that it needs."""
    for name, count in (("mlp", 20000), ("cnn", 1024), ("resnet18", 256)):
        inputs, targets = examples(name, count)
        embedding = LastLayerEmbedding(MODELS[name])
        embedding.embed(inputs, targets)
        draws = [channels_last(model.eval()) for model in fresh_draws(MODELS[name], 4, 0)]

        embed = partial(embedding.embed, inputs, targets)
        size = embedding.batch_size_for(Examples(inputs, targets))
        forwards = partial(run_forward, draws, inputs, size)
        ours, reference = fastest(repeats, embed, forwards)
        yield at_most(f"last layer, {name}", "embed", "4 forward passes", ours, reference, 1.3)


def run_forward(draws: list[nn.Module], inputs: Tensor, size: int) -> None:
    """Plain forward passes of all draws over N inputs, ``size`` at a time."""
    with torch.no_grad():
        for batch in torch.split(inputs, size):
            images = batch.ndim == 4
            x = batch.contiguous(memory_format=torch.channels_last) if images else batch
            for draw in draws:
                draw(x)


def dense_rows(repeats: int) -> Iterator[Row]:
    """The dense projection against its unavoidable parts."""
    inputs, targets = examples("cnn", 512)
    embedding = projected("rademacher", inputs, targets)
    engine = gradients_of("cnn", 2**26)
    chunk = torch.ones(256, DIM)
    size = embedding.batch_size_for(Examples(inputs, targets))

    def gradients() -> None:
        for x, y in zip(torch.split(inputs, size), torch.split(targets, size), strict=True):
            for _ in engine.pieces(x, y):
                pass

    def product() -> None:
        parameters = count_parameters(engine.model)
        for x in torch.split(inputs, size):
            out, block = torch.zeros(len(x), DIM), torch.ones(len(x), 256)
            for _ in range(parameters // 256):
                out.addmm_(block, chunk)

    ours, alone, times = fastest(
        repeats, lambda: embedding.embed(inputs, targets), gradients, product
    )
    yield at_most("dense, cnn", "embed", "gradients + product", ours, alone + times, 1.5)


def sparse_rows(repeats: int) -> Iterator[Row]:
    """The sparse projection against the dense one."""
    inputs, targets = examples("cnn", 512)
    sparse, dense = (projected(kind, inputs, targets) for kind in ("sparse", "rademacher"))
    ours, reference = fastest(
        repeats, lambda: sparse.embed(inputs, targets), lambda: dense.embed(inputs, targets)
    )
    yield at_least("sparse, cnn", "sparse embed", "dense embed", ours, reference, 5)
    pieces = list(gradients_of("cnn", 2**26).pieces(inputs[:256], targets[:256]))
    ours, reference = fastest(
        repeats,
        lambda: project("sparse", pieces, 256),
        lambda: project("rademacher", pieces, 256),
    )
    yield at_least("sparse, cnn", "sparse projection", "dense projection", ours, reference, 5)


def alternative_rows(repeats: int) -> Iterator[Row]:
    """Both projections against torch.func by hand, with a ready-made matrix or TRAK's projector."""
    for name in ("mlp", "cnn"):
        inputs, targets = examples(name, 512)
        by_hand = FunctionalGradients(MODELS[name]())
        matrix = torch.randint(0, 2, (by_hand.size, DIM)).mul_(2).sub_(1).float().div_(DIM**0.5)

        functional = partial(run_by_hand, by_hand, matrix, inputs, targets)
        tasks: dict[str, Task] = {"vmap(grad) @ matrix": functional}
        if importlib.util.find_spec("trak"):
            tasks["vmap(grad), TRAK's BasicProjector"] = trak_task(by_hand, inputs, targets)
        ours = {kind: projected(kind, inputs, targets, name) for kind in ("rademacher", "sparse")}
        for reference, task in tasks.items():
            turns = repeats if reference.endswith("matrix") else 1
            for kind, embedding in ours.items():
                embed = partial(embedding.embed, inputs, targets)
                mine, theirs = fastest(turns, embed, task)
                yield at_most(f"alternatives, {name}", kind, reference, mine, theirs, 1.0)


def run_by_hand(
    by_hand: FunctionalGradients, matrix: Tensor, inputs: Tensor, targets: Tensor
) -> None:
    """Gradients of N examples, 64 at a time, times a P×d matrix."""
    for x, y in zip(torch.split(inputs, 64), torch.split(targets, 64), strict=True):
        by_hand(x, y) @ matrix


def memory_rows(repeats: int) -> Iterator[Row]:
    """Time and peak memory of a ResNet-18 embedding, in a fresh process."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        seconds, megabytes = pool.apply(resnet_memory, (torch.get_num_threads(),))
    yield at_most("ResNet-18, 1,000 images", "seconds", "", seconds, 1.0, float("inf"))
    yield at_most("ResNet-18, 1,000 images", "peak MB", "bound", megabytes, MEMORY_BOUND, 1.0)


CASES: dict[str, Callable[[int], Iterator[Row]]] = {
    "last-layer": last_layer_rows,
    "dense": dense_rows,
    "sparse": sparse_rows,
    "alternatives": alternative_rows,
    "memory": memory_rows,
}


class FunctionalGradients:
    """Per-example gradients as one writes them with torch.func: N×P."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model.eval()
        self._parameters = {name: p.detach() for name, p in model.named_parameters()}
        self.size = sum(parameter.numel() for parameter in self._parameters.values())
        self._gradients = vmap(grad(self._loss), in_dims=(None, 0, 0))

    def _loss(self, parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(self._model, parameters, (x[None],)), y[None])

    def __call__(self, inputs: Tensor, targets: Tensor) -> Tensor:
        gradients = self._gradients(self._parameters, inputs, targets)
        return torch.cat([gradient.flatten(1) for gradient in gradients.values()], dim=1)


def trak_task(by_hand: FunctionalGradients, inputs: Tensor, targets: Tensor) -> Task:
    """The same gradients, projected by TRAK in batches of 256, which it needs more than we do."""
    from trak.projectors import (  # type: ignore[import-untyped, import-not-found, unused-ignore]
        BasicProjector,
        ProjectionType,
    )

    projector = BasicProjector(
        by_hand.size, DIM, seed=0, proj_type=ProjectionType.rademacher, device=torch.device("cpu")
    )

    def task() -> None:
        for x, y in zip(torch.split(inputs, 256), torch.split(targets, 256), strict=True):
            parts = zip(torch.split(x, 64), torch.split(y, 64), strict=True)
            projector.project(torch.cat([by_hand(*part) for part in parts]), model_id=0)

    return task


def examples(name: str, count: int) -> tuple[Tensor, Tensor]:
    """Random inputs and targets."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(count, *SHAPES[name], generator=generator)
    return inputs, torch.randint(10, (count,), generator=generator)


def projected(
    kind: str, inputs: Tensor, targets: Tensor, name: str = "cnn"
) -> RandomProjectionEmbedding:
    """A calibrated embedding of one draw."""
    embedding = RandomProjectionEmbedding(MODELS[name], draws=1, dim=DIM, projection=kind)
    embedding.embed(inputs, targets)
    return embedding


def gradients_of(name: str, work_elements: int) -> PerExampleGradients:
    """Per-example gradients at one draw."""
    draw = channels_last(fresh_draws(MODELS[name], 1, 0)[0].eval())
    return PerExampleGradients(draw, ExampleLoss(), work_elements)


def project(kind: str, pieces: list[Piece], count: int) -> None:
    """Project ready-made gradients."""
    projection, out = PROJECTIONS[kind](DIM, seed=0, draw=0), torch.zeros(count, DIM)
    for piece in pieces:
        projection.add(out[piece.rows], piece.gradients, piece.block)


def resnet_memory(threads: int) -> tuple[float, float]:
    """Seconds, and megabytes of peak memory above the imported libraries."""
    torch.set_num_threads(threads)
    inputs, targets = examples("resnet18", 1000)
    with peak_memory() as peak:
        start = time.perf_counter()
        RandomProjectionEmbedding(resnet18, dim=DIM).embed(inputs, targets)
        seconds = time.perf_counter() - start
    return seconds, peak[0] / 1e6


def fastest(repeats: int, *tasks: Task) -> list[float]:
    """Seconds of each task, the tasks taking turns; one more turn goes first, to warm up."""
    best = [float("inf")] * len(tasks)
    for turn in range(repeats + 1):
        for position, task in enumerate(tasks):
            start = time.perf_counter()
            task()
            seconds = time.perf_counter() - start
            if turn or repeats == 1:
                best[position] = min(best[position], seconds)
    return best


def at_most(case: str, ours: str, reference: str, time: float, other: float, limit: float) -> Row:
    """A row whose goal is that ours takes at most ``limit`` times the reference."""
    ratio = time / other
    return Row(case, ours, reference, time, other, ratio, f"<= {limit:g}", ratio <= limit)


def at_least(case: str, ours: str, reference: str, time: float, other: float, limit: float) -> Row:
    """A row whose goal is that ours is at least ``limit`` times faster."""
    ratio = other / time
    return Row(case, ours, reference, time, other, ratio, f">= {limit:g}", ratio >= limit)


def print_row(row: Row) -> None:
    """One line of the table, as soon as it is known."""
    verdict = "met" if row.met else "MISSED"
    print(
        f"{row.case:<24} {row.ours:<18} {row.ours_value:>9.3f}  {row.reference:<34} "
        f"{row.reference_value:>9.3f}  ratio {row.ratio:>7.2f}  {row.goal:<7} {verdict}",
        flush=True,
    )
