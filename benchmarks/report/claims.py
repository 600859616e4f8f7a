"""The paper's claims against the rows, as Markdown tables.

Where a claim *holds* is said in ``evidence``. It is *reproduced* if it holds on every stream,
*partly* if on some, *not reproduced* if on none; *reproduced with the library's default* if that is
so for the memory as the library makes it, run at all the same sizes of the same streams, but not
with the paper's settings.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks import UsageError
from benchmarks.grid.experiments import PAPER_SIZES
from benchmarks.report import pages, published, rivals, runs
from benchmarks.report.averages import Frame
from benchmarks.report.contrasts import ALPHA, MARGIN, gap_text
from benchmarks.report.evidence import Evidence, evidence
from benchmarks.report.paper_claims import BEYOND, CLAIMS, GMC, RIVALS, Claim, Part
from benchmarks.streams.registry import title_of

HEADER = ("the paper says", "difference in accuracy by memory size", "verdict")


def markdown(results: Path) -> str:
    """The count and both tables, from whatever rows there are."""
    found = {claim: evidence(claim, results) for claim in (*CLAIMS, *BEYOND)}
    paper = [[c.text, measured(c, found[c]), verdict(c, found[c])] for c in CLAIMS]
    beyond = [[c.text, measured(c, found[c])] for c in BEYOND]
    tables = [
        pages.table(HEADER, paper, aligned=False),
        pages.table(["beyond the paper", HEADER[1]], beyond, aligned=False),
    ]
    return "\n\n".join([summary(results), *tables])


def verdicts(results: Path) -> str:
    """The count, the paper's claims and what became of them."""
    body = [[claim.text, verdict(claim, evidence(claim, results))] for claim in CLAIMS]
    return f"{summary(results)}\n\n{pages.table([HEADER[0], 'here'], body, aligned=False)}"


def measured(claim: Claim, found: Evidence) -> str:
    """One cell that lists the differences of all parts of a claim, stream by stream."""
    if found.sizes.empty:
        return "not run"
    lines = []
    for (name, stream), own in found.sizes.groupby(["name", "stream"], sort=False):
        label = ", ".join(filter(None, [title_of(stream), name]))
        lines.append(f"{label}: {listed(own, timed=claim.timed)}")
    return "<br>".join(lines)


def listed(found: Frame, *, timed: bool) -> str:
    """Mean differences by memory size: ≈ where level, in brackets where open."""
    marked = []
    for row in found.to_dict("records"):
        value = f"{row['memory_size']}: {gap_text(row)}"
        marked.append(value if row["sign"] else f"{value} ≈" if row["level"] else f"({value})")
    text = f"{', '.join(marked)}; {seeds(found)}"
    text = ", ".join(filter(None, [text, found["setting"].iloc[0]]))
    ratios = found["time_ratio"].dropna()
    if timed and len(ratios):
        text += f"; time to select × {np.exp(np.log(ratios).mean()):.2f}"
    if left_out := int(found["left_out"].max()):
        text += f"; {left_out} pairs of other settings left out"
    return text


def verdict(claim: Claim, found: Evidence) -> str:
    """On how many streams the claim holds, and where it does not."""
    if found.streams.empty:
        return "not run"
    counted = found.streams[(found.streams["count"] > 1) & (found.streams["expected"] != "")]
    if counted.empty:
        return "not run"
    ours, papers = counted[counted["default"]], counted[~counted["default"]]
    saved = covers(found.sizes) and ours["holds"].all() and not papers["holds"].all()
    main, other = (ours, papers) if saved or papers.empty else (papers, ours)
    holds = main["holds"]
    word = "reproduced" if holds.all() else "partly" if holds.any() else "not reproduced"
    word += " with the library's default" if holds.all() and main is ours else ""
    texts = [score(main, claim)]
    if len(other):
        whose = "the library's default" if other is ours else "the paper's settings"
        texts.append(f"{whose} {score(other, claim)}")
    if claim.reason and not papers["holds"].all():
        texts.append(claim.reason)
    return f"**{word}**: {'; '.join(texts)}"


def covers(sizes: Frame) -> bool:
    """Whether the library's default was run wherever the paper's settings were."""
    ours, papers = (
        {*zip(own["stream"], own["memory_size"], strict=True)}
        for own in (sizes[sizes["default"]], sizes[~sizes["default"]])
    )
    return bool(ours) and papers <= ours


def score(found: Frame, claim: Claim) -> str:
    """On how many streams a claim holds; where means contradict it, and where it is not clear or
    was not run more than once."""
    failed = found[~found["holds"]]
    wrong, unclear = (failed[(failed["not_at"].str.len() > 0) == some] for some in (True, False))
    what = "stream" if found["stream"].is_unique else "comparison"
    parts = [f"{found['holds'].sum()} of {len(found)} {what}{'s' if len(found) > 1 else ''}"]
    if len(wrong):
        sizes = wrong[["stream", "not_at"]].explode("not_at").drop_duplicates()
        parts.append(f"not at {places(sizes.rename(columns={'not_at': 'memory_size'}))}")
    if len(unclear):
        parts.append(f"not clear on {', '.join(map(title_of, unclear['stream'].unique()))}")
    ours = bool(found["default"].iloc[0])
    asked = [part for part in claim.parts if part.expected and part.default == ours]
    streams = dict.fromkeys(stream for part in asked for stream in part.streams)
    missing = [title_of(stream) for stream in streams if stream not in set(found["stream"])]
    if missing:
        parts.append(f"not run on {', '.join(missing)}")
    return ", ".join(parts)


def places(found: Frame) -> str:
    """Streams and memory sizes in words."""
    return ", ".join(
        f"{title_of(stream)} ({listing(own['memory_size'])})"
        for stream, own in found.groupby("stream", sort=False)
    )


def seeds(found: Frame) -> str:
    """How many seeds the comparisons have."""
    least, most = found["count"].min(), found["count"].max()
    number = f"{least}" if least == most else f"{least} to {most}"
    return f"{number} seed{'s' if most > 1 else ''}"


def listing(sizes: Frame) -> str:
    """Memory sizes in order; of three or more neighbours in the paper's list the two ends."""
    ordered = sorted(sizes)
    first, last = ordered[0], ordered[-1]
    whole = len(ordered) > 2 and ordered == [s for s in PAPER_SIZES if first <= s <= last]
    return f"{first} to {last}" if whole else ", ".join(map(str, ordered))


def summary(results: Path) -> str:
    """In how many comparisons the library's default is ahead, and whether it is behind anywhere."""
    parts = [Part(name, "gdumb", GMC, other, "better") for name, other in RIVALS]
    found = {part.name: evidence(Claim("", (part,)), results).sizes for part in parts}
    found = {name: own for name, own in found.items() if len(own)}
    every = found.get("reservoir sampling")
    found = {name: own[own["count"] > 1] for name, own in found.items()}
    ours = found.get("reservoir sampling")
    if every is None or ours is None or ours.empty:
        return "The library's default (`gmc`) has not been run against reservoir sampling yet."
    ahead, raw = ours["mean"] > 0, ours["p"] < ALPHA
    text = (
        "With the library's default (`gmc`), gradient matching is ahead of reservoir sampling in "
        f"{ahead.sum()} of {len(ours)} comparisons (GDumb, {seeds(ours)}; "
        f"{places(ours)}): clearly in "
        f"{(ours['sign'] > 0).sum()} with Holm's correction for all of them, in "
        f"{(ahead & raw).sum()} without."
    )
    if not ahead.all():
        text += f" Not ahead: {places(ours[~ahead])}."
    once = every[every["count"] == 1]
    if len(once):
        gaps = (f"{title_of(o.stream)} ({o.memory_size}: {o.mean:+.3f})" for o in once.itertuples())
        text += f" Run once and not counted: {', '.join(gaps)}."
    masks = {n: (own["mean"] < -MARGIN) & (own["p"] < ALPHA) for n, own in found.items()}
    where = [f"{n} at {places(found[n][mask])}" for n, mask in masks.items() if mask.any()]
    number = sum(int(mask.sum()) for mask in masks.values())
    counts = ", ".join(f"{len(own)} with {name}" for name, own in found.items() if len(own))
    return (
        f"{text} Of {sum(map(len, found.values()))} comparisons with the paper's methods "
        f"({counts}) it is behind by more than half a point in {number or 'none'} "
        f"(p < .05, not corrected){': ' * bool(where)}{'; '.join(where)}."
    )


MARKED: dict[str, Callable[[Path], str]] = {
    "claims": markdown,
    "verdicts": verdicts,
    "runs": runs.markdown,
    "rivals": rivals.markdown,
    "published": published.markdown,
}


def updated(page: Path, results: Path) -> str:
    """The text of a page with its marked parts as the rows want them."""
    text, found = pages.read(page), False
    for name, make in MARKED.items():
        changed = pages.with_part(text, name, make(results))
        text, found = changed or text, found or changed is not None
    if not found:
        raise UsageError(f"{page} has no part between <!-- claims --> and <!-- end of claims -->")
    return text
