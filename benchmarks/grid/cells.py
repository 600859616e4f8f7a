"""What a grid consists of: experiments named after the paper's figures, their cells, presets.

No torch in here: the command line and the figures read these tables.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks import UsageError
from benchmarks.grid.methods import METHODS
from benchmarks.grid.rows import Cell
from benchmarks.streams.registry import stream_info


@dataclass(frozen=True)
class Experiment:
    """A figure of the paper.

    :param paradigm: how a memory is used: ``gdumb`` (train from scratch on it), ``replay`` (train
        on it together with the current experience) or ``count`` (nothing is trained).
    :param per_experience: whether the accuracy after each experience is asked for.
    :param training: columns of the cells in which the experiment departs from the paper.
    :param image_training: the same for streams of images, where they differ.
    :param memory_factors: by method and for ``others``, how often the memory's mean loss is added
        to that of the current experience; such an experiment starts a new optimizer at each
        experience. Without them the memory counts for the part of the stream that it represents.
    :param published: what others report, for the table.
    :param side_by_side: whether it compares many memories of few sizes, which are drawn as dots.
    """

    figure: str
    paradigm: str
    streams: tuple[str, ...]
    methods: tuple[str, ...]
    memory_sizes: tuple[int, ...]
    per_experience: bool = False
    training: Mapping[str, Any] = field(default_factory=dict)
    image_training: Mapping[str, Any] = field(default_factory=dict)
    memory_factors: Mapping[str, float] = field(default_factory=dict)
    published: str = ""
    side_by_side: bool = False

    def memory_factor(self, method: str) -> float | None:
        """The factor of a method, if there are factors."""
        return self.memory_factors.get(method, self.memory_factors.get("others"))


BASELINES = ("reservoir", "class-balanced", "sliding-window")
GMC = ("gmc", "gmc-last-layer", "gmc-projection")
RIVALS = (
    *("gmc", "reservoir", "class-balanced", "cbrs", "herding", "k-center", "k-means++", "grand"),
    *("giga", "bilevel", "gss", "grad-match", "avalanche-class-balanced"),
    *("avalanche-experience-balanced", "avalanche-herding"),
)
PAPER_TABLES = ("sorted-covertype", "sorted-electricity")
PAPER_STREAMS = (*PAPER_TABLES, "split-fashion-mnist", "split-cifar10")
PAPER_SIZES = (100, 200, 500, 1000, 2000, 5000)

EXPERIMENTS = {
    "gdumb": Experiment(
        "final accuracy against memory size, GDumb",
        *("gdumb", PAPER_STREAMS, (*GMC, *BASELINES), PAPER_SIZES),
    ),
    "gdumb-per-task": Experiment(
        "accuracy after each experience, GDumb",
        *("gdumb", PAPER_STREAMS, ("gmc", *BASELINES), (1000,)),
        per_experience=True,
    ),
    "facility-location": Experiment(
        "facility location on a sorted and an iid stream, GDumb",
        "gdumb",
        ("sorted-covertype", "iid-covertype"),
        ("facility-location", "gmc-last-layer", "reservoir"),
        PAPER_SIZES,
    ),
    "replay": Experiment(
        "final accuracy against memory size, experience replay",
        *("replay", PAPER_STREAMS, ("gmc", "reservoir", "class-balanced"), (100, 500, 2000)),
        training={"epochs": 50},
        image_training={"epochs": 20},
    ),
    "local": Experiment(
        "the local variant, experience replay",
        *("replay", PAPER_TABLES, ("gmc-local", "gmc-last-layer", "reservoir"), PAPER_SIZES[:5]),
        training={"epochs": 50},
    ),
    "class-frequencies": Experiment(
        "classes in each experience of the sorted streams",
        *("count", PAPER_TABLES, ("stream",), (0,)),
    ),
    "rivals": Experiment(
        "selection rules side by side, GDumb",
        *("gdumb", ("digits", "sorted-electricity"), RIVALS, (50, 200, 1000)),
        side_by_side=True,
    ),
    "rivals-replay": Experiment(
        "selection rules side by side, experience replay",
        *("replay", ("digits", "sorted-electricity"), RIVALS, (50, 200, 1000)),
        training={"epochs": 10},
        image_training={"epochs": 1},
        side_by_side=True,
    ),
    "gdumb-published": Experiment(
        "final accuracy in the training of GDumb's authors",
        *("gdumb", ("split-mnist", "split-mnist-400"), ("gmc", "class-balanced", "reservoir")),
        (300, 500),
        training={"epochs": 127, "batch_size": 16, "learning_rate": 0.05},
        published="Published (Prabhu et al., 2020; class-balanced, the best of all passes): "
        "MLP-100, 300 exemplars 0.891 ± 0.004, 500 0.902 ± 0.004; MLP-400, 500 0.919 ± 0.005.",
    ),
    "label-noise": Experiment(
        "a fifth of the training labels wrong, GDumb",
        *("gdumb", ("noisy-digits", "confused-digits", "noisy-fashion-mnist")),
        ("gmc", "reservoir", "class-balanced", "grand", "herding", "giga", "bilevel", "k-center"),
        (100, 500),
        side_by_side=True,
    ),
    # Borsos et al., "Coresets via bilevel optimization for continual learning and streaming",
    # NeurIPS 2020; the factors are theirs, chosen on the results.
    "imbalanced": Experiment(
        "final accuracy on an imbalanced stream, experience replay",
        "replay",
        ("imbalanced-mnist",),
        ("gmc", "gmc-balanced", "reservoir", "class-balanced", "cbrs", "bilevel"),
        (100,),
        training={"epochs": 40, "batch_size": 256, "learning_rate": 5e-4},
        memory_factors={"reservoir": 100.0, "others": 10.0},
        published="Published with 100 exemplars (Borsos et al., 2020): reservoir 0.806 ± 0.044, "
        "CBRS 0.897 ± 0.013, bilevel coreset 0.923 ± 0.002.",
    ),
    "demo": Experiment(
        "small memories of bundled digits, GDumb",
        *("gdumb", ("digits", "sorted-digits"), ("gmc", *BASELINES), (20, 50, 100, 200)),
    ),
}


@dataclass(frozen=True)
class Preset:
    """How much of an experiment to run; ``None`` keeps the experiment's own list."""

    seeds: tuple[int, ...]
    epochs: int
    memory_sizes: tuple[int, ...] | None = None
    train_fraction: float = 1.0


PRESETS = {
    "paper": Preset(seeds=(0, 1, 2, 3, 4), epochs=200),
    # Small memories, fully trained, of a thin stream: a look at every panel, not a result.
    "quick": Preset(seeds=(0, 1), epochs=100, memory_sizes=(100, 200), train_fraction=0.05),
}


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
    :param options: columns of the cells that come before the experiment's own.
    """
    known = EXPERIMENTS[experiment]
    if known.paradigm == "count":
        methods, memory_sizes, seeds = known.methods, known.memory_sizes, (0,)
    else:
        check_methods(methods)
    cells = []
    for stream in streams:
        model = stream_info(stream).model
        own = {**known.training, **({} if model.startswith("mlp") else known.image_training)}
        columns = {**(defaults or {}), **own, **options}
        for seed, method, size in itertools.product(seeds, methods, memory_sizes):
            cell = Cell(experiment, stream, method, size, seed, model, **columns)
            cells.append(without_idle_options(cell))
    return cells


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


def check_methods(methods: Sequence[str]) -> None:
    """Refuse methods that nobody knows."""
    for method in methods:
        if method not in METHODS:
            raise UsageError(f"unknown method {method!r}: choose from {', '.join(METHODS)}")


def cost(cell: Cell) -> float:
    """Rough relative cost of a cell, for the time left."""
    trainings = 10 if EXPERIMENTS[cell.experiment].per_experience else 1
    examples = max(cell.memory_size, cell.batch_size) * cell.epochs * trainings
    return examples * {"cnn": 60, "dropout-cnn": 20, "resnet18": 160}.get(cell.model, 1)


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
