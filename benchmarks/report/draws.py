"""What more draws of the last layer bring: draws and dimensions told apart; no torch.

With all features of the layer, more draws are more dimensions, too. With fewer features per draw
the total dimension stays that of one draw or of four. Whichever row of panels has the lines of one
memory size on top of each other, draws above or dimensions below, has what counts on its x axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from benchmarks import UsageError
from benchmarks.report.averages import Frame, Row, frame_of, setting_text, streams, usual
from benchmarks.report.contrasts import paired, tested
from benchmarks.report.plots import legend, logarithmic, panels
from benchmarks.streams.registry import LAST_FEATURES, title_of

WHOLE = "all features"
LINES = {WHOLE: "-", "dimensions of 4 draws": "--", "dimensions of 1 draw": ":"}
LOOKS = {
    **{50: ("#56B4E9", "P"), 100: ("#0072B2", "o"), 200: ("#D55E00", "s"), 500: ("#009E73", "^")},
    **{1000: ("#CC79A7", "D"), 2000: ("#000000", "v"), 5000: ("#E69F00", "X")},
}
"""Colour and marker of a memory size."""


def draw(rows: Sequence[Row]) -> Any:
    """Differences to the reservoir, a column for each stream: against draws and dimensions."""
    found = gains(rows)
    names = streams(found[["stream"]].to_dict("records"))
    figure, axes = panels(2 * len(names), y_label="difference to reservoir", columns=len(names))
    for column, stream in enumerate(names):
        own = found[found["stream"] == stream]
        pair = axes[column], axes[len(names) + column]
        for axis, x in zip(pair, ("draws", "per_exemplar"), strict=True):
            axis.axhline(0, color="black", linewidth=1.2)
            draw_lines(axis, own, x)
        logarithmic(pair[0], own["draws"].unique())
        logarithmic(pair[1], (0.1, 0.3, 1, 3, 5, 10, 30, 100, 300, 1000))
        pair[0].set_title(title_of(stream) + "\n", fontsize=12)
        grey = {"ha": "center", "fontsize": 9, "color": "#555555"}
        pair[0].text(0.5, 1.03, training(own), transform=pair[0].transAxes, **grey)
        pair[0].set_xlabel("draws")
        pair[1].set_xlabel("dimensions per exemplar")
    explain(axes[0], found)
    legend(figure, axes[:1], columns=4)
    return figure


def explain(axis: Any, found: Frame) -> None:
    """Entries of the legend: what a colour means, then what a line means."""
    for size in sorted(found["memory_size"].unique()):
        color, marker = look_of(size)
        axis.plot([], [], color=color, marker=marker, linestyle="none", label=f"{size} exemplars")
    for kind in found["kind"].unique():
        face = {} if kind == WHOLE else {"markerfacecolor": "white"}
        look = {"color": "#555555", "linestyle": LINES[kind], "marker": "o", "zorder": 1} | face
        axis.plot([], [], label=kind, **look)


def look_of(size: int) -> tuple[str, str]:
    """Colour and marker of a memory size."""
    return LOOKS.get(size, ("#777777", "."))


def draw_lines(axis: Any, own: Frame, x: str) -> None:
    """One line for each memory size and each way to have more draws."""
    for (size, kind), line in own.groupby(["memory_size", "kind"]):
        color, marker = look_of(size)
        look = {"color": color, "marker": marker, "linestyle": LINES[kind], "markersize": 5}
        if kind != WHOLE:
            look["markerfacecolor"] = "white"
        line = line.sort_values(x)
        axis.plot(line[x], line["mean"], **look)


def training(own: Frame) -> str:
    """Seeds, and what is unlike the paper's training."""
    counts = sorted(set(own["count"]))
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return ", ".join([f"{seeds} seeds", *setting_text(own)])


def gains(rows: Sequence[Row]) -> Frame:
    """Stream, memory size, draws, kind → mean difference to the reservoir, dimensions per exemplar.

    The kind says which total dimension stays the same, or that all features are there. Of each
    stream and kind, memory sizes with several numbers of draws.
    """
    frame = frame_of(rows)
    frame = frame[frame["method"].isin(["gmc-last-layer", "reservoir"])]
    ours = frame["experiment"] == "draws"  # whose rows are drawn alone, if there are any
    frame = usual(frame[ours] if ours.any() else frame)
    classes = frame["class_counts"].str.count(";") + 1
    frame = frame.assign(
        draws=frame["draws"].astype(int),
        dim=frame["dim"].astype(int),
        of_a_draw=classes * (frame["model"].map(LAST_FEATURES) + 1),
    )
    ours = frame[(frame["method"] == "gmc-last-layer") & (frame["weighted"] == "yes")]
    reference = frame[frame["method"] == "reservoir"]
    ours = ours.sort_values("mode", ascending=False)  # of what was run twice, exact counts
    pairs = [paired(own, reference) for _, own in ours.groupby(["draws", "dim"])]
    pairs = [own for own in pairs if len(own)]
    if not pairs:
        raise UsageError(
            "a figure of the draws needs rows of gmc-last-layer and of the reservoir with the same "
            "stream, memory size, seed and training"
        )
    place = ["stream", "memory_size", "draws", "dim"]
    together = pd.concat(pairs)
    columns = ["of_a_draw", "train_fraction", "epochs", "precision"]
    first = together.groupby(place)[columns].first()
    found = tested(together, place).join(first).reset_index()
    return with_kinds(found)


def with_kinds(found: Frame) -> Frame:
    """The lines of the figure; a point may be on several: four whole draws, for instance."""
    total = found["draws"] * found["dim"].where(found["dim"] > 0, found["of_a_draw"])
    found = found.assign(per_exemplar=total / found["memory_size"])
    worth = total / found["of_a_draw"]
    lines = [found[found["dim"] == 0].assign(kind=WHOLE)]
    for kind, draws in (("dimensions of 4 draws", 4), ("dimensions of 1 draw", 1)):
        same = (worth - draws).abs() < 0.1 * draws  # whole features: not to the last dimension
        lines.append(found[same].assign(kind=kind))
    joined = pd.concat(lines)
    counts = joined.groupby(["stream", "memory_size", "kind"])["draws"].transform("nunique")
    if (counts < 2).all():
        raise UsageError(
            "a figure of the draws needs rows of several numbers of draws with the same stream and "
            "memory size"
        )
    return joined[counts > 1]
