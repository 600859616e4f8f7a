"""What the paper claims, and what we ask beyond it, as comparisons of variants; no torch."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from benchmarks.grid.experiments import PAPER_STREAMS, PAPER_TABLES
from benchmarks.report.contrasts import Choice

TABLES, SPLITS = PAPER_TABLES, PAPER_STREAMS[len(PAPER_TABLES) :]
RESERVOIR = {"method": "reservoir"}
GMC = {"method": "gmc", "weighted": "yes"}
"""What the library does by itself."""
PAPER = {"draws": "4", "mode": "exact", "weighted": "yes"}
LAST = {"method": "gmc-last-layer", "dim": "0"} | PAPER
PROJECTION = {"method": "gmc-projection", "dim": "2000", "projection": "sparse"} | PAPER
LOCAL = {"method": "gmc-local", "draws": "1", "mode": "exact", "weighted": "yes"}
WINDOW, BALANCED = {"method": "sliding-window"}, {"method": "class-balanced"}
FACILITY = {"method": "facility-location"}
ABLATIONS = "ablations/gdumb"
BOTH = (("last layer", LAST), ("projection", PROJECTION))


@dataclass(frozen=True)
class Part:
    """One comparison of two variants, and how the claim says it comes out.

    :param source: CSV file below the results folder, without its ending; ``also`` another one.
    :param expected: "better", "worse", "level", "not worse", or "" where nothing is claimed.
    :param streams: those it speaks of.
    :param default: whether it is about the library's default, in place of the paper's settings.
    :param shrinking: compare the differences at the smallest and at the largest memory.
    """

    name: str
    source: str
    left: Choice
    right: Choice = field(default_factory=lambda: RESERVOIR)
    expected: str = ""
    streams: tuple[str, ...] = PAPER_STREAMS
    also: str = ""
    default: bool = False
    shrinking: bool = False


@dataclass(frozen=True, eq=False)
class Claim:
    """A sentence and the comparisons that bear on it; ``timed`` if they select differently.

    :param reason: why it does not hold as it stands, where it does not.
    """

    text: str
    parts: tuple[Part, ...]
    timed: bool = False
    reason: str = ""


LAST_LAYER = Part("last layer, 4 draws", "gdumb", LAST, expected="better")
PROJECTED = Part("projection", "gdumb", PROJECTION, expected="better")
OURS = Part("library's default", "gdumb", GMC, expected="better", default=True)

CLAIMS = (
    Claim(
        "GMC improves on reservoir sampling at all memory sizes: with last-layer gradients",
        (OURS, LAST_LAYER),
        reason="four draws have too few dimensions for large memories",
    ),
    Claim("The same with projected gradients", (PROJECTED,)),
    Claim(
        "By more the smaller the memory, with either",
        tuple(replace(part, shrinking=True) for part in (OURS, LAST_LAYER, PROJECTED)),
    ),
    Claim(
        "A sliding window fails everywhere",
        (Part("", "gdumb", WINDOW, expected="worse"),),
    ),
    Claim(
        "Class balancing is good class-incrementally and fails on sorted streams",
        (
            Part("", "gdumb", BALANCED, expected="not worse", streams=SPLITS),
            Part("", "gdumb", BALANCED, expected="worse", streams=TABLES),
        ),
    ),
    Claim(
        "Facility location matches reservoir sampling on iid and fails on sorted streams",
        tuple(
            Part("", "facility-location", FACILITY, expected=expected, streams=(stream,))
            for expected, stream in (("level", "iid-covertype"), ("worse", "sorted-covertype"))
        ),
    ),
    Claim(
        "With experience replay GMC is ahead too; on CIFAR-10 all are alike",
        tuple(
            Part(part.name, "replay", part.left, expected=expected, streams=streams, default=ours)
            for part, ours in ((OURS, True), (LAST_LAYER, False), (PROJECTED, False))
            for expected, streams in (("better", TABLES + SPLITS[:1]), ("level", SPLITS[1:]))
        ),
        reason="after long training on Covertype the default is behind",
    ),
    Claim(
        "Matching at the current weights (the local variant) is much worse",
        tuple(
            Part(f"against {name}", "local", LOCAL, other, "worse", TABLES)
            for name, other in (("the draws", LAST), ("reservoir", RESERVOIR))
        ),
    ),
    Claim(
        "Four draws are enough",
        tuple(
            Part(f"s = {s} against 4", ABLATIONS, LAST | {"draws": s}, LAST, expected, also="gdumb")
            for s, expected in {
                "1": "",
                "2": "",
                **dict.fromkeys(("8", "16", "64"), "level"),
            }.items()
        ),
        reason="more dimensions help most streams",
    ),
    Claim(
        "The dimension d of the projection matters little above n",
        tuple(
            Part(
                *(f"d = {d} against 2000", ABLATIONS, PROJECTION | {"dim": d}, PROJECTION),
                expected="level",
                also="gdumb",
            )
            for d in ("500", "1000")
        ),
    ),
)

BEYOND = (
    Claim(
        "The library's default against the paper's settings",
        tuple(Part(f"against {name}", "gdumb", GMC, choice) for name, choice in BOTH),
    ),
    Claim(
        "More draws of the last layer against reservoir sampling",
        tuple(
            Part(name, f"ablations/{experiment}", LAST | options, also=experiment)
            for name, experiment, options in (
                ("s = 16", "gdumb", {"draws": "16"}),
                ("s = 64", "gdumb", {"draws": "64"}),
                ("s = 16, fast", "gdumb", {"draws": "16", "mode": "fast"}),
                ("s = 39, fast", "gdumb", {"draws": "39", "mode": "fast"}),
                ("s = 16, replay", "replay", {"draws": "16"}),
                ("s = 64, replay", "replay", {"draws": "64"}),
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
    Claim(
        "Training in bfloat16 instead of float32",
        tuple(
            Part(name, "gdumb", choice | {"precision": "bf16"}, choice | {"precision": "float32"})
            for name, choice in (
                ("last layer, 4 draws", LAST),
                ("reservoir", RESERVOIR),
                ("class-balanced", BALANCED),
            )
        ),
    ),
)
RIVALS = (
    ("the paper's last layer", LAST),
    ("the paper's projection", PROJECTION),
    ("reservoir sampling", RESERVOIR),
    ("class balancing", BALANCED),
    ("the sliding window", WINDOW),
)
"""The paper's methods, which the library's default should nowhere be behind."""
