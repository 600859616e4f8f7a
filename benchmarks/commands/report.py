"""Write a page that shows a memory and how it changed over a stream; open it in a browser.

    python -m benchmarks report
    python -m benchmarks report split-fashion-mnist --method reservoir --output reservoir.html

The page is ``avalanche_gmc.report``, for one of the memories of the grid; nothing is trained. The
accuracy figures of the experiments that have rows are in it, too.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.commands import show_memory
from benchmarks.grid.methods import METHODS
from benchmarks.grid.rows import PUBLISHED, Cell, ResultsFile
from benchmarks.options import folder
from benchmarks.streams.registry import STREAMS

FIGURES = {
    "gdumb": "Trained from scratch on the memory (GDumb): final accuracy by memory size",
    "gdumb-per-task": "Trained from scratch on the memory (GDumb): accuracy over the stream",
    "replay": "Experience replay: final accuracy by memory size",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m benchmarks report``."""
    show_memory.add_arguments(parser)
    parser.set_defaults(stream="digits")
    parser.add_argument("--results", type=folder, default=PUBLISHED, help="folder of the CSV files")


def run(args: argparse.Namespace) -> int:
    """Show the stream to a memory, record it and write the page."""
    from avalanche_gmc import report

    cell, stream = show_memory.opened(args, args.method)
    info = STREAMS[args.stream]
    buffer, history = recorded(cell, stream, digits=info.data == "digits")
    with tempfile.TemporaryDirectory() as drawn:
        path = report(
            buffer,
            show_memory.path_of(args, ".html"),
            history=history,
            class_names=info.class_names.split(),
            title=f"{METHODS[args.method].label}: {args.memory_size} exemplars of {info.title}",
            figures=accuracy_figures(args.results, Path(drawn)),
        )
    print(path)
    return 0


def recorded(cell: Cell, stream: Any, *, digits: bool) -> tuple[Any, Any]:
    """A cell's memory at the end of its stream, and its history."""
    from avalanche_gmc import MemoryHistory
    from avalanche_gmc.initialization import derive_seed, fresh_draws
    from benchmarks.grid.buffers import make_buffer, make_embedding
    from benchmarks.grid.selection import update

    history = MemoryHistory(display=_digit if digits else None)
    buffer = make_buffer(cell, make_embedding(cell, stream.make_model))
    (model,) = fresh_draws(stream.make_model, 1, derive_seed(cell.seed))
    for step, experience in enumerate(stream.benchmark.train_stream):
        seed = derive_seed(cell.seed, cell.memory_size, step)
        update(buffer, experience, SimpleNamespace(model=model), seed)
        history.record(buffer)
    return buffer, history


def accuracy_figures(results: Path, output: Path) -> dict[str, Path]:
    """Figures of the experiments that have rows, by their captions, drawn as SVG."""
    from benchmarks.report.figures import draw

    figures = {}
    for name, caption in FIGURES.items():
        rows = ResultsFile(results / f"{name}.csv").rows()
        if rows:
            figures[caption] = draw(name, rows, output)[1]
    return figures


def _digit(features: Any) -> Any:
    return show_memory.digit_images(features[None])[0]
