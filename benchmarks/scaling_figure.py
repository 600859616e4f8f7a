"""The growth of time and memory on logarithmic axes, from rows alone; no torch in here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.cost_model import CostModel, Shape
from benchmarks.plots import Style, panels, save
from benchmarks.results import Row
from benchmarks.scaling_cases import FINISHED, METHODS, SCIKIT_LEARN, STOPPED, finished

STYLES = {
    "exact": Style("#D55E00", "-", "o", 0),
    "fast": Style("#0072B2", "-", "s", 1),
    SCIKIT_LEARN: Style("#000000", "--", "^", 2),
}
AXES = {"size": "picks n", "examples": "atoms N"}
VALUES = {"seconds": "seconds", "extra_gb": "GB beyond the dictionary"}


def draw(rows: Sequence[Row], model: CostModel, output: Path) -> list[Path]:
    """Write scaling.png and scaling.svg."""
    figure, axes = panels(4, y_label="")
    places = [(value, column) for value in VALUES for column in AXES]
    for axis, (value, column) in zip(axes, places, strict=True):
        lines = lines_of(rows, column)
        for method, line in lines.items():
            draw_line(axis, line, column, value, STYLES[method], method)
        if value == "seconds":
            draw_model(axis, lines, column, model)
            draw_single_runs(axis, rows, column)
        dress(axis, lines, column, value)
    figure.legend(
        *axes[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=3,
        frameon=False,
        handlelength=3,
        fontsize=9,
    )
    return save(figure, output / "scaling")


def lines_of(rows: Sequence[Row], column: str) -> dict[str, list[Row]]:
    """For each method its rows along one column, the others fixed where most rows are."""
    growth = [row for row in rows if row["part"] == "growth"]
    fixed = [name for name in ("size", "examples", "dim") if name != column]
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in growth:
        groups.setdefault(tuple(row[name] for name in fixed), []).append(row)
    longest = max(groups.values(), key=lambda group: len({row[column] for row in group}))
    ordered = sorted(longest, key=lambda row: int(row[column]))
    return {method: [row for row in ordered if row["method"] == method] for method in METHODS}


def draw_line(
    axis: Any, line: Sequence[Row], column: str, value: str, style: Style, method: str
) -> None:
    """What was measured, with its slope at the end; a cross where a row was stopped."""
    points = [(int(row[column]), float(row[value])) for row in line if row["status"] == FINISHED]
    points = [(x, y) for x, y in points if y > 0]
    if points:
        axis.plot(*zip(*points, strict=True), label=method, **style.options())
    if len(points) > 1 and value == "seconds":
        import math

        (x0, y0), (x1, y1) = points[-2:]
        slope = math.log(y1 / y0) / math.log(x1 / x0)
        axis.annotate(
            f"slope {slope:.1f}", (x1, y1), (6, 0), textcoords="offset points", fontsize=8
        )


def draw_model(axis: Any, lines: dict[str, list[Row]], column: str, model: CostModel) -> None:
    """The fitted cost model, thin and grey."""
    for method, line in lines.items():
        if method != SCIKIT_LEARN and line:
            done = [row for row in line if row["status"] == FINISHED]
            seconds = [sum(model.seconds(Shape.of(row)).values()) for row in done]
            axis.plot([int(row[column]) for row in done], seconds, color="#999999", linewidth=1)


def draw_single_runs(axis: Any, rows: Sequence[Row], column: str) -> None:
    pass


def dress(axis: Any, lines: dict[str, list[Row]], column: str, value: str) -> None:
    """Scales, ticks and labels."""
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel(AXES[column])
    axis.set_ylabel(VALUES[value])
