"""How figures look: panels, legend, files; the same colour for a method everywhere."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl

from benchmarks import UsageError
from benchmarks.files import write_whole
from benchmarks.grid.methods import METHODS

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
WIDTHS = {1: 4.6, 2: 4.6, 3: 3.8}
"""Inches of a panel by the number of columns; 3.4 with more."""


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


def panels(
    count: int, y_label: str = "accuracy on the whole test set", columns: int = 2
) -> tuple[Any, list[Any]]:
    """A figure with ``count`` panels, at most ``columns`` in a row."""
    columns = min(count, columns)
    lines = math.ceil(count / columns)
    size = (WIDTHS.get(columns, 3.4) * columns, 3.3 * lines + 0.5)
    figure, grid = plt.subplots(lines, columns, figsize=size, squeeze=False, layout="constrained")
    axes = list(grid.flat)
    for spare in axes[count:]:
        spare.set_visible(False)
    for position, axis in enumerate(axes[:count]):
        axis.set_ylabel("" if position % columns else y_label)
        axis.grid(color="#DDDDDD", linewidth=0.6)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes[:count]


def logarithmic(axis: Any, ticks: Iterable[float]) -> None:
    """A logarithmic x axis that names these positions."""
    axis.set_xscale("log")
    axis.margins(x=0.13)
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_locator(FixedLocator(sorted(ticks)))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


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


def legend(figure: Any, axes: Sequence[Any], columns: int | None = None) -> None:
    """One legend for all panels, below them."""
    entries: dict[str, Any] = {}
    for axis in axes:
        for handle, name in zip(*axis.get_legend_handles_labels(), strict=True):
            known = entries.setdefault(name, handle)
            if getattr(known, "get_linestyle", str)() == "None":  # single points: better a line
                entries[name] = handle
    entries = dict(sorted(entries.items(), key=lambda item: -getattr(item[1], "zorder", 0)))
    columns = columns or {1: 2, 2: 4, 3: 5}.get(len(axes), 7)
    figure.legend(
        entries.values(),
        entries.keys(),
        loc="outside lower center",
        ncols=max(min(len(entries), columns), 1),
        frameon=False,
        handlelength=3,
        fontsize=10,
    )
