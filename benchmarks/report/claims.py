"""The paper's claims against the rows, as Markdown tables.

Differences in accuracy are paired by seed. One counts as clear if its mean is more than two
standard errors from zero. A claim is *reproduced* if every comparison comes out as it says,
*partly* if some do, *not reproduced* if none does; a single seed does not count. The rows of a
stream that are compared have one setting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import UsageError
from benchmarks.grid.rows import ResultsFile
from benchmarks.report import pages
from benchmarks.report.averages import differences
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
        for stream, own in by_stream(part, results):
            name = ", ".join(filter(None, [title_of(stream), part.name]))
            lines.append(f"{name}: {listed(own, timed=claim.timed)}")
    return ["<br>".join(lines) or "not run"]


def listed(found: Any, *, timed: bool) -> str:
    """Mean differences by memory size; those that are not clear of zero in brackets."""
    marked = []
    for size, row in found.droplevel("stream").iterrows():
        value = f"{size}: {row['mean']:+.3f} ± {row['std']:.3f}"
        marked.append(value if row["sign"] else f"({value})")
    fewest, most = int(found["count"].min()), int(found["count"].max())
    count = f"{most}" if fewest == most else f"{fewest} to {most}"
    text = f"{', '.join(marked)}; {count} seed{'s' if most > 1 else ''}"
    ratios = found["time_ratio"].dropna()
    if timed and len(ratios):
        text += f"; time to select × {np.exp(np.log(ratios).mean()):.2f}"
    if left_out := int(found["left_out"].max()):
        text += f"; {left_out} pairs of other settings left out"
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
    hits: list[bool] = []
    for _, own in by_stream(part, results):
        judged = own[own["count"] > 1]
        if part.expected == SHRINKING and len(judged) > 1:
            hits.append(judged["mean"].iloc[0] > judged["mean"].iloc[-1])
        elif part.expected in EXPECTATIONS:
            hits += map(EXPECTATIONS[part.expected], judged["sign"])
    return hits


def by_stream(part: Part, results: Path) -> list[tuple[str, Any]]:
    """The differences of a part, stream by stream; a file that is not there has no rows."""
    paths = [results / f"{source}.csv" for source in (part.also, part.source) if source]
    rows = [row for path in paths for row in ResultsFile(path).rows()]
    found = differences([r for r in rows if r["stream"] in part.streams], part.left, part.right)
    return [] if found.empty else list(found.groupby(level="stream", sort=False))


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
