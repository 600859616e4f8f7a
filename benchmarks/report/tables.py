"""Result rows as Markdown: accuracies, and differences to reservoir sampling paired by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.grid.cells import EXPERIMENTS
from benchmarks.grid.rows import numbers
from benchmarks.report.averages import (
    Row,
    Summary,
    curves,
    streams,
    summarize,
    trajectories,
    variant,
    varying_options,
)
from benchmarks.report.plots import label_of, style_of
from benchmarks.streams.registry import title_of

REFERENCE = "reservoir"


def markdown(experiment: str, rows: Sequence[Row]) -> str:
    """Everything the rows of one experiment say, stream by stream."""
    parts = [f"# {experiment}: {EXPERIMENTS[experiment].figure}"]
    for stream in streams(rows):
        own = [row for row in rows if row["stream"] == stream]
        parts += [f"## {title_of(stream)}", setting(own)]
        if EXPERIMENTS[experiment].paradigm == "count":
            parts.append(class_table(own[0]))
        elif EXPERIMENTS[experiment].per_experience:
            parts.append(trajectory_table(rows, stream))
        else:
            parts.append(accuracy_table(curves(rows, stream)))
            if differences := paired_differences(own):
                parts += ["Difference to reservoir, paired by seed:", plain_table(differences)]
    return "\n\n".join(parts) + "\n"


def setting(rows: Sequence[Row]) -> str:
    """What all the rows of a stream have in common, in one line."""
    seeds = sorted({int(row["seed"]) for row in rows})
    common = [
        f"{option.replace('_', ' ')} {rows[0][option]}"
        for option in ("model", "epochs", "batch_size", "learning_rate", "train_fraction")
        if len({row[option] for row in rows}) == 1
    ]
    return f"{', '.join(common)}; seeds {', '.join(map(str, seeds))}; mean ± standard deviation."


def accuracy_table(lines: Mapping[str, Mapping[int, Summary]]) -> str:
    """One line per variant, one column per memory size, the best of each column in bold."""
    sizes = sorted({size for line in lines.values() for size in line})
    best = {
        size: max(round(line[size].mean, 3) for line in lines.values() if size in line)
        for size in sizes
    }
    body = []
    for name in in_order(lines):
        cells = []
        for size in sizes:
            value = lines[name].get(size)
            text = str(value) if value else ""
            cells.append(f"**{text}**" if value and round(value.mean, 3) == best[size] else text)
        body.append([label_of(name), *cells])
    return table(["memory", *map(str, sizes)], body)


def plain_table(lines: Mapping[str, Mapping[int, str]]) -> str:
    """One line per variant, one column per memory size."""
    sizes = sorted({size for line in lines.values() for size in line})
    body = [[label_of(name), *(lines[name].get(s, "") for s in sizes)] for name in in_order(lines)]
    return table(["memory", *map(str, sizes)], body)


def paired_differences(rows: Sequence[Row]) -> dict[str, dict[int, str]]:
    """Variant → memory size → mean ± deviation of (accuracy − reservoir's of the same seed)."""
    reference = {
        (row["memory_size"], row["seed"], row["epochs"], row["train_fraction"]): float(
            row["accuracy"]
        )
        for row in rows
        if row["method"] == REFERENCE and row["accuracy"]
    }
    options = varying_options(rows)
    gaps: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        pair = (row["memory_size"], row["seed"], row["epochs"], row["train_fraction"])
        if row["method"] != REFERENCE and row["accuracy"] and pair in reference:
            sizes = gaps.setdefault(variant(row, options), {})
            gap = float(row["accuracy"]) - reference[pair]
            sizes.setdefault(int(row["memory_size"]), []).append(gap)
    return {
        name: {size: signed(summarize(values)) for size, values in sizes.items()}
        for name, sizes in gaps.items()
    }


def signed(summary: Summary) -> str:
    """A difference with its sign, its deviation and the number of pairs."""
    return f"{summary.mean:+.3f} ± {summary.std:.3f} (n={summary.count})"


def trajectory_table(rows: Sequence[Row], stream: str) -> str:
    """One line per variant, one column per experience."""
    lines = trajectories(rows, stream)
    steps = range(1, 1 + max(map(len, lines.values())))
    body = [[label_of(name), *map(str, lines[name])] for name in in_order(lines)]
    return table(["after experience", *map(str, steps)], body)


def class_table(row: Row) -> str:
    """One line per experience, one column per class."""
    counts = [numbers(part) for part in row["class_counts_per_experience"].split("|")]
    header = ["experience", *(f"class {label}" for label in range(len(counts[0])))]
    body = [[str(i), *(f"{count:.0f}" for count in line)] for i, line in enumerate(counts, 1)]
    return table(header, body)


def in_order(variants: Mapping[str, object]) -> list[str]:
    """Variants in the order of the figures' legends."""
    return sorted(variants, key=lambda name: style_of(name).order)


def table(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Markdown text with aligned columns."""
    lines = [list(header), *map(list, body)]
    widths = [max(len(line[i]) for line in lines if i < len(line)) for i in range(len(header))]
    padded = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |"  # noqa: B905
        for line in lines
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([padded[0], rule, *padded[1:]])
