"""Draw a contact sheet of a memory's exemplars with their weights, for image streams.

    python -m benchmarks show-memory split-fashion-mnist --memory-size 100
    python -m benchmarks show-memory digits --method reservoir --output reservoir.png

The memory is selected from the whole stream as the grid would; nothing is trained. Each class is a
row, the heaviest exemplars first; the number below an image is its weight relative to the mean.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchmarks.grid.cells import make_cells
from benchmarks.grid.methods import METHODS
from benchmarks.grid.rows import RESULTS, Cell
from benchmarks.options import add_data_root, fraction, natural, positive
from benchmarks.streams.registry import STREAMS

WITH_IMAGES = tuple(name for name, info in STREAMS.items() if info.class_names)
WITHOUT_TRAINING = tuple(name for name, method in METHODS.items() if method.family != "local")
EMBEDDED = ("default", "last-layer", "projection")
"""Families of methods whose embedding does not depend on a training."""


def add_arguments(
    parser: argparse.ArgumentParser,
    streams: Sequence[str] = WITH_IMAGES,
    methods: Sequence[str] = WITHOUT_TRAINING,
) -> None:
    """Options of ``python -m benchmarks show-memory``, and of other commands that show one."""
    parser.add_argument("stream", nargs="?", choices=streams, default="split-fashion-mnist")
    parser.add_argument("--method", choices=methods, default="gmc", help="the memory")
    parser.add_argument("--memory-size", type=positive, default=100, help="number of exemplars")
    parser.add_argument("--seed", type=natural, default=0, help="of the draws or the sampling")
    parser.add_argument("--train-fraction", type=fraction, default=1.0, help="of the stream")
    parser.add_argument("--output", type=Path, help="file; else in the results folder")
    add_data_root(parser)


def opened(args: argparse.Namespace, method: str) -> tuple[Cell, Any]:
    """The cell that the options ask for, and its stream."""
    from benchmarks.grid.runner import open_for

    what = ([args.stream], [method], [args.memory_size], [args.seed])
    (cell,) = make_cells("gdumb", *what, train_fraction=args.train_fraction)
    return cell, open_for(cell, args.data_root)


def selected(args: argparse.Namespace, method: str) -> tuple[Cell, Any, Any]:
    """The cell that the options ask for, its stream, and its memory at the end of it."""
    from benchmarks.grid.selection import select

    cell, stream = opened(args, method)
    found = select([cell], stream)[cell.key()]
    return cell, stream, found.memories[found.steps[-1]]


def path_of(args: argparse.Namespace, ending: str) -> Path:
    """Where the options want the result."""
    name = f"{args.stream}-{args.method}-{args.memory_size}-{args.seed}{ending}"
    return Path(args.output or RESULTS / "memories" / name)


def run(args: argparse.Namespace) -> int:
    """Select the memory and draw it."""
    from benchmarks.report import contact_sheet

    _, stream, memory = selected(args, args.method)
    info = STREAMS[args.stream]
    images = digit_images(memory.inputs) if info.data == "digits" else memory.inputs
    residual = "" if memory.residual is None else f"; residual {memory.residual:.3f}"
    seen = sum(map(sum, stream.class_counts()))
    title = f"{METHODS[args.method].label}: {len(memory.labels)} of {seen:,} images, {info.title}"
    path = path_of(args, ".png")
    contact_sheet.draw(
        images.numpy(),
        memory.labels.tolist(),
        None if memory.weights is None else memory.weights.tolist(),
        info.class_names.split(),
        title + residual,
        path,
    )
    print(path)
    return 0


def digit_images(inputs: Any) -> Any:
    """The n×1×8×8 pixels behind the standardised features of digits."""
    mean, deviation = _digit_statistics()
    return (inputs * deviation + mean).reshape(-1, 1, 8, 8)


@lru_cache(maxsize=1)
def _digit_statistics() -> tuple[Any, Any]:
    """Mean and deviation of the 64 features."""
    import torch

    from benchmarks.data import arrays
    from benchmarks.streams import tabular

    table = arrays.digits()
    train, _ = tabular.split_rows(table, tabular.DIGITS_TEST_SHARE)
    mean, deviation = tabular.statistics(table, train)
    return torch.from_numpy(mean), torch.from_numpy(deviation)
