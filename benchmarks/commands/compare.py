"""Compare two memories of an experiment: differences in accuracy, paired by seed.

    python -m benchmarks compare rivals gmc herding
    python -m benchmarks compare imbalanced gmc-balanced cbrs --results results

A line for each stream, training and memory size that both have rows of, with the paper's options
(other numbers of draws, say, are left out); the training is named where it is not the paper's, and
what has most pairs comes first: the mean accuracies, the first minus the second with half its 95 %
confidence interval, the p value of a paired t-test over the seeds (not corrected for the number of
lines), and the number of seeds.
Nothing is trained, torch is not imported.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from benchmarks import UsageError
from benchmarks.grid.experiments import EXPERIMENTS
from benchmarks.grid.methods import METHODS
from benchmarks.grid.rows import PUBLISHED, ResultsFile
from benchmarks.options import rows_folder
from benchmarks.report.averages import SETTING, Row, frame_of, setting_text, streams
from benchmarks.report.contrasts import PLACE, gap_text, paired, tested
from benchmarks.report.pages import table
from benchmarks.streams.registry import title_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m benchmarks compare``."""
    parser.add_argument("experiment", choices=EXPERIMENTS, metavar="EXPERIMENT")
    for name, which in (("method", "first"), ("other", "second")):
        parser.add_argument(name, choices=METHODS, metavar=name.upper(), help=f"the {which} memory")
    parser.add_argument(
        "--results", type=rows_folder, default=PUBLISHED, help="folder of the CSV files"
    )


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    rows = ResultsFile(args.results / f"{args.experiment}.csv").rows()
    header = ["stream", "exemplars", *(METHODS[name].label for name in (args.method, args.other))]
    body = lines(rows, args.method, args.other) if rows else []
    if not body:
        raise UsageError(
            f"{args.experiment} has no rows of {args.method} and {args.other} "
            "with the same stream, memory size, seed and training"
        )
    print(table([*header, "difference", "p", "seeds"], body))
    return 0


def lines(rows: Sequence[Row], method: str, other: str) -> list[list[str]]:
    """What the table says of each stream, training and memory size."""
    frame = frame_of(rows)
    pairs = paired(*(frame[frame["variant"] == name] for name in (method, other)))
    body = []
    for stream in streams(rows):
        settings = pairs[pairs["stream"] == stream].groupby(SETTING, sort=False)
        for _, own in sorted(settings, key=lambda item: -len(item[1])):
            label = ", ".join([title_of(stream), *setting_text(own)])
            means = own.groupby(PLACE)[["accuracy", "accuracy_other"]].mean()
            for _, place in tested(own).join(means).reset_index().iterrows():
                body.append(
                    [
                        label,
                        str(place["memory_size"]),
                        *(f"{place[column]:.3f}" for column in means),
                        gap_text(place),
                        f"{place['p']:.2g}" if place["count"] > 1 else "",
                        str(place["count"]),
                    ]
                )
    return body
