"""What was run, as a Markdown table, from the rows themselves; no torch."""

from __future__ import annotations

from pathlib import Path

from benchmarks.grid.experiments import EXPERIMENTS
from benchmarks.grid.rows import ResultsFile
from benchmarks.report.averages import SETTING, Frame, frame_of, setting_text
from benchmarks.report.pages import table
from benchmarks.report.plots import in_order, label_of
from benchmarks.streams.registry import STREAMS, title_of

HEADER = ["rows", "stream", "training", "memories", "sizes (seeds)"]


def markdown(results: Path) -> str:
    """A line for each file, stream, setting and set of memories with equal sizes and seeds."""
    names = [*EXPERIMENTS, *(f"ablations/{name}" for name in EXPERIMENTS)]
    body = [line for name in names for line in lines(name, results / f"{name}.csv")]
    return table(HEADER, body, aligned=False)


def lines(name: str, path: Path) -> list[list[str]]:
    """The lines of one file, of streams that we know; none if it has no accuracies."""
    rows = [row for row in ResultsFile(path).rows() if row["stream"] in STREAMS]
    if not any(row["accuracy"] for row in rows):
        return []
    found = []
    for (stream, *_), own in frame_of(rows).groupby(["stream", *SETTING], sort=False):
        training = ", ".join(setting_text(own)) or "as in the paper"
        memories: dict[str, list[str]] = {}
        for variant in in_order(own["variant"].unique()):
            memories.setdefault(sizes(own[own["variant"] == variant]), []).append(label_of(variant))
        found += [
            [f"`{name}`", title_of(stream), training, "; ".join(labels), text]
            for text, labels in memories.items()
        ]
    return found


def sizes(frame: Frame) -> str:
    """Memory sizes by the number of their seeds."""
    seeds = frame.groupby("memory_size")["seed"].nunique()
    counts = seeds.groupby(seeds, sort=False).groups
    return "; ".join(f"{', '.join(map(str, own))} ({count})" for count, own in counts.items())
