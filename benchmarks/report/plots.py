"""How result rows look: one panel per stream, the same colour for a method everywhere.

The colours are those of Okabe and Ito, which colour-blind readers can tell apart; line style and
marker repeat the distinction for print in grey.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl

from benchmarks.grid.cells import EXPERIMENTS
from benchmarks.grid.rows import numbers
from benchmarks.report.averages import Row, Summary, curves, streams, trajectories
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


STYLES = {
    "gmc-last-layer": Style("#D55E00", "-", "o", 0),
    "gmc-last-layer-ols": Style("#E69F00", "--", "o", 1),
    "gmc-projection": Style("#0072B2", "-", "s", 2),
    "gmc-projection-ols": Style("#56B4E9", "--", "s", 3),
    "gmc-local": Style("#CC79A7", "-.", "D", 4),
    "reservoir": Style("#000000", "-", "^", 5),
    "class-balanced": Style("#009E73", "-.", "v", 6),
    "facility-location": Style("#8C510A", "--", "P", 7),
    "sliding-window": Style("#7F7F7F", ":", "x", 8),
}
LABELS = {
    "gmc-last-layer": "GMC, last layer",
    "gmc-last-layer-ols": "GMC, last layer, OLS",
    "gmc-projection": "GMC, projection",
    "gmc-projection-ols": "GMC, projection, OLS",
    "gmc-local": "GMC, local",
    "reservoir": "reservoir",
    "class-balanced": "class-balanced",
    "facility-location": "facility location",
    "sliding-window": "sliding window",
}
# Lines of one method that differ in an option keep its colour and marker.
VARIANT_LINES = ("-", "--", "-.", ":")


def style_of(variant: str, position: int = 0) -> Style:
    """The look of a variant; ``position`` counts the variants of one method."""
    method = variant.partition(",")[0]
    base = STYLES.get(method, Style("#444444", "-", ".", 9))
    if position == 0:
        return base
    line = VARIANT_LINES[(VARIANT_LINES.index(base.line) + position) % len(VARIANT_LINES)]
    return Style(base.color, line, base.marker, base.order)


def label_of(variant: str) -> str:
    """The variant as the legend writes it."""
    method, comma, details = variant.partition(",")
    return LABELS.get(method, method) + comma + details


def draw(experiment: str, rows: Sequence[Row], output: Path) -> list[Path]:
    """Draw one experiment's figure; returns the files written, PNG and SVG."""
    if EXPERIMENTS[experiment].paradigm == "count":
        figure = draw_class_frequencies(rows)
    elif EXPERIMENTS[experiment].per_experience:
        figure = draw_trajectories(rows)
    else:
        figure = draw_curves(rows)
    return save(figure, output / experiment)


def save(figure: Any, stem: Path) -> list[Path]:
    """Write a figure as PNG and SVG."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_name(f"{stem.name}.png"), stem.with_name(f"{stem.name}.svg")]
    # Without date and random identifiers the same rows give the same files.
    with mpl.rc_context({"svg.hashsalt": "avalanche-gmc"}):
        figure.savefig(paths[0], dpi=150, metadata={"Software": None})
        figure.savefig(paths[1], metadata={"Date": None})
    plt.close(figure)
    return paths


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
    names = streams(rows)
    figure, axes = panels(len(names))
    for axis, stream in zip(axes, names, strict=True):
        lines = curves(rows, stream)
        for variant, style in styled(lines):
            draw_line(axis, list(lines[variant]), list(lines[variant].values()), variant, style)
        sizes = sorted({size for line in lines.values() for size in line})
        memory_axis(axis, sizes)
        axis.set_title(title_of(stream), fontsize=11)
    legend(figure, axes)
    return figure


def memory_axis(axis: Any, sizes: Sequence[int]) -> None:
    """A logarithmic axis with the tested sizes as its ticks."""
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(FixedLocator(sizes))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_xlabel("exemplars in memory")


def draw_trajectories(rows: Sequence[Row]) -> Any:
    """Accuracy after each experience."""
    names = streams(rows)
    figure, axes = panels(len(names))
    for axis, stream in zip(axes, names, strict=True):
        lines = trajectories(rows, stream)
        for variant, style in styled(lines):
            steps = list(range(1, len(lines[variant]) + 1))
            draw_line(axis, steps, lines[variant], variant, style)
        axis.xaxis.set_major_locator(FixedLocator(range(1, 1 + max(map(len, lines.values())))))
        axis.set_title(title_of(stream), fontsize=11)
        axis.set_xlabel("experiences seen")
    legend(figure, axes)
    return figure


def styled(variants: Mapping[str, object]) -> list[tuple[str, Style]]:
    """The variants with their looks, in the order of the legend."""
    seen: dict[str, int] = {}
    result = []
    for variant in variants:
        method = variant.partition(",")[0]
        result.append((variant, style_of(variant, seen.get(method, 0))))
        seen[method] = seen.get(method, 0) + 1
    return sorted(result, key=lambda item: item[1].order)


def draw_line(
    axis: Any, x: Sequence[int], y: Sequence[Summary], variant: str, style: Style
) -> None:
    """Mean line and a band of one standard deviation."""
    means, deviations = [s.mean for s in y], [s.std for s in y]
    axis.plot(x, means, label=label_of(variant), **style.options())
    low = [mean - deviation for mean, deviation in zip(means, deviations, strict=True)]
    high = [mean + deviation for mean, deviation in zip(means, deviations, strict=True)]
    axis.fill_between(x, low, high, color=style.color, alpha=0.12, linewidth=0)


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
    for axis, row in zip(axes, rows, strict=True):
        counts = [numbers(part) for part in row["class_counts_per_experience"].split("|")]
        shares = [[value / sum(experience) for value in experience] for experience in counts]
        below = [0.0] * len(shares)
        for label in range(len(shares[0])):
            heights = [share[label] for share in shares]
            shade = mpl.colormaps["cividis"](label / max(1, len(shares[0]) - 1))
            axis.bar(
                range(1, len(shares) + 1),
                heights,
                bottom=below,
                color=shade,
                edgecolor="white",
                linewidth=0.4,
                width=0.92,
                label=f"class {label}",
            )
            below = [low + height for low, height in zip(below, heights, strict=True)]
        axis.grid(visible=False)
        axis.set_ylim(0, 1)
        axis.xaxis.set_major_locator(FixedLocator(range(1, len(shares) + 1)))
        axis.set_title(title_of(row["stream"]), fontsize=11)
        axis.set_xlabel("experience")
    legend(figure, axes)
    return figure
