"""Two variants side by side: differences in accuracy, paired by stream, memory size and seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.report.averages import Row, Summary, summarize

Choice = Mapping[str, str]
"""Columns of a row and the values they must have."""

PAIRED_BY = ("stream", "memory_size", "seed", "epochs", "train_fraction")
CLEAR = 2.0
"""Standard errors from which on a mean difference counts as one."""


@dataclass(frozen=True)
class Difference:
    """Mean difference at one memory size of one stream."""

    stream: str
    memory_size: int
    accuracy: Summary
    time_ratio: float

    @property
    def sign(self) -> int:
        """1 or −1 if the mean is clear of zero, else 0."""
        error = self.accuracy.std / math.sqrt(self.accuracy.count)
        clear = self.accuracy.count > 1 and abs(self.accuracy.mean) > CLEAR * error
        return int(math.copysign(1, self.accuracy.mean)) if clear else 0


def differences(rows: Sequence[Row], left: Choice, right: Choice) -> list[Difference]:
    """What ``left`` has more than ``right``, stream by stream, size by size.

    The time ratio compares selection: seconds of ``left`` divided by those of ``right``.
    """
    ours, others = chosen(rows, left), chosen(rows, right)
    matched: dict[tuple[str, int], list[tuple[Row, Row]]] = {}
    for name, row in ours.items():
        if name in others:
            place = row["stream"], int(row["memory_size"])
            matched.setdefault(place, []).append((row, others[name]))
    return [
        Difference(
            *place,
            accuracy=summarize([float(a["accuracy"]) - float(b["accuracy"]) for a, b in pairs]),
            time_ratio=ratio([(selection_seconds(a), selection_seconds(b)) for a, b in pairs]),
        )
        for place, pairs in sorted(matched.items(), key=lambda item: order(item[0], rows))
    ]


def chosen(rows: Sequence[Row], choice: Choice) -> dict[tuple[str, ...], Row]:
    """The rows with an accuracy that have the chosen values; the last of those measured twice."""
    return {
        pair(row): row
        for row in rows
        if row["accuracy"] and all(row[column] == value for column, value in choice.items())
    }


def pair(row: Row) -> tuple[str, ...]:
    """What the two rows of a pair have in common."""
    return tuple(row[column] for column in PAIRED_BY)


def order(place: tuple[str, int], rows: Sequence[Row]) -> tuple[int, int]:
    """Streams as they first appear in the rows, then by size."""
    streams = list(dict.fromkeys(row["stream"] for row in rows))
    return streams.index(place[0]), place[1]


def selection_seconds(row: Row) -> float:
    """Seconds spent on selecting, embeddings included."""
    return float(row["selection_seconds"] or 0.0) + float(row["embedding_seconds"] or 0.0)


def ratio(pairs: Sequence[tuple[float, float]]) -> float:
    """Quotient of sums; not a number if there is nothing to divide by."""
    top, bottom = (sum(column) for column in zip(*pairs, strict=True))
    return top / bottom if bottom > 0 else math.nan
