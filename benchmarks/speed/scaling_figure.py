"""The growth of time and memory on logarithmic axes, from rows alone; no torch in here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from benchmarks.grid.rows import Row
from benchmarks.report.plots import Style, legend, panels, save
from benchmarks.speed.scaling_cases import FINISHED, METHODS, SCIKIT_LEARN, STOPPED, finished

STYLES = {
    SCIKIT_LEARN: Style("#000000", "--", "^", 2),
    "exact": Style("#D55E00", "-", "o", 0),
    "fast": Style("#0072B2", "-.", "s", 1),
}
PLACES = {
    SCIKIT_LEARN: ((-2, 7), "right", "bottom"),
    "exact": ((7, 1), "left", "bottom"),
    "fast": ((7, -1), "left", "top"),
}
"""Of a line's name, next to its end: apart from each other even where the lines meet."""
AXES = {"size": "picks n", "examples": "atoms N"}
VALUES = {"seconds": "seconds", "peak_gb": "peak GB of the process"}
OTHERS = {"size": ("examples", "dim"), "examples": ("size", "dim")}
LETTERS = {"size": "n", "examples": "N", "dim": "D"}
Lines = dict[str, list[Row]]


def draw(rows: Sequence[Row], output: Path) -> list[Path]:
    """Write scaling.png and scaling.svg: a column for n and one for N."""
    figure, axes = panels(4, y_label="")
    places = [(value, column) for value in VALUES for column in AXES]
    for axis, (value, column) in zip(axes, places, strict=True):
        lines = lines_of(rows, column)
        for method, line in lines.items():
            draw_line(axis, points(line, column, value), method, slope=value == "seconds")
        if value == "seconds":
            mark_stopped(axis, lines, column)
        mark_single_run(axis, rows, column, value)
        dress(axis, lines, column, value)
    legend(figure, axes)
    return [save(figure, output / f"scaling.{ending}") for ending in ("png", "svg")]


def lines_of(rows: Sequence[Row], column: str) -> Lines:
    """For each method its rows along one column, the others fixed where most rows are."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if row["part"] == "growth":
            groups.setdefault(tuple(row[name] for name in OTHERS[column]), []).append(row)
    longest = max(groups.values(), key=lambda group: len({row[column] for row in group}))
    ordered = sorted(longest, key=lambda row: int(row[column]))
    return {method: [row for row in ordered if row["method"] == method] for method in METHODS}


def points(line: Sequence[Row], column: str, value: str) -> list[tuple[int, float]]:
    """What was measured along a line."""
    return [(int(row[column]), float(row[value])) for row in line if row["status"] == FINISHED]


def draw_line(axis: Any, measured: list[tuple[int, float]], method: str, *, slope: bool) -> None:
    """A line, with its last slope written at its end."""
    if not measured:
        return
    style = STYLES[method]
    axis.plot(*zip(*measured, strict=True), label=method, **style.options())
    if not slope or len(measured) < 2:
        return
    text = f"slope {last_slope(measured):.1f}"
    offset, ha, va = PLACES[method]
    axis.annotate(
        text,
        measured[-1],
        offset,
        textcoords="offset points",
        ha=ha,
        va=va,
        fontsize=8,
        color=style.color,
        zorder=40,
    )


def last_slope(measured: list[tuple[int, float]]) -> float:
    """The exponent of the growth between the last two points."""
    (x0, y0), (x1, y1) = measured[-2:]
    return math.log(y1 / y0) / math.log(x1 / x0)


def mark_stopped(axis: Any, lines: Lines, column: str) -> None:
    """An arrow upwards, past the last point, where a row took too long."""
    for method, line in lines.items():
        measured = points(line, column, "seconds")
        stopped = [int(row[column]) for row in line if row["status"] == STOPPED]
        if len(measured) > 1 and stopped:
            x, y = measured[-1]
            y *= (stopped[0] / x) ** last_slope(measured)
            axis.annotate(
                "stopped",
                (stopped[0], 3 * y),
                (stopped[0], y),
                arrowprops={"arrowstyle": "->", "color": STYLES[method].color},
                ha="right",
                va="center",
                fontsize=8,
                color=STYLES[method].color,
            )


def mark_single_run(axis: Any, rows: Sequence[Row], column: str, value: str) -> None:
    """Large selections among the n, long streams among the N; the largest says what it is."""
    part = "large" if column == "size" else "stream"
    found = sorted(finished(list(rows), part), key=lambda row: int(row[column]))
    for row in found:
        where = [int(row[column])], [float(row[value])]
        axis.plot(*where, "*", color=STYLES[row["method"]].color, markersize=11, zorder=30)
    for row in found[-1:]:
        other = OTHERS[column][0]
        text = f"{part}, {row['method']}\n{LETTERS[other]} = {int(row[other]):,}"
        axis.annotate(
            f"{text}\nD = {int(row['dim']):,}",
            (int(row[column]), float(row[value])),
            (-8, -4),
            textcoords="offset points",
            ha="right",
            va="bottom",
            fontsize=8,
        )


def dress(axis: Any, lines: Lines, column: str, value: str) -> None:
    """Scales, ticks, labels, and what is fixed as the title."""
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel(AXES[column])
    axis.set_ylabel(VALUES[value])
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_locator(FixedLocator(ticks(axis.get_xlim())))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:,.0f}"))
    low, high = axis.get_ylim()
    axis.set_ylim(low / 2, max(3 * high, 20 * low))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())
    axis.grid(which="major", color="#DDDDDD", linewidth=0.6)
    first = next(row for line in lines.values() for row in line)
    fixed = [f"{LETTERS[name]} = {int(first[name]):,}" for name in OTHERS[column]]
    axis.set_title(", ".join(fixed), fontsize=10)


def ticks(limits: tuple[float, float]) -> list[int]:
    """Powers of ten, and three times them if there are few."""
    low, high = (math.log10(max(limit, 1e-9)) for limit in limits)
    powers = range(math.floor(low), math.ceil(high) + 1)
    steps = (1, 3) if high - low < 2 else (1,)
    return [step * 10**power for power in powers if power >= 0 for step in steps]
