"""Means and deviations over seeds, and differences paired by seed, from result rows; no torch.

A *variant* is everything that may differ between two lines of a figure: the method and the options
it was run with. Rows that differ in nothing but the seed are averaged. A *setting* is how a row was
trained; only rows of one setting are compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from benchmarks.grid.rows import CONFIGURATION, numbers

Row = Mapping[str, str]
Frame = Any  # pandas has no types
Choice = Mapping[str, str]
"""Columns of a row and the values they must have."""

SETTING = ["model", "epochs", "batch_size", "learning_rate", "train_fraction"]
# Columns that say how a method was run; they enter a line's label where they vary.
OPTIONS = list(CONFIGURATION[CONFIGURATION.index("model") + 1 :])
CLEAR = 2.0
"""Standard errors from which on a mean difference counts as one."""


def frame_of(rows: Sequence[Row]) -> Frame:
    """The rows that have an accuracy, with numbers where numbers are needed, and their variant."""
    frame = pd.DataFrame([row for row in rows if row["accuracy"]], columns=list(rows[0]))
    seconds = frame[["selection_seconds", "embedding_seconds"]].replace("", "0").astype(float)
    frame = frame.assign(
        accuracy=frame["accuracy"].astype(float),
        memory_size=frame["memory_size"].astype(int),
        seconds=seconds.sum(axis=1),
    )
    per_method = frame.groupby(["stream", "method"])[OPTIONS].nunique().max()
    varying = [option for option in OPTIONS if per_method[option] > 1]
    return frame.assign(variant=[variant(row, varying) for _, row in frame.iterrows()])


def variant(row: Row, options: Sequence[str]) -> str:
    """The label of a row's line: its method, and the options that vary."""
    return ", ".join([row["method"], *(f"{name} {row[name]}" for name in options if row[name])])


def summarized(frame: Frame, by: Sequence[str], value: str = "accuracy") -> Frame:
    """Mean, sample deviation (0 for a single value) and count of a column, per group."""
    found = frame.groupby(list(by), sort=False)[value].agg(["mean", "std", "count"])
    return found.fillna({"std": 0.0})


def curves(rows: Sequence[Row], stream: str) -> Frame:
    """Accuracy over the seeds of one stream: variant and memory size → mean, std, count."""
    frame = frame_of(rows)
    found = summarized(frame[frame["stream"] == stream], ["variant", "memory_size"])
    return found.sort_index(level="memory_size", kind="stable", sort_remaining=False)


def trajectories(rows: Sequence[Row], stream: str) -> Frame:
    """Accuracy after each experience of one stream: variant and experience → mean, std, count."""
    frame = frame_of([row for row in rows if row["accuracy_per_experience"]])
    if frame["memory_size"].nunique() > 1:
        sizes = frame["memory_size"].astype(str)
        frame = frame.assign(variant=frame["variant"] + ", " + sizes + " exemplars")
    frame = frame[frame["stream"] == stream]
    frame = frame.assign(accuracy=[numbers(text) for text in frame["accuracy_per_experience"]])
    long = frame[["variant", "accuracy"]].explode("accuracy").astype({"accuracy": float})
    step = long.groupby(level=0).cumcount() + 1
    return summarized(long.assign(experience=step), ["variant", "experience"])


def streams(rows: Sequence[Row]) -> list[str]:
    """The streams of the rows, in their order of appearance."""
    return list(dict.fromkeys(row["stream"] for row in rows))


def paired(ours: Frame, others: Frame) -> Frame:
    """Pairs of rows of the same stream, setting, memory size and seed; the gap in accuracy.

    Of what was measured twice the last row counts.
    """
    by = ["stream", *SETTING, "memory_size", "seed"]
    ours, others = (frame.drop_duplicates(by, keep="last") for frame in (ours, others))
    pairs = ours.merge(others, on=by, suffixes=("", "_other"))
    return pairs.assign(gap=pairs["accuracy"] - pairs["accuracy_other"])


def differences(rows: Sequence[Row], left: Choice, right: Choice) -> Frame:
    """What ``left`` has more than ``right``: stream and memory size → mean, std, count.

    Further columns: ``sign``, 1 or −1 if the mean is clear of zero, else 0; ``time_ratio``, seconds
    of selection of ``left`` divided by those of ``right``; ``left_out``, pairs of other settings.
    A stream is compared in one setting, that of most pairs.
    """
    if not any(row["accuracy"] for row in rows):
        return pd.DataFrame()
    frame = frame_of(rows)
    pairs = paired(chosen(frame, left), chosen(frame, right))
    if pairs.empty:
        return pairs
    setting = pairs[SETTING].agg(" ".join, axis=1)
    usual = setting.groupby(pairs["stream"]).agg(lambda values: values.value_counts().index[0])
    kept = pairs[setting == pairs["stream"].map(usual)]
    found = summarized(kept, ["stream", "memory_size"], "gap")
    sums = kept.groupby(["stream", "memory_size"], sort=False)[["seconds", "seconds_other"]].sum()
    error = found["std"] / found["count"] ** 0.5
    clear = (found["count"] > 1) & (found["mean"].abs() > CLEAR * error)
    left_out = pairs["stream"].value_counts() - kept["stream"].value_counts()
    found = found.assign(
        sign=(found["mean"] > 0).map({True: 1, False: -1}).where(clear, 0),
        time_ratio=sums["seconds"] / sums["seconds_other"].where(sums["seconds_other"] > 0),
        left_out=found.index.get_level_values("stream").map(left_out),
    )
    order = streams(rows)
    return found.sort_index(
        key=lambda level: level.map(order.index) if level.name == "stream" else level
    )


def chosen(frame: Frame, choice: Choice) -> Frame:
    """The rows that have the chosen values."""
    mask = pd.Series(True, index=frame.index)
    for column, value in choice.items():
        mask &= frame[column] == value
    return frame[mask]
