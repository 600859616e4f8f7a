"""Means and deviations over seeds, from result rows; plain Python, no torch.

A *variant* is everything that may differ between two lines of a figure: the method and the options
it was run with. Rows that differ in nothing but the seed are averaged.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.grid.rows import CONFIGURATION, numbers

Row = Mapping[str, str]

# Columns that say how a method was run; they enter a line's label where they vary.
OPTIONS = tuple(
    column
    for column in CONFIGURATION
    if column not in ("experiment", "stream", "method", "memory_size", "seed", "model")
)


@dataclass(frozen=True)
class Summary:
    """Mean and sample standard deviation over seeds."""

    mean: float
    std: float
    count: int

    def __str__(self) -> str:
        spread = f" ± {self.std:.3f}" if self.count > 1 else ""
        return f"{self.mean:.3f}{spread}"


def summarize(values: Sequence[float]) -> Summary:
    """Mean and deviation; the deviation of a single value is 0."""
    std = statistics.stdev(values) if len(values) > 1 else 0.0
    return Summary(statistics.fmean(values), std, len(values))


def varying_options(rows: Iterable[Row]) -> list[str]:
    """Options that take several values for one method of one stream."""
    seen: dict[tuple[str, str, str], set[str]] = {}
    for row in rows:
        for option in OPTIONS:
            seen.setdefault((row["stream"], row["method"], option), set()).add(row[option])
    return [
        option for option in OPTIONS if any(len(v) > 1 for k, v in seen.items() if k[2] == option)
    ]


def variant(row: Row, options: Sequence[str]) -> str:
    """The label of a row's line: its method, and the options that vary."""
    details = [f"{option} {row[option]}" for option in options if row[option]]
    return ", ".join([row["method"], *details])


def curves(rows: Sequence[Row], stream: str) -> dict[str, dict[int, Summary]]:
    """Variant → memory size → accuracy over the seeds, for one stream."""
    options = varying_options(rows)
    values: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        if row["stream"] == stream and row["accuracy"]:
            sizes = values.setdefault(variant(row, options), {})
            sizes.setdefault(int(row["memory_size"]), []).append(float(row["accuracy"]))
    return {
        name: {size: summarize(sizes[size]) for size in sorted(sizes)}
        for name, sizes in values.items()
    }


def trajectories(rows: Sequence[Row], stream: str) -> dict[str, list[Summary]]:
    """Variant → accuracy after each experience over the seeds, for one stream."""
    options = varying_options(rows)
    values: dict[str, list[list[float]]] = {}
    for row in rows:
        if row["stream"] == stream and row["accuracy_per_experience"]:
            name = variant(row, options)
            if len({r["memory_size"] for r in rows}) > 1:
                name += f", {row['memory_size']} exemplars"
            values.setdefault(name, []).append(numbers(row["accuracy_per_experience"]))
    return {
        name: [summarize(column) for column in zip(*runs, strict=True)]
        for name, runs in values.items()
    }


def streams(rows: Iterable[Row]) -> list[str]:
    """The streams of the rows, in their order of appearance."""
    return list(dict.fromkeys(row["stream"] for row in rows))
