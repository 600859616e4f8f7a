"""The paper's claims against the rows, as Markdown tables.

Differences in accuracy are paired by seed. One counts as clear if its mean is more than two
standard errors from zero. A claim is *reproduced* if every comparison comes out as it says,
*partly* if some do, *not reproduced* if none does; a single seed does not count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

from benchmarks import UsageError
from benchmarks.grid.rows import ResultsFile
from benchmarks.report import pages
from benchmarks.report.contrasts import Difference
from benchmarks.report.paper_claims import BEYOND, CLAIMS, EXPECTATIONS, SHRINKING, Claim, Part
from benchmarks.streams.registry import title_of


def markdown(results: Path) -> str:
    """Both tables, from whatever rows there are."""
    paper = [[claim.text, *measured(claim, results), verdict(claim, results)] for claim in CLAIMS]
    beyond = [[claim.text, *measured(claim, results)] for claim in BEYOND]
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


def measured(claim: Claim, results: Path) -> list[str]:
    """One cell that lists the differences of all parts of a claim, stream by stream."""
    if all(part.expected == SHRINKING for part in claim.parts):
        return ["as above"]
    lines = []
    for part in claim.parts:
        found = part.differences(rows_of(part, results))
        for stream, own in groupby(found, key=lambda difference: difference.stream):
            name = ", ".join(filter(None, [title_of(stream), part.name]))
            lines.append(f"{name}: {listed(list(own), timed=claim.timed)}")
    return ["<br>".join(lines) or "not run"]


def listed(found: Sequence[Difference], *, timed: bool) -> str:
    """Mean differences by memory size; those that are not clear of zero in brackets."""
    values = [
        f"{gap.memory_size}: {gap.accuracy.mean:+.3f} ± {gap.accuracy.std:.3f}" for gap in found
    ]
    marked = [v if gap.sign else f"({v})" for v, gap in zip(values, found, strict=True)]
    seeds = {gap.accuracy.count for gap in found}
    count = f"{min(seeds)}" if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
    text = f"{', '.join(marked)}; {count} seed{'s' if max(seeds) > 1 else ''}"
    ratios = [gap.time_ratio for gap in found if not math.isnan(gap.time_ratio)]
    if timed and ratios:
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
    found = part.differences(rows_of(part, results))
    found = [gap for gap in found if gap.accuracy.count > 1]
    if part.expected == SHRINKING:
        streams = [list(own) for _, own in groupby(found, key=lambda gap: gap.stream)]
        return [gaps[0].accuracy.mean > gaps[-1].accuracy.mean for gaps in streams if gaps[1:]]
    return [EXPECTATIONS[part.expected](gap.sign) for gap in found if part.expected]


def rows_of(part: Part, results: Path) -> list[dict[str, str]]:
    """The rows a part may compare; a file that is not there has none."""
    paths = [results / f"{source}.csv" for source in (part.also, part.source) if source]
    return [row for path in paths if path.exists() for row in ResultsFile(path).rows()]


MARKED: dict[str, Callable[[Path], str]] = {"claims": markdown, "verdicts": verdicts}


def updated(page: Path, results: Path) -> str:
    """The text of a page with its marked parts as the rows want them."""
    text, found = pages.read(page), False
    for name, make in MARKED.items():
        changed = pages.with_part(text, name, make(results))
        text, found = changed or text, found or changed is not None
    if not found:
        raise UsageError(f"{page} has no part between <!-- claims --> and <!-- end of claims -->")
    return text
