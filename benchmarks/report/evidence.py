"""The comparisons of a claim and how they come out; no torch.

A claim *holds* on a stream if the difference averaged over its memory sizes comes out as claimed
(clear, or level; ``contrasts`` says what that means), and no size by itself has a mean of the wrong
sign (or beyond the margin, where level is claimed).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from benchmarks.grid.rows import ResultsFile, Row
from benchmarks.report import contrasts
from benchmarks.report.averages import Frame, setting_text, streams
from benchmarks.report.contrasts import ALPHA, MARGIN
from benchmarks.report.paper_claims import Claim, Part


class Evidence(NamedTuple):
    """The comparisons of a claim, one line each: by memory size, and averaged over the sizes.

    Columns beside those of ``contrasts.tested``: the part's ``name``, ``default`` and ``expected``;
    ``sign``, 1 or −1 if the difference is clear, else 0; ``wrong``, whether the mean contradicts
    the claim; of the averages ``holds`` and ``not_at``, a tuple of the sizes at which it is wrong.
    """

    sizes: Frame
    streams: Frame


def evidence(claim: Claim, results: Path) -> Evidence:
    """All comparisons of a claim that have rows, corrected together."""
    found = [(part, compared(part, results)) for part in claim.parts]
    by_size, averaged = (
        [
            make(pairs).assign(name=part.name, default=part.default, expected=part.expected)
            for part, pairs in found
            if len(pairs)
        ]
        for make in (tested, lambda pairs: tested(contrasts.over_sizes(pairs)))
    )
    if not by_size:
        return Evidence(pd.DataFrame(), pd.DataFrame())
    sizes, whole = judged(pd.concat(by_size)), judged(pd.concat(averaged))
    both = ["name", "stream"]
    wrong = sizes[sizes["wrong"]].groupby(both)["memory_size"].agg(tuple)
    not_at = [wrong.get(place, ()) for place in zip(*(whole[name] for name in both), strict=True)]
    whole = whole.assign(not_at=not_at)
    return Evidence(sizes, whole.assign(holds=whole["holds"] & (whole["not_at"].str.len() == 0)))


def compared(part: Part, results: Path) -> Frame:
    """The pairs of rows of one part; a file that is not there has no rows."""
    paths = [results / f"{source}.csv" for source in (part.also, part.source) if source]
    rows: list[Row] = [row for path in paths for row in ResultsFile(path).rows()]
    rows = [row for row in rows if row["stream"] in part.streams]
    pairs = contrasts.compared(rows, part.left, part.right)
    return contrasts.shrinking(pairs) if part.shrinking and len(pairs) else pairs


def tested(pairs: Frame) -> Frame:
    """The tests by stream and memory size, and what the rows say about their settings."""
    place = pairs.groupby(contrasts.PLACE, sort=False)
    settings = {name: ", ".join(setting_text(own)) for name, own in pairs.groupby("stream")}
    sums = place[["seconds", "seconds_other"]].sum()
    found = contrasts.tested(pairs).assign(
        setting=place["stream"].first().map(settings),
        left_out=place["left_out"].first(),
        time_ratio=sums["seconds"] / sums["seconds_other"].where(sums["seconds_other"] > 0),
    )
    order = streams(pairs[["stream"]].to_dict("records"))
    return found.reset_index().sort_values(
        "stream", key=lambda column: column.map(order.index), kind="stable"
    )


def judged(frame: Frame) -> Frame:
    """The comparisons of more than one seed, with corrected signs and how they come out."""
    frame = frame.reset_index(drop=True)
    several, expected, mean = frame["count"] > 1, frame["expected"], frame["mean"]
    family = frame[several].groupby(["default", expected != ""])["p"]
    p = family.transform(contrasts.corrected).reindex(frame.index, fill_value=1.0)
    sign = np.sign(mean).where((p < ALPHA) & (mean.abs() > MARGIN), 0).astype(int)
    outcomes = {  # expectation → whether the difference shows it, whether its mean contradicts it
        "better": (sign > 0, mean <= 0),
        "worse": (sign < 0, mean >= 0),
        "level": (frame["level"], mean.abs() > MARGIN),
        "not worse": (frame["not_worse"] | (sign > 0), mean < -MARGIN),
    }
    holds, wrong = (
        sum((expected == name) & outcome[i] for name, outcome in outcomes.items()) for i in (0, 1)
    )
    return frame.assign(sign=sign, holds=holds.astype(bool) & several, wrong=wrong.astype(bool))
