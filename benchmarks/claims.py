"""Hold the paper's claims against the committed rows: a Markdown table, claim by claim.

    python -m benchmarks claims                                          # print it
    python -m benchmarks claims --update README.md benchmarks/README.md  # and put it into pages

A page has marks around the place of the table: ``<!-- claims -->`` and ``<!-- end of claims -->``
or, for the verdicts alone, ``<!-- verdicts -->`` and ``<!-- end of verdicts -->``.

Differences in accuracy are paired by seed. One counts as clear if its mean is more than two
standard errors from zero. A claim is *reproduced* if every comparison comes out as it says,
*partly* if some do, *not reproduced* if none does; a single seed does not count.
Nothing is trained, torch is not imported.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from benchmarks import UsageError
from benchmarks.averages import Row
from benchmarks.contrasts import Choice, Difference, differences
from benchmarks.plots import TITLES
from benchmarks.results import RESULTS, ResultsFile

EXPECTATIONS: dict[str, Callable[[int], bool]] = {
    "better": lambda sign: sign > 0,
    "worse": lambda sign: sign < 0,
    "alike": lambda sign: sign == 0,
    "not worse": lambda sign: sign >= 0,
}
SHRINKING = "shrinking"
"""Another expectation: the mean difference is larger at the smallest size than at the largest."""

TABLES = ("sorted-covertype", "sorted-electricity")
SPLITS = ("split-fashion-mnist", "split-cifar10")
LAST, PROJECTION = {"method": "gmc-last-layer"}, {"method": "gmc-projection"}
RESERVOIR = {"method": "reservoir"}
PAPER = {"draws": "4", "mode": "exact", "weighted": "yes"}
PAPER_LAST = LAST | PAPER
PAPER_PROJECTION = PROJECTION | PAPER | {"dim": "2000", "projection": "sparse"}


@dataclass(frozen=True)
class Part:
    """One comparison of two variants, and how the claim says it comes out.

    :param expected: a name of ``EXPECTATIONS``, ``SHRINKING``, or "" where nothing is claimed.
    :param source: CSV file below the results folder, without its ending.
    :param streams: those it speaks of; all if there are none.
    """

    name: str
    source: str
    left: Choice
    right: Choice
    expected: str = ""
    streams: tuple[str, ...] = ()

    def differences(self, rows: Sequence[Row]) -> list[Difference]:
        """The comparisons that the rows allow."""
        kept = [row for row in rows if not self.streams or row["stream"] in self.streams]
        return differences(kept, self.left, self.right)


@dataclass(frozen=True)
class Claim:
    """A sentence and the comparisons that bear on it."""

    text: str
    parts: tuple[Part, ...]


CLAIMS = (
    Claim(
        "GMC improves on reservoir sampling at all memory sizes",
        (
            Part("last layer", "gdumb", PAPER_LAST, RESERVOIR, "better"),
            Part("projection", "gdumb", PAPER_PROJECTION, RESERVOIR, "better"),
        ),
    ),
    Claim(
        "It does so by more the smaller the memory",
        (
            Part("last layer", "gdumb", PAPER_LAST, RESERVOIR, SHRINKING),
            Part("projection", "gdumb", PAPER_PROJECTION, RESERVOIR, SHRINKING),
        ),
    ),
    Claim(
        "A sliding window fails everywhere",
        (Part("sliding window", "gdumb", {"method": "sliding-window"}, RESERVOIR, "worse"),),
    ),
    Claim(
        "Class balancing is good class-incrementally and fails on sorted streams",
        (
            Part("", "gdumb", {"method": "class-balanced"}, RESERVOIR, "not worse", SPLITS),
            Part("", "gdumb", {"method": "class-balanced"}, RESERVOIR, "worse", TABLES),
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
            Part("last layer", "replay", PAPER_LAST, RESERVOIR, "better", TABLES + SPLITS[:1]),
            Part("last layer", "replay", PAPER_LAST, RESERVOIR, "alike", SPLITS[1:]),
        ),
    ),
    Claim(
        "Matching at the current weights (the local variant) is much worse",
        (
            Part("against the draws", "local", {"method": "gmc-local"}, PAPER_LAST, "worse"),
            Part("against reservoir", "local", {"method": "gmc-local"}, RESERVOIR, "worse"),
        ),
    ),
    Claim(
        "Four draws are enough",
        tuple(
            Part(
                f"s = {draws} against 4",
                "ablations/gdumb",
                LAST | PAPER | {"draws": str(draws)},
                PAPER_LAST,
                expected,
            )
            for draws, expected in ((1, ""), (2, ""), (8, "alike"))
        ),
    ),
    Claim(
        "The dimension d of the projection matters little above n",
        tuple(
            Part(
                f"d = {dim} against 2000",
                "ablations/gdumb",
                PAPER_PROJECTION | {"dim": str(dim)},
                PAPER_PROJECTION,
                "alike",
            )
            for dim in (500, 1000)
        ),
    ),
)

BEYOND = (
    Claim(
        "Training with the weights instead of without",
        tuple(
            Part(name, "ablations/gdumb", choice, choice | {"weighted": "no"})
            for name, choice in (("last layer", PAPER_LAST), ("projection", PAPER_PROJECTION))
        ),
    ),
    Claim(
        "Orthogonal least squares instead of the paper's rule",
        tuple(
            Part(name, source, choice | {"method": f"{choice['method']}-ols"}, choice)
            for name, source, choice in (
                ("last layer", "gdumb", PAPER_LAST),
                ("projection", "gdumb", PAPER_PROJECTION),
            )
        ),
    ),
    Claim(
        "The sparse projection instead of the dense one",
        (
            Part(
                "",
                "ablations/gdumb",
                PAPER_PROJECTION,
                PAPER_PROJECTION | {"projection": "rademacher"},
            ),
        ),
    ),
    Claim(
        "Fast instead of exact pursuit",
        tuple(
            Part(name, "ablations/gdumb", choice | {"mode": "fast"}, choice)
            for name, choice in (("last layer", PAPER_LAST), ("projection", PAPER_PROJECTION))
        ),
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m benchmarks claims``."""
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the CSV files")
    parser.add_argument(
        "--update", type=Path, nargs="+", default=[], metavar="PAGE", help="put it into these"
    )


def run(args: argparse.Namespace) -> int:
    """Print the tables; update pages if asked to."""
    pages = {page: updated(page, args.results) for page in args.update}
    for page, text in pages.items():
        page.write_text(text, encoding="utf-8")
    print(markdown(args.results))
    return 0


def markdown(results: Path) -> str:
    """Both tables, from whatever rows there are."""
    paper = [[claim.text, *measured(claim, results), verdict(claim, results)] for claim in CLAIMS]
    beyond = [[claim.text, *measured(claim, results, times=True)] for claim in BEYOND]
    return "\n\n".join(
        [
            plain_table(["the paper says", "measured: difference in accuracy", "verdict"], paper),
            plain_table(["beyond the paper", "measured: difference in accuracy"], beyond),
        ]
    )


def verdicts(results: Path) -> str:
    """The paper's claims and what became of them."""
    body = [[claim.text, verdict(claim, results)] for claim in CLAIMS]
    return plain_table(["the paper says", "here"], body)


def plain_table(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Markdown text; cells this long are better left unaligned."""
    lines = [header, ["---"] * len(header), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def measured(claim: Claim, results: Path, *, times: bool = False) -> list[str]:
    """One cell that lists the differences of all parts of a claim, stream by stream."""
    if all(part.expected == SHRINKING for part in claim.parts):
        return ["as above"]
    lines = []
    for part in claim.parts:
        found = part.differences(rows_of(part.source, results))
        for stream, own in groupby(found, key=lambda difference: difference.stream):
            name = ", ".join(filter(None, [TITLES.get(stream, stream), part.name]))
            lines.append(f"{name}: {listed(list(own), times=times)}")
    return ["<br>".join(lines) or "not run"]


def listed(found: Sequence[Difference], *, times: bool) -> str:
    """Mean differences by memory size; those that are not clear of zero in brackets."""
    values = [
        f"{gap.memory_size}: {gap.accuracy.mean:+.3f} ± {gap.accuracy.std:.3f}" for gap in found
    ]
    marked = [v if gap.sign else f"({v})" for v, gap in zip(values, found, strict=True)]
    seeds = {gap.accuracy.count for gap in found}
    count = f"{min(seeds)}" if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
    text = f"{', '.join(marked)}; {count} seed{'s' if max(seeds) > 1 else ''}"
    ratios = [gap.time_ratio for gap in found if not math.isnan(gap.time_ratio)]
    if times and ratios:
        text += f"; time to select × {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}"
    return text


def verdict(claim: Claim, results: Path) -> str:
    """Whether the comparisons come out as the claim says."""
    hits = [hit for part in claim.parts for hit in outcomes(part, results)]
    if not hits:
        return "not run"
    word = "reproduced" if all(hits) else "partly" if any(hits) else "not reproduced"
    return f"**{word}**, {sum(hits)} of {len(hits)}"


def outcomes(part: Part, results: Path) -> list[bool]:
    """For each comparison of a part, whether it comes out as expected."""
    found = part.differences(rows_of(part.source, results))
    found = [gap for gap in found if gap.accuracy.count > 1]
    if part.expected == SHRINKING:
        streams = [list(own) for _, own in groupby(found, key=lambda gap: gap.stream)]
        return [gaps[0].accuracy.mean > gaps[-1].accuracy.mean for gaps in streams if gaps[1:]]
    return [EXPECTATIONS[part.expected](gap.sign) for gap in found if part.expected]


def rows_of(source: str, results: Path) -> list[dict[str, str]]:
    """The rows of a file, none if there is no such file."""
    path = results / f"{source}.csv"
    return ResultsFile(path).rows() if path.exists() else []


MARKED: dict[str, Callable[[Path], str]] = {"claims": markdown, "verdicts": verdicts}


def updated(page: Path, results: Path) -> str:
    """The text of a page with its marked parts as the rows want them."""
    if not page.exists():
        raise UsageError(f"{page} does not exist")
    text, found = page.read_text(encoding="utf-8"), False
    for name, make in MARKED.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
        before, opened, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if opened and closed:
            text, found = f"{before}{begin}\n{make(results)}\n\n{end}{after}", True
    if not found:
        raise UsageError(f"{page} has no part between <!-- claims --> and <!-- end of claims -->")
    return text
