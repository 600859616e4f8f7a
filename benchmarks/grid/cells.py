"""What a grid consists of: cells, and groups of cells that share work; no torch in here."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks import UsageError
from benchmarks.grid.experiments import EXPERIMENTS
from benchmarks.grid.methods import METHODS
from benchmarks.grid.rows import Cell
from benchmarks.streams.registry import last_layer_dim, stream_info


def make_cells(
    experiment: str,
    streams: Sequence[str],
    methods: Sequence[str],
    memory_sizes: Sequence[int],
    seeds: Sequence[int],
    *,
    defaults: Mapping[str, Any] | None = None,
    **options: Any,
) -> list[Cell]:
    """The full grid, ordered so that cells that share work are neighbours.

    :param defaults: columns of the cells; the experiment's own come before them.
    :param options: columns of the cells that come before the experiment's own; and
        ``same_dim_as``, see :func:`with_equal_dim`.
    """
    known = EXPERIMENTS[experiment]
    if known.paradigm == "count":
        methods, memory_sizes, seeds = known.methods, known.memory_sizes, (0,)
    else:
        check_methods(methods)
    cells: dict[Cell, None] = {}
    for stream in streams:
        model = stream_info(stream).model
        own = {**known.training, **({} if model.startswith("mlp") else known.image_training)}
        if (scale := known.scales.get(stream)) is not None and scale.epochs is not None:
            own["epochs"] = scale.epochs
        for variant, seed, method, size in itertools.product(
            known.variants, seeds, methods, memory_sizes
        ):
            columns = {**(defaults or {}), **own, **variant, **options}
            same_dim_as = columns.pop("same_dim_as", 0)
            cell = without_idle_options(
                Cell(experiment, stream, method, size, seed, model, **columns)
            )
            cells[with_equal_dim(cell, same_dim_as)] = None
    return list(cells)


def without_idle_options(cell: Cell) -> Cell:
    """Blank the options that the method does not look at, so that they identify no cell."""
    blank: dict[str, Any] = {"draws": 0, "dim": 0, "projection": "", "mode": "", "weighted": False}
    method = METHODS.get(cell.method)
    if method is None:
        return replace(cell, **blank, epochs=0, batch_size=0, learning_rate=0.0)
    if method.family == "local":
        blank["draws"] = 1
    if cell.model.startswith("mlp"):  # bfloat16 only costs time there
        cell = replace(cell, precision="float32")
    return replace(cell, **{k: v for k, v in blank.items() if k not in method.options})


def with_equal_dim(cell: Cell, draws: int) -> Cell:
    """The cell with as many dimensions in all as ``draws`` draws of a whole last layer have.

    It keeps fewer features of each draw then. A cell of fewer draws, which have no more, is left as
    it is, and so is any for 0.
    """
    if cell.method != "gmc-last-layer" or not 0 < draws < cell.draws:
        return cell
    return replace(cell, dim=last_layer_dim(cell.stream) * draws // cell.draws)


def check_methods(methods: Sequence[str]) -> None:
    """Refuse methods that nobody knows."""
    for method in methods:
        if method not in METHODS:
            raise UsageError(f"unknown method {method!r}: choose from {', '.join(METHODS)}")


def cost(cell: Cell) -> float:
    """Rough relative cost of a cell, for the time left."""
    trainings = 10 if EXPERIMENTS[cell.experiment].per_experience else 1
    examples = max(cell.memory_size, cell.batch_size) * cell.epochs * trainings
    factors = {"cnn": 60, "dropout-cnn": 20, "resnet18": 160, "small-resnet18": 2000}
    return examples * factors.get(cell.model, 1)


@dataclass(frozen=True)
class Group:
    """Cells that share one pass over one stream: data, embeddings and the claim on the work."""

    cells: tuple[Cell, ...]

    def name(self) -> str:
        """A file name that is the same for the same work, whoever runs it."""
        shared = group_key(self.cells[0])
        digest = hashlib.sha256(repr(shared).encode()).hexdigest()[:12]
        return f"{self.cells[0].experiment}-{digest}"


def group_key(cell: Cell) -> tuple[object, ...]:
    """Cells with the same key differ in memory size and in methods of one family only."""
    family = METHODS[cell.method].family if cell.method in METHODS else cell.method
    shared = {**cell.row(), "method": family}
    del shared["memory_size"]
    return tuple(shared.items())


def make_groups(cells: Sequence[Cell]) -> list[Group]:
    """Collect the cells into groups, in the order in which the groups first appear."""
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        groups.setdefault(group_key(cell), []).append(cell)
    return [Group(tuple(members)) for members in groups.values()]


def shard(groups: Sequence[Group], index: int, count: int) -> list[Group]:
    """Part ``index`` of ``count`` of a grid; the parts are disjoint and together the whole."""
    return [group for number, group in enumerate(groups) if number % count == index]
