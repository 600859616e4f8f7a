"""Experiments, named after the paper's figures: what each compares, and how much of it to run.

No torch in here: the command line and the figures read these tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Scale:
    """How much to run; ``None`` leaves it to whoever is asked next."""

    seeds: tuple[int, ...] | None = None
    epochs: int | None = None
    memory_sizes: tuple[int, ...] | None = None
    train_fraction: float | None = None


@dataclass(frozen=True)
class Published:
    """Accuracies that others report of the same experiment.

    :param source: where, and what is unlike ours.
    :param ours: the method of this library that stands beside them.
    :param figures: by stream, method and memory size.
    """

    source: str
    ours: str
    figures: Mapping[tuple[str, str, int], str]


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
    :param published: what others report, if they do.
    :param side_by_side: whether it compares many memories of few sizes, which are drawn as dots.
    :param scales: by stream, where streams are not run at the same sizes or as often.
    :param variants: columns of the cells; each cell is run once with each of them.
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
    published: Published | None = None
    side_by_side: bool = False
    scales: Mapping[str, Scale] = field(default_factory=dict)
    variants: tuple[Mapping[str, Any], ...] = ({},)

    def memory_factor(self, method: str) -> float | None:
        """The factor of a method, if there are factors."""
        return self.memory_factors.get(method, self.memory_factors.get("others"))


BASELINES = ("reservoir", "class-balanced", "sliding-window")
GMC = ("gmc", "gmc-last-layer", "gmc-projection")
RIVALS = (
    *("gmc", "reservoir", "class-balanced", "cbrs", "herding", "k-center", "k-means++", "grand"),
    *("giga", "bilevel", "gss", "gss-draws", "grad-match", "avalanche-class-balanced"),
    *("avalanche-experience-balanced", "avalanche-herding"),
)
PAPER_TABLES = ("sorted-covertype", "sorted-electricity")
PAPER_STREAMS = (*PAPER_TABLES, "split-fashion-mnist", "split-cifar10")
PAPER_SIZES = (100, 200, 500, 1000, 2000, 5000)

RIVAL_STREAMS = ("digits", "sorted-electricity", "split-fashion-mnist", "imbalanced-mnist")
IMAGES = Scale(seeds=(0, 1, 2), memory_sizes=(100, 500))
RIVAL_SCALES = dict.fromkeys(RIVAL_STREAMS[2:], IMAGES)

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
    "draws": Experiment(
        "what more draws bring at the same total dimension and at more, GDumb",
        "gdumb",
        ("sorted-electricity", "sorted-covertype", "digits", "split-mnist", "split-fashion-mnist"),
        ("gmc-last-layer", "reservoir"),
        (200, 1000),
        scales={
            "sorted-covertype": Scale(train_fraction=0.1),
            "digits": Scale(memory_sizes=(50, 200)),
            "split-fashion-mnist": Scale(seeds=(0, 1, 2), train_fraction=0.2),
        },
        variants=tuple(
            {"draws": draws, "same_dim_as": same}
            for same in (0, 4, 1)
            for draws in (1, 4, 16, 64)
            if not same or draws > same
        ),
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
        *("gdumb", RIVAL_STREAMS, RIVALS, (50, 200, 1000)),
        side_by_side=True,
        scales=RIVAL_SCALES,
    ),
    "rivals-replay": Experiment(
        "selection rules side by side, experience replay",
        *("replay", RIVAL_STREAMS, RIVALS, (50, 200, 1000)),
        training={"epochs": 10},
        image_training={"epochs": 3},
        side_by_side=True,
        # Every method trains on the whole stream here, so a fifth of Fashion-MNIST, three times.
        # Experiences of imbalanced MNIST are 125 images: ten steps each.
        scales={
            "split-fashion-mnist": replace(IMAGES, train_fraction=0.2),
            "imbalanced-mnist": replace(IMAGES, epochs=5),
        },
    ),
    "gdumb-published": Experiment(
        "final accuracy in the training of GDumb's authors",
        *("gdumb", ("split-mnist", "split-mnist-400", "split-cifar10-gdumb")),
        ("gmc", "class-balanced", "reservoir"),
        (300, 500),
        training={"epochs": 127, "batch_size": 16, "learning_rate": 0.05},
        published=Published(
            "Prabhu et al., 2020; the best of all passes where ours is the last one",
            "gmc",
            {
                ("split-mnist", "class-balanced", 300): "0.891 ± 0.004",
                ("split-mnist", "class-balanced", 500): "0.902 ± 0.004",
                ("split-mnist-400", "class-balanced", 500): "0.919 ± 0.005",
                ("split-cifar10-gdumb", "class-balanced", 200): "0.350 ± 0.004",
                ("split-cifar10-gdumb", "class-balanced", 500): "0.454 ± 0.019",
                ("split-cifar10-gdumb", "class-balanced", 1000): "0.612 ± 0.010",
            },
        ),
        scales={
            "split-cifar10-gdumb": Scale(
                epochs=255, seeds=(0, 1, 2), memory_sizes=(200, 500, 1000)
            ),
        },
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
        published=Published(
            "Borsos et al., 2020; their bilevel coresets have another kernel",
            "gmc-balanced",
            {
                ("imbalanced-mnist", "reservoir", 100): "0.806 ± 0.044",
                ("imbalanced-mnist", "cbrs", 100): "0.897 ± 0.013",
                ("imbalanced-mnist", "bilevel", 100): "0.923 ± 0.002",
            },
        ),
    ),
    "demo": Experiment(
        "small memories of bundled digits, GDumb",
        *("gdumb", ("digits", "sorted-digits"), ("gmc", *BASELINES), (20, 50, 100, 200)),
    ),
}


PRESETS = {
    "paper": Scale(),
    # Small memories, fully trained, of a thin stream: a look at every panel, not a result.
    "quick": Scale(seeds=(0, 1), epochs=100, memory_sizes=(100, 200), train_fraction=0.05),
}
WHOLE = Scale(seeds=(0, 1, 2, 3, 4), epochs=200, train_fraction=1.0)
"""Where nobody says otherwise."""
