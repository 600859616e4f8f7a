"""Draw the paper's figures and write Markdown tables, from the CSV files alone.

    python -m benchmarks figures
    python -m benchmarks figures --results benchmarks/results --output docs  # the published rows

Nothing is trained and torch is not imported. Each experiment's rows become one figure (PNG and SVG)
and a file of Markdown tables, in the folder ``tables`` beside the rows.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import UsageError
from benchmarks.files import write_whole
from benchmarks.grid.experiments import EXPERIMENTS
from benchmarks.grid.rows import PUBLISHED, RESULTS, ResultsFile
from benchmarks.options import folder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m benchmarks figures``."""
    parser.add_argument(
        "experiments",
        nargs="*",
        metavar="EXPERIMENT",
        help="which; all with rows if none",
    )
    parser.add_argument("--results", type=folder, default=RESULTS, help="folder of the CSV files")
    parser.add_argument("--output", type=folder, help="folder of the figures; else RESULTS/figures")


def run(args: argparse.Namespace) -> int:
    """Draw every experiment that has rows."""
    from benchmarks.report import figures, tables

    files = {name: [args.results / f"{name}.csv"] for name in EXPERIMENTS}
    files[figures.DRAWS][:0] = [*files["gdumb"], args.results / "ablations/gdumb.csv"]
    names = args.experiments or [name for name in files if any(map(Path.exists, files[name][-2:]))]
    if not names:
        raise UsageError(
            f"{args.results} holds no results: run `python -m benchmarks run gdumb` first, "
            f"or draw the published rows with --results {PUBLISHED}"
        )
    output = args.output or args.results / "figures"
    for name in names:
        if name not in files:
            raise UsageError(f"unknown experiment {name!r}: choose from {', '.join(files)}")
        rows = [row for path in files[name] for row in ResultsFile(path).rows()]
        if not rows:
            raise UsageError(
                f"{files[name][-1]} holds no rows: run `python -m benchmarks run {name}` first"
            )
        for path in figures.draw(name, rows, output):
            print(path)
        if own := [row for row in rows if row["experiment"] == name]:
            table = args.results / "tables" / f"{name}.md"
            write_whole(table, tables.markdown(name, own))
            print(table)
    print(f"drawn: {', '.join(names)}", file=sys.stderr)
    return 0
