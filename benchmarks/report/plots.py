"""How result rows look: one panel per stream, the same colour for a method everywhere."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl

from benchmarks import UsageError
from benchmarks.files import write_whole
from benchmarks.grid.cells import EXPERIMENTS
from benchmarks.grid.methods import METHODS
from benchmarks.grid.rows import numbers
from benchmarks.report.averages import Row, curves, streams, trajectories
from benchmarks.streams.registry import title_of

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator


@dataclass(frozen=True)
class Style:
    """A line's look."""

    color: str
    line: str
    marker: str
    order: int

    def options(self) -> dict[str, Any]:
        """Arguments for matplotlib's ``plot``."""
        return {
            "color": self.color,
            "linestyle": self.line,
            "marker": self.marker,
            "markersize": 5,
            "linewidth": 1.8,
            "zorder": 20 - self.order,
        }


# Lines of one method that differ in an option keep its colour and marker.
VARIANT_LINES = ("-", "--", "-.", ":")


def style_of(variant: str, position: int = 0) -> Style:
    """The look of a variant; ``position`` counts the variants of one method."""
    name = variant.partition(",")[0]
    if name not in METHODS:
        return Style("#444444", VARIANT_LINES[position % len(VARIANT_LINES)], ".", len(METHODS))
    color, line, marker = METHODS[name].look
    line = VARIANT_LINES[(VARIANT_LINES.index(line) + position) % len(VARIANT_LINES)]
    return Style(color, line, marker, list(METHODS).index(name))


def label_of(variant: str) -> str:
    """The variant as the legend writes it."""
    name, comma, details = variant.partition(",")
    return (METHODS[name].label if name in METHODS else name) + comma + details


def draw(experiment: str, rows: Sequence[Row], output: Path) -> list[Path]:
    """Draw one experiment's figure; returns the files written, PNG and SVG."""
    if EXPERIMENTS[experiment].paradigm == "count":
        figure = draw_class_frequencies(rows)
    elif EXPERIMENTS[experiment].per_experience:
        figure = draw_trajectories(rows)
    else:
        figure = draw_curves(rows)
    return [save(figure, output / f"{experiment}.{ending}") for ending in ("png", "svg")]


def save(figure: Any, path: Path) -> Path:
    """Write a figure in the format that the ending of its file names, PNG or SVG."""
    plt.close(figure)
    if path.suffix not in (".png", ".svg"):
        raise UsageError(f"{path} must end in .png or .svg")
    content = io.BytesIO()
    # Without date and random identifiers the same rows give the same files.
    with mpl.rc_context({"svg.hashsalt": "avalanche-gmc"}):
        without = {"Date": None} if path.suffix == ".svg" else {"Software": None}
        figure.savefig(content, format=path.suffix[1:], dpi=150, metadata=without)
    write_whole(path, content.getvalue())
    return path


def panels(count: int, y_label: str = "accuracy on the whole test set") -> tuple[Any, list[Any]]:
    """A figure with ``count`` panels, at most two in a row."""
    columns = min(count, 2)
    lines = math.ceil(count / columns)
    size = (4.6 * columns, 3.3 * lines + 0.5)
    figure, grid = plt.subplots(lines, columns, figsize=size, squeeze=False, layout="constrained")
    axes = list(grid.flat)
    for spare in axes[count:]:
        spare.set_visible(False)
    for position, axis in enumerate(axes[:count]):
        axis.set_ylabel("" if position % columns else y_label)
        axis.grid(color="#DDDDDD", linewidth=0.6)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes[:count]


def draw_curves(rows: Sequence[Row]) -> Any:
    """Final accuracy against memory size."""
    figure, axes = draw_lines(rows, curves)
    for axis, ticks in axes:
        axis.set_xscale("log")
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_major_locator(FixedLocator(ticks))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_xlabel("exemplars in memory")
    return figure


def draw_trajectories(rows: Sequence[Row]) -> Any:
    """Accuracy after each experience."""
    figure, axes = draw_lines(rows, trajectories)
    for axis, ticks in axes:
        axis.xaxis.set_major_locator(FixedLocator(ticks))
        axis.set_xlabel("experiences seen")
    return figure


def draw_lines(
    rows: Sequence[Row], lines_of: Callable[[Sequence[Row], str], Any]
) -> tuple[Any, list[tuple[Any, list[int]]]]:
    """A panel per stream: mean lines and bands of one standard deviation.

    :returns: the figure, and each panel with the positions that it has values for.
    """
    names = streams(rows)
    figure, axes = panels(len(names))
    ticks = []
    for axis, stream in zip(axes, names, strict=True):
        lines = lines_of(rows, stream)
        for variant, style in styled(lines.index.unique("variant")):
            line = lines.loc[variant]
            low, high = line["mean"] - line["std"], line["mean"] + line["std"]
            axis.plot(line.index, line["mean"], label=label_of(variant), **style.options())
            axis.fill_between(line.index, low, high, color=style.color, alpha=0.12, linewidth=0)
        axis.set_title(title_of(stream), fontsize=11)
        ticks.append(sorted(lines.index.unique(1)))
    legend(figure, axes)
    return figure, list(zip(axes, ticks, strict=True))


def styled(variants: Iterable[str]) -> list[tuple[str, Style]]:
    """The variants with their looks, in the order of the legend."""
    seen: dict[str, int] = {}
    result = []
    for variant in variants:
        method = variant.partition(",")[0]
        result.append((variant, style_of(variant, seen.get(method, 0))))
        seen[method] = seen.get(method, 0) + 1
    return sorted(result, key=lambda item: item[1].order)


def in_order(variants: Iterable[str]) -> list[str]:
    """Variants in the order of the legend."""
    return [variant for variant, _ in styled(variants)]


def legend(figure: Any, axes: Sequence[Any]) -> None:
    """One legend for all panels, below them."""
    entries = {}
    for axis in axes:
        entries.update(
            {name: handle for handle, name in zip(*axis.get_legend_handles_labels(), strict=True)}
        )
    columns = min(len(entries), 4 if len(axes) > 1 else 2)
    figure.legend(
        entries.values(),
        entries.keys(),
        loc="outside lower center",
        ncols=max(columns, 1),
        frameon=False,
        handlelength=3,
        fontsize=9,
    )


def draw_class_frequencies(rows: Sequence[Row]) -> Any:
    """Share of each class in each experience, as stacked bars."""
    figure, axes = panels(len(rows), y_label="share of the examples")
    counts = [
        [numbers(part) for part in row["class_counts_per_experience"].split("|")] for row in rows
    ]
    # A class has the same colour in all panels, because they have one legend.
    classes = max(len(panel[0]) for panel in counts)
    shades = mpl.colormaps["cividis"]([label / max(1, classes - 1) for label in range(classes)])
    for axis, row, panel in zip(axes, rows, counts, strict=True):
        steps = range(1, len(panel) + 1)
        below = [0.0] * len(panel)
        for label in range(len(panel[0])):
            heights = [experience[label] / sum(experience) for experience in panel]
            axis.bar(
                steps,
                heights,
                bottom=below,
                color=shades[label],
                edgecolor="white",
                linewidth=0.4,
                width=0.92,
                label=f"class {label}",
            )
            below = [low + height for low, height in zip(below, heights, strict=True)]
        axis.grid(visible=False)
        axis.set_ylim(0, 1)
        axis.xaxis.set_major_locator(FixedLocator(steps))
        axis.set_title(title_of(row["stream"]), fontsize=11)
        axis.set_xlabel("experience")
    legend(figure, axes)
    return figure
