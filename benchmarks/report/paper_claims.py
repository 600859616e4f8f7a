"""What the paper claims, and what we ask beyond it, as comparisons of variants; no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.grid.cells import PAPER_STREAMS, PAPER_TABLES
from benchmarks.report.averages import Choice

EXPECTATIONS: dict[str, Callable[[int], bool]] = {
    "better": lambda sign: sign > 0,
    "worse": lambda sign: sign < 0,
    "alike": lambda sign: sign == 0,
    "not worse": lambda sign: sign >= 0,
}
SHRINKING = "shrinking"
"""Another expectation: the mean difference is larger at the smallest size than at the largest."""

TABLES, SPLITS = PAPER_TABLES, PAPER_STREAMS[len(PAPER_TABLES) :]
RESERVOIR = {"method": "reservoir"}
PAPER = {"draws": "4", "mode": "exact", "weighted": "yes"}
LAST = {"method": "gmc-last-layer"} | PAPER
PROJECTION = {"method": "gmc-projection", "dim": "2000", "projection": "sparse"} | PAPER
ABLATIONS = "ablations/gdumb"


@dataclass(frozen=True)
class Part:
    """One comparison of two variants, and how the claim says it comes out.

    :param expected: a name of ``EXPECTATIONS``, ``SHRINKING``, or "" where nothing is claimed.
    :param source: CSV file below the results folder, without its ending.
    :param streams: those it speaks of.
    :param also: another file, for rows that ``source`` does not have.
    """

    name: str
    source: str
    left: Choice
    right: Choice
    expected: str = ""
    streams: tuple[str, ...] = PAPER_STREAMS
    also: str = ""


@dataclass(frozen=True)
class Claim:
    """A sentence and the comparisons that bear on it; ``timed`` if they select differently."""

    text: str
    parts: tuple[Part, ...]
    timed: bool = False


def against_reservoir(name: str, method: str | Choice, expected: str, *more: Any) -> Part:
    """A comparison with reservoir sampling under GDumb."""
    choice = {"method": method} if isinstance(method, str) else method
    return Part(name, "gdumb", choice, RESERVOIR, expected, *more)


CLAIMS = (
    Claim(
        "GMC improves on reservoir sampling at all memory sizes: with projected gradients",
        (against_reservoir("projection", PROJECTION, "better"),),
    ),
    Claim(
        "The same with last-layer gradients",
        (against_reservoir("last layer", LAST, "better"),),
    ),
    Claim(
        "By more the smaller the memory, with either",
        (
            against_reservoir("projection", PROJECTION, SHRINKING),
            against_reservoir("last layer", LAST, SHRINKING),
        ),
    ),
    Claim(
        "A sliding window fails everywhere",
        (against_reservoir("sliding window", "sliding-window", "worse"),),
    ),
    Claim(
        "Class balancing is good class-incrementally and fails on sorted streams",
        (
            against_reservoir("", "class-balanced", "not worse", SPLITS),
            against_reservoir("", "class-balanced", "worse", TABLES),
        ),
    ),
    Claim(
        "Facility location matches reservoir sampling on iid and fails on sorted streams",
        tuple(
            Part("", "facility-location", {"method": "facility-location"}, RESERVOIR, *rest)
            for rest in (("alike", ("iid-covertype",)), ("worse", ("sorted-covertype",)))
        ),
    ),
    Claim(
        "With experience replay GMC is ahead too, by less; on CIFAR-10 all are alike",
        (
            Part("last layer", "replay", LAST, RESERVOIR, "better", TABLES + SPLITS[:1]),
            Part("last layer", "replay", LAST, RESERVOIR, "alike", SPLITS[1:]),
        ),
    ),
    Claim(
        "Matching at the current weights (the local variant) is much worse",
        (
            Part("against the draws", "local", {"method": "gmc-local"}, LAST, "worse"),
            Part("against reservoir", "local", {"method": "gmc-local"}, RESERVOIR, "worse"),
        ),
    ),
    Claim(
        "Four draws are enough",
        tuple(
            Part(f"s = {s} against 4", ABLATIONS, LAST | {"draws": s}, LAST, expected, also="gdumb")
            for s, expected in (("1", ""), ("2", ""), ("8", "alike"), ("16", "alike"))
        ),
    ),
    Claim(
        "The dimension d of the projection matters little above n",
        tuple(
            Part(f"d = {d} against 2000", ABLATIONS, PROJECTION | {"dim": d}, PROJECTION, "alike")
            for d in ("500", "1000")
        ),
    ),
)
BOTH = (("last layer", LAST), ("projection", PROJECTION))

BEYOND = (
    Claim(
        "More draws of the last layer against reservoir sampling",
        tuple(
            Part(name, f"ablations/{experiment}", LAST | options, RESERVOIR, also=experiment)
            for name, experiment, options in (
                ("s = 16", "gdumb", {"draws": "16"}),
                ("s = 16, fast", "gdumb", {"draws": "16", "mode": "fast"}),
                ("s = 39, fast", "gdumb", {"draws": "39", "mode": "fast"}),
                ("s = 16, replay", "replay", {"draws": "16"}),
            )
        ),
    ),
    Claim(
        "Training with the weights instead of without",
        tuple(
            Part(name, f"ablations/{file}", choice, choice | {"weighted": "no"}, also=file)
            for name, choice, file in (
                *((name, choice, "gdumb") for name, choice in BOTH),
                ("last layer, replay", LAST, "replay"),
            )
        ),
    ),
    Claim(
        "The sparse projection instead of the dense one",
        (Part("", ABLATIONS, PROJECTION, PROJECTION | {"projection": "rademacher"}),),
        timed=True,
    ),
    Claim(
        "Fast instead of exact pursuit",
        tuple(Part(name, ABLATIONS, choice | {"mode": "fast"}, choice) for name, choice in BOTH),
        timed=True,
    ),
)
