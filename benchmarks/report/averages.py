"""Means and deviations over seeds, from result rows; no torch.

A *variant* is everything that may differ between two lines of a figure: the method and the options
it was run with. A *setting* is how a row was trained; only rows of one setting are averaged or
compared. The exception is the precision, which the machine chooses where bfloat16 is slow: rows of
a pair have the same, but the pairs of different seeds need not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from benchmarks import UsageError
from benchmarks.grid.methods import METHODS
from benchmarks.grid.rows import CONFIGURATION, Cell, as_text, numbers
from benchmarks.streams.registry import STREAMS

Row = Mapping[str, str]
Frame = Any  # pandas has no types

SETTING = ["model", "epochs", "batch_size", "learning_rate", "train_fraction", "precision"]
IDENTITY = ("experiment", "stream", "method", "memory_size", "seed", *SETTING)
OPTIONS = [column for column in CONFIGURATION if column not in IDENTITY]
"""Columns that say how a method was run."""
FRACTIONS = {"0.5": "half", "0.2": "a fifth", "0.1": "a tenth"}


def frame_of(rows: Sequence[Row]) -> Frame:
    """The rows that have an accuracy, with numbers where numbers are needed, and their variant.

    Of a cell that was measured twice the last row counts.
    """
    frame = pd.DataFrame([row for row in rows if row["accuracy"]], columns=list(rows[0]))
    frame = frame.drop_duplicates(list(CONFIGURATION), keep="last", ignore_index=True)
    seconds = frame[["selection_seconds", "embedding_seconds"]].replace("", "0").astype(float)
    frame = frame.assign(
        accuracy=frame["accuracy"].astype(float),
        memory_size=frame["memory_size"].astype(int),
        seconds=seconds.sum(axis=1),
    )
    return frame.assign(variant=[variant(row) for row in frame.to_dict("records")])


def variant(row: Row) -> str:
    """The label of a row's line: its method, and its options where they are not the paper's."""
    method = METHODS.get(row["method"])
    names = [name for name in OPTIONS if method is not None and name in method.options]
    unlike = [name for name in names if row[name] != as_text(getattr(Cell, name))]
    if "dim" not in names and row["dim"] != "0":  # a last layer of fewer features
        unlike.append("dim")
    return ", ".join([row["method"], *(f"{name} {row[name]}" for name in unlike)])


def usual(frame: Frame, setting: Sequence[str] = SETTING) -> Frame:
    """Of each stream the rows of one setting: that in which its first method has most rows.

    Where a memory size and seed were not run in its precision, their rows in another count too.

    :param setting: the columns that make it.
    """
    if frame.empty:
        return frame
    rank = frame["method"].map({name: i for i, name in enumerate(METHODS)}).fillna(len(METHODS))
    leading = rank == rank.groupby(frame["stream"]).transform("min")

    def most(columns: Sequence[str]) -> Frame:
        """Whether each row has the values that most rows of its stream's first method have."""
        values = frame[columns].agg(" ".join, axis=1)
        counts = values[leading].groupby(frame["stream"])
        return values == frame["stream"].map(counts.agg(lambda own: own.value_counts().index[0]))

    kept = most(list(setting))
    if "precision" in setting:
        place = frame.groupby(["stream", "memory_size", "seed"], sort=False).ngroup()
        elsewhere = ~place.isin(place[kept])
        kept |= elsewhere & most([column for column in setting if column != "precision"])
    return frame[kept]


def setting_text(own: Frame) -> list[str]:
    """What is unlike the paper's training in how rows of one setting were trained, in words."""
    fraction, epochs = own["train_fraction"].iloc[0], own["epochs"].iloc[0]
    precisions = sorted(own["precision"].unique())
    return [
        *([] if fraction == "1" else [f"{FRACTIONS.get(fraction, fraction)} of the stream"]),
        *([] if epochs == "200" else [f"{epochs} epoch{'s' * (epochs != '1')}"]),
        *([] if precisions == ["float32"] else [" or ".join(precisions)]),
    ]


def summarized(frame: Frame, by: Sequence[str], value: str = "accuracy") -> Frame:
    """Mean, sample deviation (0 for a single value) and count of a column, per group."""
    found = frame.groupby(list(by), sort=False)[value].agg(["mean", "std", "count"])
    return found.fillna({"std": 0.0})


def curves(rows: Sequence[Row], stream: str) -> Frame:
    """Accuracy over the seeds of one stream: variant and memory size → mean, std, count."""
    frame = usual(frame_of(rows))
    found = summarized(frame[frame["stream"] == stream], ["variant", "memory_size"])
    return found.sort_index(level="memory_size", kind="stable", sort_remaining=False)


def trajectories(rows: Sequence[Row], stream: str) -> Frame:
    """Accuracy after each experience of one stream: variant and experience → mean, std, count."""
    frame = each_experience(rows)
    return summarized(frame[frame["stream"] == stream], ["variant", "experience"])


def each_experience(rows: Sequence[Row]) -> Frame:
    """The rows in their usual setting, one for each experience, with the accuracy after it."""
    rows = [row for row in rows if row["accuracy_per_experience"]]
    if not rows:
        raise UsageError("no row has accuracies after each experience")
    frame = usual(frame_of(rows))
    if frame["memory_size"].nunique() > 1:
        sizes = frame["memory_size"].astype(str)
        frame = frame.assign(variant=frame["variant"] + ", " + sizes + " exemplars")
    frame = frame.assign(accuracy=[numbers(text) for text in frame["accuracy_per_experience"]])
    long = frame.explode("accuracy").astype({"accuracy": float})
    return long.assign(experience=long.groupby(level=0).cumcount() + 1)


def class_counts(row: Row) -> Frame:
    """Examples of each class, a column each, after each experience, counted from 1."""
    counts = [numbers(part) for part in row["class_counts_per_experience"].split("|")]
    names = [f"class {label}" for label in range(len(counts[0]))]
    return pd.DataFrame(counts, range(1, len(counts) + 1), names)


def streams(rows: Sequence[Row]) -> list[str]:
    """The streams of the rows: those we know in our order, then others as they come."""
    found = dict.fromkeys(row["stream"] for row in rows)
    return [name for name in STREAMS if name in found] + [n for n in found if n not in STREAMS]
