"""Many memories side by side: the difference to reservoir sampling, and what selecting takes.

No torch in here. Differences are paired by seed. Seconds are those of embedding and selection over
the whole stream on one thread, at the stream's largest memory; memories that share an embedding
count it whole each.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.grid.experiments import EXPERIMENTS
from benchmarks.grid.rows import ResultsFile
from benchmarks.report.averages import Frame, Row, frame_of, setting_text, streams, usual
from benchmarks.report.contrasts import PLACE, gap_text, to_reference
from benchmarks.report.pages import table
from benchmarks.report.plots import Style, label_of, panels, style_of
from benchmarks.streams.registry import title_of

FAR = -0.1
"""Further behind the reservoir than this, a mean is written instead of drawn."""


def markdown(results: Path) -> str:
    """A table for each experiment that compares many memories, from whatever rows there are."""
    parts = []
    for name, experiment in EXPERIMENTS.items():
        rows = ResultsFile(results / f"{name}.csv").rows() if experiment.side_by_side else []
        if rows:
            parts += [f"`{name}`: {experiment.figure}", comparison(rows), settings(rows)]
    return "\n\n".join(parts) or "Not run yet."


def comparison(rows: Sequence[Row]) -> str:
    """A line for each memory, in the order of `ranked`, a column for each stream and size."""
    frame = usual(frame_of(rows))
    gaps, noisy = gaps_to_reference(frame), frame["wrong_labels"].ne("").any()
    places = [place for stream in streams(rows) for place in places_of(frame, stream)]
    header = ["memory", *(f"{title_of(stream)}, {size}" for stream, size in places), "seconds"]
    names = streams(rows)
    groups, body = dict(list(frame.groupby(["variant", "stream", "memory_size"]))), []
    for variant in ranked(frame, gaps):
        line = [label_of(variant)]
        for place in places:
            own = groups.get((variant, *place))
            line.append("" if own is None else text_of(own, gaps.get((variant, *place)), noisy))
        times = seconds(frame, variant)
        took = " / ".join(seconds_text(times[name]) if name in times else "–" for name in names)
        body.append([*line, took])
    return table(header, body, aligned=False)


def seconds_text(seconds: float) -> str:
    """Two digits, or whole seconds."""
    return f"{seconds:.0f}" if seconds >= 100 else f"{seconds:.2g}"


def settings(rows: Sequence[Row]) -> str:
    """How often and how each stream was run, where that is unlike the paper's training."""
    frame, names = usual(frame_of(rows)), streams(rows)
    texts = [f"{title_of(name)}: {training(frame[frame['stream'] == name])}" for name in names]
    order = " (seconds in this order)" if len(names) > 1 else ""
    return f"{'; '.join(texts)}{order}."


def training(own: Frame) -> str:
    """Seeds of a stream's rows, and what is unlike the paper's training."""
    counts = own.groupby(["variant", "memory_size"])["seed"].nunique()
    least, most = counts.min(), counts.max()
    seeds = f"{least} to {most}" if least < most else f"{most}"
    return ", ".join([f"{seeds} seed{'s' if most > 1 else ''}", *setting_text(own)])


def text_of(own: Frame, gap: Any, noisy: bool) -> str:
    """The accuracy of the reference, the difference of the others; wrong labels if there are."""
    text = f"{own['accuracy'].mean():.3f}" if gap is None else gap_text(gap)
    return f"{text} ({wrong_text(own)})" if noisy else text


def wrong_text(own: Frame) -> str:
    """The share of wrong labels among exemplars, and what they weigh where they have weights."""
    text = f"{own['wrong_labels'].astype(float).mean():.0%} wrong"
    if own["wrong_weight"].eq("").any():
        return text
    return f"{text}, {own['wrong_weight'].astype(float).mean():.0%} by weight"


def gaps_to_reference(frame: Frame) -> dict[tuple[str, str, int], Any]:
    """Variant, stream and size → mean difference, half its 95 % interval, number of seeds."""
    gaps = to_reference(frame).iterrows()
    return {(variant, stream, size): gap for (stream, variant, size), gap in gaps}


def places_of(frame: Frame, stream: str) -> list[tuple[str, int]]:
    """The memory sizes of a stream, with it."""
    sizes = frame[frame["stream"] == stream]["memory_size"].unique()
    return [(stream, int(size)) for size in sorted(sizes)]


def ranked(frame: Frame, gaps: dict[tuple[str, str, int], Any]) -> list[str]:
    """The variants by their mean difference, the largest first; the reference counts as 0.

    Those that were not run everywhere come last: their means are of other places.
    """
    means = pd.Series({key: gap["mean"] for key, gap in gaps.items()}, dtype=float)
    levels = means.groupby(level=0).mean() if len(means) else means
    places = frame[["variant", *PLACE]].drop_duplicates()["variant"].value_counts()
    incomplete = places < places.max()
    names = frame["variant"].unique()
    return sorted(names, key=lambda name: (incomplete[name], -levels.get(name, 0.0)))


def seconds(frame: Frame, variant: str) -> Any:
    """What a variant took at the largest memory of each stream: mean over seeds, by stream."""
    own = frame[frame["variant"] == variant]
    largest = own["memory_size"] == own.groupby("stream")["memory_size"].transform("max")
    return own[largest].groupby("stream")["seconds"].mean()


def draw(rows: Sequence[Row]) -> Any:
    """A panel of differences for each stream, with a mark for each memory size, and one of times.

    The larger the memory, the larger and darker its mark. What is further behind than ``FAR`` is a
    number at the edge instead of stretching the axis.
    """
    frame, names = usual(frame_of(rows)), streams(rows)
    gaps = gaps_to_reference(frame)
    variants = ranked(frame, gaps)[::-1]
    figure, axes = panels(len(names) + 1, y_label="", columns=len(names) + 1)
    for axis, stream in zip(axes, names, strict=False):
        places = places_of(frame, stream)
        for height, variant in enumerate(variants):
            far = {}
            for number, place in enumerate(places):
                gap = gaps.get((variant, *place))
                if gap is not None and gap["mean"] > FAR:
                    shift = 0.24 * (number - (len(places) - 1) / 2)
                    mark(axis, gap, height - shift, variant, (number + 1) / len(places))
                elif gap is not None:
                    far[place[1]] = f"{gap['mean']:+.2f}"
            write_at_edge(axis, far, len(places), height)
        limit(axis, [gap["mean"] for (_, name, _), gap in gaps.items() if name == stream])
        axis.axvline(0, color="black", linewidth=1.2)
        sizes = ", ".join(str(size) for _, size in places)
        text = textwrap.fill(training(frame[frame["stream"] == stream]), 36)
        axis.set_title(f"{title_of(stream)}\n{sizes} exemplars\n{text}", fontsize=10)
        axis.set_xlabel("difference to reservoir")
    for height, variant in enumerate(variants):
        look = style_of(variant)
        times = seconds(frame, variant)
        axes[-1].plot(sorted(times), [height] * len(times), f"-{look.marker}", **spread_of(look))
    axes[-1].set_xscale("log")
    each = "\n(a mark for each stream)" if len(names) > 1 else ""
    axes[-1].set_title(f"time to embed and select\nthe largest memory{each}", fontsize=10)
    axes[-1].set_xlabel("seconds")
    for axis in axes:
        axis.set_ylim(-0.6, len(variants) - 0.4)
        shown = [label_of(variant) for variant in variants] if axis is axes[0] else []
        axis.set_yticks(range(len(variants)), shown or [""] * len(variants))
    figure.set_figheight(0.3 * len(variants) + 1.6)
    return figure


def spread_of(look: Style) -> dict[str, Any]:
    """How times of one memory on several streams look."""
    return {"color": look.color, "markersize": 5, "linewidth": 0.7}


def limit(axis: Any, means: Sequence[float]) -> None:
    """Let the means that are not far behind fill the axis."""
    near = [0.0, *(mean for mean in means if mean > FAR)]
    low, high = min(near), max(near)
    room = max(high - low, 0.02)
    axis.set_xlim(low - 0.45 * room, high + 0.2 * room)
    axis.locator_params(axis="x", nbins=5)


def write_at_edge(axis: Any, values: dict[int, str], sizes: int, height: float) -> None:
    """Values that are too far left for the axis, with their memory sizes if others are not."""
    if values:
        whole = len(values) == sizes
        texts = [text if whole else f"{size}: {text}" for size, text in values.items()]
        where = {"transform": axis.get_yaxis_transform(), "va": "center", "zorder": 30}
        paper = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
        axis.text(0.01, height, f"◂ {', '.join(texts)}", fontsize=8, bbox=paper, **where)


def mark(axis: Any, gap: Any, height: float, variant: str, part: float) -> None:
    """One difference with its 95 % confidence interval."""
    look, half = style_of(variant), np.nan_to_num(gap["half"])
    axis.errorbar(
        gap["mean"],
        height,
        xerr=half,
        color=look.color,
        marker=look.marker,
        markersize=2.5 + 3.5 * part,
        alpha=0.35 + 0.65 * part,
        linewidth=0.9,
    )
