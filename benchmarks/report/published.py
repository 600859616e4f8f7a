"""Our accuracies beside those that others report of the same experiment; no torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from benchmarks.grid.experiments import EXPERIMENTS, Published
from benchmarks.grid.methods import METHODS
from benchmarks.grid.rows import ResultsFile
from benchmarks.report.averages import Frame, Row, frame_of, setting_text, summarized, usual
from benchmarks.report.contrasts import PLACE, gap_text, paired, tested
from benchmarks.report.pages import table
from benchmarks.streams.registry import STREAMS, title_of


def markdown(results: Path) -> str:
    """A table for each experiment of which others report accuracies, if it has rows."""
    parts = []
    for name, experiment in EXPERIMENTS.items():
        rows = ResultsFile(results / f"{name}.csv").rows()
        if experiment.published is not None and rows:
            parts += [f"`{name}`: {experiment.figure}", beside(rows, experiment.published)]
    return "\n\n".join(parts) or "Not run yet."


def beside(rows: Sequence[Row], published: Published) -> str:
    """A line for each stream, size and memory that was run or is reported.

    Accuracies are mean ± standard deviation over the seeds, differences are paired by seed, with
    half their 95 % confidence interval.
    """
    frame = usual(frame_of(rows))
    frame = frame[frame["variant"] == frame["method"]]  # with the usual options only
    found, gaps = summarized(frame, [*PLACE, "method"]), gaps_of(frame, published.ours)
    reported = {
        (stream, size, name): text for (stream, name, size), text in published.figures.items()
    }
    body, last = [], ""
    for key in sorted({*found.index, *reported}, key=in_our_order):
        stream, size, method = key
        what = "" if stream == last else title_with_setting(frame, stream)
        gap = gap_text(gaps.loc[key]) if key in gaps.index else ""
        seeds = f"{found['count'].get(key, 0):.0f}"
        line = [what, str(size), METHODS[method].label, accuracy_text(found, key), seeds]
        body.append([*line, reported.get(key, ""), gap])
        last = stream
    header = ["stream", "exemplars", "memory", "accuracy", "seeds", "published"]
    lines = table([*header, f"{METHODS[published.ours].label} minus it"], body, aligned=False)
    return f"{lines}\n\nPublished: {published.source}."


def gaps_of(frame: Frame, ours: str) -> Frame:
    """Our method minus each other one: stream, memory size and method → mean, half, count."""
    others = frame[frame["method"] != ours].groupby("method")
    pairs = [paired(frame[frame["method"] == ours], own) for _, own in others]
    return tested(pd.concat(pairs), [*PLACE, "method_other"]) if pairs else frame.head(0)


def title_with_setting(frame: Frame, stream: str) -> str:
    """A stream, and how it was trained on where that is not as in the paper."""
    own = frame[frame["stream"] == stream]
    return ", ".join([title_of(stream), *(setting_text(own) if len(own) else [])])


def accuracy_text(found: Frame, key: tuple[str, int, str]) -> str:
    """Mean and, of several seeds, standard deviation."""
    if key not in found.index:
        return "not run"
    mean, std, count = found.loc[key]
    return f"{mean:.3f} ± {std:.3f}" if count > 1 else f"{mean:.3f}"


def in_our_order(key: tuple[str, int, str]) -> tuple[int, str, int, int]:
    """Streams and methods as the registries have them, a user's own streams last."""
    (stream, size, method), names = key, list(STREAMS)
    place = names.index(stream) if stream in names else len(names)
    return place, stream, size, list(METHODS).index(method)
