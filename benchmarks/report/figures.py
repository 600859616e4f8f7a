"""The figure of each experiment, from its rows: a column or a panel for each stream; no torch."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.ticker import FixedLocator
from matplotlib.transforms import offset_copy

from benchmarks.grid.experiments import EXPERIMENTS
from benchmarks.report import draws, rivals
from benchmarks.report.averages import (
    Frame,
    Row,
    class_counts,
    curves,
    each_experience,
    frame_of,
    setting_text,
    streams,
    trajectories,
    usual,
)
from benchmarks.report.contrasts import to_reference
from benchmarks.report.plots import (
    Style,
    in_order,
    label_of,
    legend,
    logarithmic,
    panels,
    save,
    styled,
)
from benchmarks.streams.registry import title_of

DRAWS = "draws"
FAILING = 0.05
"""How far behind the reservoir, in the mean of a panel, a method no longer shapes its axes."""
LINE_OF_STRIP = 0.085
"""Height of the marks of one such method, of the height of the axis."""


def draw(experiment: str, rows: Sequence[Row], output: Path) -> list[Path]:
    """Draw the figure of an experiment, or of the draws; returns the files written, PNG and SVG."""
    if experiment == DRAWS:
        figure = draws.draw(rows)
    elif EXPERIMENTS[experiment].paradigm == "count":
        figure = draw_class_frequencies(rows)
    elif EXPERIMENTS[experiment].per_experience:
        figure = draw_trajectories(rows)
    elif EXPERIMENTS[experiment].side_by_side:
        figure = rivals.draw(rows)
    else:
        figure = draw_curves(rows)
    return [save(figure, output / f"{experiment}.{ending}") for ending in ("png", "svg")]


def draw_curves(rows: Sequence[Row]) -> Any:
    """Against memory size: above the difference to the reservoir, if it was run, below accuracy."""
    frame, names = usual(frame_of(rows)), streams(rows)
    gaps = to_reference(frame)
    figure, upper, lower = columns_of_panels(len(names), len(gaps) > 0)
    for above, below, stream in zip(upper, lower, names, strict=True):
        accuracy, gap = curves(rows, stream), of_stream(gaps, stream)
        sizes = accuracy.groupby("memory_size").size()
        variants = accuracy.index.unique("variant")
        leading = accuracy.loc[in_order(variants)[0]].index
        sizes = [size for size in leading if 2 * sizes[size] > len(variants)]
        draw_lines(below, accuracy, "std", sizes, failing(gap))
        if len(gap):
            draw_lines(above, gap, "half", sizes, failing(gap))
        title(above, stream, frame)
        below.set_xlabel("exemplars in memory")
        for axis in {above, below}:
            logarithmic(axis, accuracy.index.unique("memory_size"))
    legend(figure, lower)
    return figure


def draw_trajectories(rows: Sequence[Row]) -> Any:
    """Accuracy after each experience, and above it what competing methods gain."""
    frame, names = usual(frame_of(rows)), streams(rows)
    gaps = to_reference(each_experience(rows), "experience")
    figure, upper, lower = columns_of_panels(len(names), len(gaps) > 0)
    for above, below, stream in zip(upper, lower, names, strict=True):
        accuracy, gap = trajectories(rows, stream), of_stream(gaps, stream)
        draw_lines(below, accuracy, "std")
        gap = gap[~gap.index.isin(failing(gap), "variant")]
        if len(gap):
            draw_lines(above, gap, "half")
        title(above, stream, frame)
        below.set_xlabel("experiences seen")
        for axis in {above, below}:
            axis.xaxis.set_major_locator(FixedLocator(accuracy.index.unique("experience")))
    legend(figure, lower)
    return figure


def columns_of_panels(count: int, both: bool) -> tuple[Any, list[Any], list[Any]]:
    """A figure and its panels of differences and of accuracies, which are the same if not both."""
    figure, axes = panels(count * (1 + both), columns=count if both else 2)
    upper, lower = axes[:count], axes[-count:]
    if both:
        upper[0].set_ylabel("difference to reservoir\n(with 95 % confidence band)")
        lower[0].set_ylabel("accuracy\n(± 1 standard deviation)")
        for axis in upper:
            axis.axhline(0, color="black", linewidth=1.2)
    return figure, upper, lower


def of_stream(gaps: Frame, stream: str) -> Frame:
    """The differences of one stream: variant and position."""
    return gaps[gaps.index.isin([stream], "stream")].droplevel(0)


def failing(gap: Frame) -> Any:
    """The variants that are far behind the reservoir."""
    mean = gap["mean"].groupby("variant").mean()
    return mean.index[mean < -FAILING]


def draw_lines(
    axis: Any,
    lines: Frame,
    band: str,
    complete: Collection[int] = (),
    failing: Collection[str] = (),
) -> None:
    """Mean lines with bands; points of failing variants in a strip below the axis.

    A point of fewer seeds than others have is hollow.

    :param lines: variant and position → mean, count and ``band``, half the height of the band.
    :param complete: positions without which a variant is drawn as single points.
    """
    most, strip = lines["count"].max(), []
    competing = lines[~lines.index.get_level_values("variant").isin(failing)]
    low, high = limits(competing if len(competing) else lines, band)
    if axis.lines:  # a line at zero
        low, high = min(low, -0.002), max(high, 0.002)
    for variant, style in styled(lines.index.unique("variant")):
        line, look = lines.loc[variant], style.options()
        if not set(complete) <= set(line.index) or variant in failing:
            look["linestyle"] = "none"
        axis.plot(line.index, line["mean"], label=label_of(variant), **look)
        fewer = line["mean"][line["count"] < most]
        axis.plot(fewer.index, fewer, **look | {"linestyle": "none", "markerfacecolor": "white"})
        if variant in failing:
            strip.append((style, line["mean"][line["mean"] < low]))
        elif look["linestyle"] != "none":
            edges = line["mean"] - line[band], line["mean"] + line[band]
            axis.fill_between(line.index, *edges, color=style.color, alpha=0.12, linewidth=0)
    if (lines["count"] < most).any():
        look = {"color": "#777777", "markerfacecolor": "white", "label": "hollow: fewer seeds"}
        axis.plot([], [], "o", **look)
    mark_failing(axis, strip, low, high)


def limits(lines: Frame, band: str) -> tuple[float, float]:
    """The range of the means, and of their bands up to a third as much again on either side."""
    low, high = lines["mean"].min(), lines["mean"].max()
    wide, band_of = max(high - low, 0.01), lines[band].fillna(0)
    bottom = max((lines["mean"] - band_of).min(), low - 0.35 * wide)
    top = min((lines["mean"] + band_of).max(), high + 0.35 * wide)
    return bottom - 0.05 * wide, top + 0.05 * wide


def mark_failing(axis: Any, strip: Sequence[tuple[Style, Frame]], low: float, high: float) -> None:
    """Marks and values of points below ``low``, a line for each variant, in a shaded strip."""
    share = LINE_OF_STRIP * len(strip)
    axis.set_ylim(low - (high - low) * share / (1 - share), high)
    if not strip:
        return
    axis.axhspan(axis.get_ylim()[0], low, color="#F0F0F0", zorder=15, linewidth=0)
    axis.yaxis.set_major_locator(FixedLocator([t for t in axis.get_yticks() if low <= t <= high]))
    place = axis.get_xaxis_transform()
    beside = offset_copy(place, axis.figure, x=-13, units="points")
    for row, (style, values) in enumerate(reversed(strip)):
        height = LINE_OF_STRIP * (row + 0.5)
        look = style.options() | {"linestyle": "none", "markersize": 4, "zorder": 30}
        axis.plot(values.index, [height] * len(values), transform=beside, **look)
        for x, value in values.items():
            text = f"{value:.2f}".replace("0.", ".").replace("-", "−")
            where = {"transform": place, "ha": "center", "va": "center", "zorder": 30}
            axis.text(x, height, text, fontsize=8, color="#333333", **where)


def title(axis: Any, stream: str, frame: Frame) -> None:
    """The stream's name, and below it the seeds and what is unlike the paper's training."""
    own = frame[frame["stream"] == stream]
    seeds = own["seed"].nunique()
    texts = [f"{seeds} seed{'s' if seeds > 1 else ''}", *setting_text(own)]
    axis.set_title(f"{title_of(stream)}\n", fontsize=12)
    grey = {"ha": "center", "fontsize": 9, "color": "#555555"}
    axis.text(0.5, 1.03, ", ".join(texts), transform=axis.transAxes, **grey)


def draw_class_frequencies(rows: Sequence[Row]) -> Any:
    """Share of each class in each experience, as stacked bars."""
    figure, axes = panels(len(rows), y_label="share of the examples")
    counts = [class_counts(row) for row in rows]
    # A class has the same colour in all panels, because they have one legend.
    classes = max(len(panel.columns) for panel in counts)
    shades = mpl.colormaps["cividis"]([label / max(1, classes - 1) for label in range(classes)])
    look = {"stacked": True, "edgecolor": "white", "linewidth": 0.4, "width": 0.92, "rot": 0}
    for axis, row, panel in zip(axes, rows, counts, strict=True):
        shares = panel.div(panel.sum(axis=1), axis=0)
        shares.plot.bar(ax=axis, color=shades[: len(panel.columns)], legend=False, **look)
        axis.grid(visible=False)
        axis.set_ylim(0, 1)
        axis.set_title(title_of(row["stream"]), fontsize=11)
        axis.set_xlabel("experience")
    legend(figure, axes)
    return figure
