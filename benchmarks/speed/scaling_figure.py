"""The growth of time and memory on logarithmic axes, from rows alone; no torch in here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from benchmarks.grid.rows import Row
from benchmarks.report.plots import Style, legend, panels, save
from benchmarks.speed.scaling import FINISHED, METHODS, SCIKIT_LEARN, STOPPED, finished

STYLES = {
    SCIKIT_LEARN: Style("#000000", "--", "^", 2),
    "exact": Style("#D55E00", "-", "o", 0),
    "fast": Style("#0072B2", "-.", "s", 1),
}
AXES = {"size": "picks n", "examples": "atoms N"}
VALUES = {"seconds": "seconds", "peak_gb": "peak GB of the process"}
OTHERS = {"size": ("examples", "dim"), "examples": ("size", "dim")}
LETTERS = {"size": "n", "examples": "N", "dim": "D"}
SMALL = {"textcoords": "offset points", "fontsize": 8}


def draw(rows: Sequence[Row], output: Path) -> list[Path]:
    """Write scaling.png and scaling.svg: a column for n and one for N."""
    figure, axes = panels(4, y_label="")
    places = [(value, column) for value in VALUES for column in AXES]
    for axis, (value, column) in zip(axes, places, strict=True):
        lines = lines_of(rows, column)
        for method, line in lines.items():
            draw_line(axis, line, method, column, value)
        mark_single_runs(axis, rows, column, value)
        dress(axis, lines, column, value)
    legend(figure, axes)
    return [save(figure, output / f"scaling.{ending}") for ending in ("png", "svg")]


def lines_of(rows: Sequence[Row], column: str) -> dict[str, list[Row]]:
    """For each method its rows along one column, the others fixed where most rows are."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if row["part"] == "growth":
            groups.setdefault(tuple(row[name] for name in OTHERS[column]), []).append(row)
    longest = max(groups.values(), key=lambda group: len({row[column] for row in group}))
    ordered = sorted(longest, key=lambda row: int(row[column]))
    return {method: [row for row in ordered if row["method"] == method] for method in METHODS}


def draw_line(axis: Any, line: Sequence[Row], method: str, column: str, value: str) -> None:
    """What was measured; of seconds also the last slope, and a mark where a row took too long."""
    style = STYLES[method]
    done = [row for row in line if row["status"] == FINISHED]
    points = [(int(row[column]), float(row[value])) for row in done]
    if not points:
        return
    axis.plot(*zip(*points, strict=True), label=method, **style.options())
    if value != "seconds" or len(points) < 2:
        return
    (x0, y0), (x1, y1) = points[-2:]
    text = f"slope {math.log(y1 / y0) / math.log(x1 / x0):.1f}"
    if any(row["status"] == STOPPED for row in line):
        text += ", then stopped"
    place = {"xytext": (0, 8), "ha": "center"} if method == SCIKIT_LEARN else {"xytext": (6, -3)}
    axis.annotate(text, (x1, y1), color=style.color, zorder=40, **place, **SMALL)


def mark_single_runs(axis: Any, rows: Sequence[Row], column: str, value: str) -> None:
    """Large selections among the n, long streams among the N; the largest says what it is."""
    part = "large" if column == "size" else "stream"
    found = sorted(finished(list(rows), part), key=lambda row: int(row[column]))
    for row in found:
        where = int(row[column]), float(row[value])
        axis.plot(*where, "*", color=STYLES[row["method"]].color, markersize=11, zorder=30)
    for row in found[-1:]:
        fixed = [f"{LETTERS[name]} = {int(row[name]):,}" for name in OTHERS[column]]
        text = "\n".join([f"{part}, {row['method']}", *fixed])
        axis.annotate(text, where, xytext=(-8, -4), ha="right", va="bottom", **SMALL)


def dress(axis: Any, lines: dict[str, list[Row]], column: str, value: str) -> None:
    """Scales, ticks, labels, and what is fixed as the title."""
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel(AXES[column])
    axis.set_ylabel(VALUES[value])
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:,.0f}"))
    low, high = axis.get_ylim()
    axis.set_ylim(low / 2, max(3 * high, 20 * low))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())
    first = next(row for line in lines.values() for row in line)
    fixed = [f"{LETTERS[name]} = {int(first[name]):,}" for name in OTHERS[column]]
    axis.set_title(", ".join(fixed), fontsize=10)
