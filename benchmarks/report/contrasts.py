"""Differences between two variants, paired by seed, and what they show; no torch.

A difference is *clear* if a paired t-test over the seeds, Holm-corrected within the claim, has
p < .05 and its mean is beyond the margin of no practical interest, half a point of accuracy. Two
variants are *level* if the 90 % confidence interval of their difference lies within that margin,
which is to pass two one-sided tests at 5 %. Everything else is *open*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from scipy import stats

from benchmarks.report.averages import OPTIONS, SETTING, Frame, Row, frame_of, summarized, usual

Choice = Mapping[str, str]
"""Columns of a row and the values they must have."""

REFERENCE = "reservoir"
MARGIN = 0.005
ALPHA = 0.05
PLACE = ["stream", "memory_size"]


def paired(ours: Frame, others: Frame, by: Sequence[str] = SETTING) -> Frame:
    """Pairs of rows of the same stream, memory size and seed; the gap in accuracy.

    Of what was measured twice the last row counts.

    :param by: further columns in which the rows of a pair agree.
    """
    by = [*PLACE, "seed", *by]
    ours, others = (frame.drop_duplicates(by, keep="last") for frame in (ours, others))
    pairs = ours.merge(others, on=by, suffixes=("", "_other"))
    return pairs.assign(gap=pairs["accuracy"] - pairs["accuracy_other"])


def to_reference(frame: Frame, position: str = "memory_size") -> Frame:
    """Differences to the reservoir: stream, variant and position → what :func:`tested` says.

    :param position: a column whose values are compared one by one.
    """
    reference = frame[frame["method"] == REFERENCE]
    others = frame[frame["method"] != REFERENCE].groupby("variant", sort=False)
    by = [*SETTING, *({position} - {*PLACE})]
    pairs = [paired(own, reference, by) for _, own in others]
    pairs = pairs or [paired(frame.head(0), reference, by)]
    return tested(pd.concat(pairs), ["stream", "variant", position])


def compared(rows: Sequence[Row], left: Choice, right: Choice) -> Frame:
    """Pairs of ``left`` and ``right`` that agree in all that neither names, in one setting each.

    The column ``left_out`` counts the pairs of a stream that have other settings.
    """
    if not any(row["accuracy"] for row in rows):
        return pd.DataFrame()
    frame, named = frame_of(rows), {*left, *right}
    setting = [column for column in SETTING if column not in named]
    same = [column for column in OPTIONS if column not in named]
    pairs = paired(chosen(frame, left), chosen(frame, right), [*setting, *same])
    kept = usual(pairs, setting)
    if kept.empty:
        return kept
    left_out = pairs["stream"].value_counts() - kept["stream"].value_counts()
    return kept.assign(left_out=kept["stream"].map(left_out))


def chosen(frame: Frame, choice: Choice) -> Frame:
    """The rows that have the chosen values."""
    mask = pd.Series(True, index=frame.index)
    for column, value in choice.items():
        mask &= frame[column] == value
    return frame[mask]


def shrinking(pairs: Frame) -> Frame:
    """How much larger each seed's gap is at a stream's smallest memory than at its largest.

    Sizes of a single seed are left out if others have several.
    """
    found = []
    for _, own in pairs.groupby("stream", sort=False):
        seeds = own.groupby("memory_size")["seed"].nunique()
        sizes = seeds[seeds >= min(2, seeds.max())].index
        small, large = sizes.min(), sizes.max()
        ends = [own[own["memory_size"] == size].set_index("seed") for size in (small, large)]
        gap = (ends[0]["gap"] - ends[1]["gap"]).dropna()
        if small < large:
            text = f"{small} against {large}"
            found.append(ends[0].loc[gap.index].assign(gap=gap, memory_size=text).reset_index())
    return pd.concat(found) if found else pairs.head(0)


def over_sizes(pairs: Frame) -> Frame:
    """Each seed's gap averaged over the memory sizes of a stream that have the most seeds."""
    found = []
    for _, own in pairs.groupby("stream", sort=False):
        gaps = own.pivot(index="seed", columns="memory_size", values="gap")
        counts = gaps.count()
        gap = gaps.loc[:, counts == counts.max()].mean(axis=1, skipna=False).dropna()
        first = own.drop_duplicates("seed").set_index("seed").loc[gap.index]
        found.append(first.assign(gap=gap, memory_size="all").reset_index())
    return pd.concat(found)


def tested(pairs: Frame, by: Sequence[str] = PLACE) -> Frame:
    """Stream and memory size → mean gap, its deviation, the number of seeds, and tests.

    Further columns: ``half``, half the 95 % confidence interval; ``p``, of the two-sided t-test;
    ``level`` and ``not_worse``, whether the 90 % interval lies within and above the margin.
    """
    found = summarized(pairs, by, "gap").sort_index(
        level=by[-1], kind="stable", sort_remaining=False
    )
    error, free = found["std"] / found["count"] ** 0.5, (found["count"] - 1).where(lambda n: n > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = found["mean"].abs() / error
    near = stats.t.ppf(1 - ALPHA, free) * error
    return found.assign(
        half=stats.t.ppf(1 - ALPHA / 2, free) * error,
        p=np.nan_to_num(2 * stats.t.sf(distance, free), nan=1.0),
        level=found["mean"].abs() + near < MARGIN,
        not_worse=found["mean"] - near > -MARGIN,
    )


def gap_text(gap: Frame) -> str:
    """A line of :func:`tested` as text: the mean and, of several seeds, half its interval."""
    return f"{gap['mean']:+.3f}" + (f" ± {gap['half']:.3f}" if gap["count"] > 1 else "")


def corrected(p: Frame) -> Frame:
    """Holm's correction of the p values of one family."""
    ordered = p.sort_values()
    factors = np.arange(len(p), 0, -1)
    return (ordered * factors).cummax().clip(upper=1.0).reindex(p.index)
