"""Say how well memories match gradients at draws that chose them, and at others: a Markdown table.

    python -m benchmarks unseen-draws
    python -m benchmarks unseen-draws --streams digits --memory-sizes 50 200 --draws 1 4 16

A memory matches the sum of a stream's gradients at its own draws. What training meets are other
weights, so the match should hold there, too. The table has the length of what is left of the sum
(as a part of its own length) at the memory's draws and at others that no memory has seen, and the
effective size (Σw)²/Σw² of the memory: means over seeds. No network is trained.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.grid.methods import METHODS
from benchmarks.options import add_data_root, fraction, natural, positive
from benchmarks.report.pages import table
from benchmarks.streams.registry import STREAMS, title_of

if TYPE_CHECKING:
    from benchmarks.grid.rows import Cell

AS_THEY_COME = ("reservoir", "gmc")
UNSEEN, SEED = 16, 999_983
"""Draws to test with, and their seed, which no memory has."""

Found = tuple[float | None, float, float]
"""Residual at own draws, at unseen ones, effective size."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m benchmarks unseen-draws``."""
    parser.add_argument("--streams", nargs="+", choices=STREAMS, default=["digits"])
    parser.add_argument("--memory-sizes", nargs="+", type=positive, default=[50, 200])
    parser.add_argument("--draws", nargs="+", type=positive, default=[4, 16, 64])
    parser.add_argument("--seeds", nargs="+", type=natural, default=[0, 1, 2])
    parser.add_argument("--train-fraction", type=fraction, default=1.0, help="part of the stream")
    add_data_root(parser)


def run(args: argparse.Namespace) -> int:
    """Select the memories and print the table."""
    body = []
    for stream in args.streams:
        for (size, memory), (own, unseen, effective) in measured(stream, args).items():
            inside = f"{own:.4f}" if own is not None else "–"
            place = f"{title_of(stream)}, {size}"
            body.append([place, memory, inside, f"{unseen:.4f}", f"{effective:.0f}"])
    header = ["stream, exemplars", "memory", "at its draws", "at unseen draws", "effective size"]
    print(table(header, body))
    return 0


def measured(name: str, args: argparse.Namespace) -> dict[tuple[int, str], Found]:
    """By size and memory: the residual at its own draws and at others, and its effective size."""
    from benchmarks.grid.cells import make_cells
    from benchmarks.grid.runner import final_memories, stream_seed

    def cells_of(methods: Sequence[str], **options: Any) -> list[Cell]:
        grid = ("gdumb", [name], methods, args.memory_sizes, args.seeds)
        return make_cells(*grid, train_fraction=args.train_fraction, **options)

    cells = cells_of(AS_THEY_COME)
    for draws in dict.fromkeys(args.draws):
        cells += cells_of(["gmc-last-layer"], draws=draws)
    labels = [_label(cell) for cell in cells if cell.memory_size == args.memory_sizes[0]]
    found: dict[tuple[int, str], list[Found]] = {
        (size, label): [] for size in args.memory_sizes for label in labels
    }
    tests: dict[int, UnseenDraws] = {}
    for cell, stream, memory in final_memories(cells, args.data_root):
        own = stream_seed(cell)
        if own not in tests:
            tests[own] = UnseenDraws(stream)
        found[cell.memory_size, _label(cell)].append(tests[own](memory))
    return {place: _means(values) for place, values in found.items()}


class UnseenDraws:
    """The sum of a stream's gradients at draws that no memory has, to compare memories with."""

    def __init__(self, stream: Any) -> None:
        import torch

        from avalanche_gmc import LastLayerEmbedding

        self._embedding = LastLayerEmbedding(stream.make_model, draws=UNSEEN, seed=SEED)
        parts = [experience.dataset for experience in stream.benchmark.train_stream]
        self._number = sum(map(len, parts))
        self._sum = torch.stack([self._embedding.embed(part).sum() for part in parts]).sum(0)

    def __call__(self, memory: Any) -> Found:
        """Residual at the memory's own draws and at these, and the memory's effective size."""
        import torch

        from avalanche_gmc.buffers.gradient_matching import effective_size

        count = len(memory.labels)
        weights = memory.weights
        if weights is None:  # each exemplar stands for as many examples
            weights = torch.full((count,), self._number / count)
        weights = weights.to(self._sum)
        atoms = self._embedding.embed(memory.inputs, memory.labels)
        left = self._sum - atoms.combine(torch.arange(count), weights)
        return memory.residual, float(left.norm() / self._sum.norm()), effective_size(weights)


def _label(cell: Cell) -> str:
    if not cell.draws:
        return METHODS[cell.method].label
    return f"GMC, {cell.draws} draw{'s' if cell.draws > 1 else ''}"


def _means(values: list[Found]) -> Found:
    own, unseen, effective = zip(*values, strict=True)
    mean = None if None in own else sum(own) / len(own)
    return mean, sum(unseen) / len(unseen), sum(effective) / len(effective)
