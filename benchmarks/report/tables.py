"""Result rows as Markdown: accuracies, and differences to reservoir sampling paired by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.grid.experiments import EXPERIMENTS
from benchmarks.report.averages import (
    SETTING,
    Frame,
    Row,
    class_counts,
    curves,
    each_experience,
    frame_of,
    streams,
    trajectories,
    usual,
)
from benchmarks.report.contrasts import to_reference
from benchmarks.report.pages import table
from benchmarks.report.plots import in_order, label_of
from benchmarks.report.published import beside
from benchmarks.streams.registry import title_of


def markdown(experiment: str, rows: Sequence[Row]) -> str:
    """Everything the rows of one experiment say, stream by stream."""
    parts = [f"# {experiment}: {EXPERIMENTS[experiment].figure}"]
    for stream in streams(rows):
        own = [row for row in rows if row["stream"] == stream]
        parts += [f"## {title_of(stream)}", setting(own)]
        if EXPERIMENTS[experiment].paradigm == "count":
            parts.append(class_table(own[0]))
        elif EXPERIMENTS[experiment].per_experience:
            lines = trajectories(rows, stream)
            parts.append(plain_table(texts(lines), "after experience"))
            parts += differences(each_experience(own), "experience", "after experience")
        else:
            parts.append(accuracy_table(curves(rows, stream)))
            parts += differences(usual(frame_of(own)), "memory_size", "memory")
    if (known := EXPERIMENTS[experiment].published) is not None:
        parts.append(beside(rows, known))
    return "\n\n".join(parts) + "\n"


def setting(rows: Sequence[Row]) -> str:
    """What all the rows of a stream that are shown have in common, in one line."""
    if any(row["accuracy"] for row in rows):
        rows = usual(frame_of(rows)).to_dict("records")
    seeds = sorted({int(row["seed"]) for row in rows})
    common = [
        f"{option.replace('_', ' ')} {rows[0][option]}"
        for option in SETTING
        if len({row[option] for row in rows}) == 1
    ]
    return f"{', '.join(common)}; seeds {', '.join(map(str, seeds))}; mean ± standard deviation."


Texts = dict[str, dict[int, str]]


def texts(lines: Any) -> Texts:
    """Variant → memory size or experience → mean ± deviation over the seeds, and how many these
    are if other variants have more."""
    found: Texts = {}
    most = lines["count"].groupby(level=1).max()
    for (name, column), mean, std, count in lines.itertuples():
        spread = f" ± {std:.3f}" if count > 1 else ""
        fewer = f" (n={count})" if count < most[column] else ""
        found.setdefault(name, {})[column] = f"{mean:.3f}{spread}{fewer}"
    return found


def accuracy_table(lines: Any) -> str:
    """One line per variant, one column per memory size, in bold the best of those that have the
    most seeds there."""
    shown, counts = texts(lines), lines["count"].groupby("memory_size")
    whole = lines["mean"][lines["count"] == counts.transform("max")].round(3)
    best = whole.groupby("memory_size").max()
    for (name, size), mean in whole.items():
        if mean == best[size]:
            shown[name][size] = f"**{shown[name][size]}**"
    return plain_table(shown)


def plain_table(lines: Mapping[str, Mapping[int, str]], corner: str = "memory") -> str:
    """One line per variant, one column per memory size or experience."""
    columns = sorted({column for line in lines.values() for column in line})
    body = [[label_of(n), *(lines[n].get(c, "") for c in columns)] for n in in_order(lines)]
    return table([corner, *map(str, columns)], body)


def differences(frame: Frame, position: str, corner: str) -> list[str]:
    """Mean ± deviation of (accuracy − reservoir's of the same seed), if both were run."""
    found: Texts = {}
    for (_, name, place), gap in to_reference(frame, position).iterrows():
        text = f"{gap['mean']:+.3f} ± {gap['std']:.3f} (n={gap['count']:.0f})"
        found.setdefault(name, {})[place] = text
    title = "Difference to reservoir, paired by seed:"
    return [title, plain_table(found, corner)] if found else []


def class_table(row: Row) -> str:
    """One line per experience, one column per class."""
    counts = class_counts(row)
    body = [[str(i), *(f"{count:.0f}" for count in line)] for i, *line in counts.itertuples()]
    return table(["experience", *counts.columns], body)
