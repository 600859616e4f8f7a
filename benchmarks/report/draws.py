"""What more draws of the last layer bring, against their number and their dimensions; no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from benchmarks.report.averages import Frame, Row, frame_of, streams, usual
from benchmarks.report.contrasts import paired, tested
from benchmarks.report.plots import legend, logarithmic, panels
from benchmarks.streams.registry import title_of

FEATURES = {"mlp": 128, "cnn": 64, "resnet18": 512}
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
LOOKS = {100: ("-", "o"), 200: ("--", "s"), 500: ("-.", "^"), 1000: ("-", "D"), 2000: ("--", "v")}


def draw(rows: Sequence[Row]) -> Any:
    """Differences to the reservoir: a line for each stream and memory size with several draws."""
    found = gains(rows)
    figure, axes = panels(2, y_label="difference to reservoir")
    names = streams(found[["stream"]].to_dict("records"))
    for (stream, size), own in found.groupby(["stream", "memory_size"]):
        line, marker = LOOKS.get(size, (":", "P"))
        look = {
            "color": COLORS[names.index(stream) % len(COLORS)],
            "label": f"{title_of(stream)}, {size}",
        }
        for axis, x in zip(axes, ("draws", "per_exemplar"), strict=True):
            axis.plot(own[x], own["mean"], linestyle=line, marker=marker, markersize=5, **look)
    for axis in axes:
        axis.axhline(0, color="black", linewidth=1.2)
    logarithmic(axes[0], found["draws"].unique())
    logarithmic(axes[1], (0.5, 1, 2, 5, 10, 20, 50, 100))
    axes[0].set_xlabel("draws")
    axes[1].set_xlabel("dimensions per exemplar")
    legend(figure, axes, columns=3)
    return figure


def gains(rows: Sequence[Row]) -> Frame:
    """Stream, memory size, draws → mean difference to the reservoir, dimensions per exemplar."""
    frame = usual(frame_of(rows))
    classes = frame["class_counts"].str.count(";") + 1
    frame = frame.assign(
        draws=frame["draws"].astype(int), of_a_draw=classes * (frame["model"].map(FEATURES) + 1)
    )
    ours = frame[(frame["method"] == "gmc-last-layer") & (frame["weighted"] == "yes")]
    reference = frame[frame["method"] == "reservoir"]
    ours = ours.sort_values("mode", ascending=False)  # of what was run twice, exact counts
    pairs = [paired(own, reference) for _, own in ours.groupby("draws")]
    place = ["stream", "memory_size", "draws", "of_a_draw"]
    found = tested(pd.concat(pairs), place).reset_index()
    found = found[found.groupby(["stream", "memory_size"])["draws"].transform("nunique") > 1]
    dimensions = found["draws"] * found["of_a_draw"]
    return found.assign(per_exemplar=dimensions / found["memory_size"])
