"""List rows of older settings that newer rows make needless: a Markdown table.

    python -m benchmarks superseded                       # of the published rows
    python -m benchmarks superseded --results results

Nothing is removed. Listed, too, are float32 rows beside bfloat16 ones, although the comparison of
the two precisions (`python -m benchmarks claims`) needs some, and rows of the reservoir with which
rows that have no newer version are paired.
"""

from __future__ import annotations

import argparse

from benchmarks.grid.experiments import EXPERIMENTS
from benchmarks.grid.rows import PUBLISHED, ResultsFile
from benchmarks.options import rows_folder
from benchmarks.report.pages import table
from benchmarks.report.superseded import superseded


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m benchmarks superseded``."""
    parser.add_argument(
        "--results", type=rows_folder, default=PUBLISHED, help="folder of the CSV files"
    )


def run(args: argparse.Namespace) -> int:
    """Print a line for each memory with superseded rows."""
    body: list[list[str]] = []
    for name in EXPERIMENTS:
        rows = ResultsFile(args.results / f"{name}.csv").rows()
        found = superseded(rows)
        body += [[str(cell) for cell in line] for line in found.itertuples(index=False)]
    header = ["experiment", "stream", "memory", "size", "seeds", "old setting", "newer one"]
    print(table(header, body, aligned=False))
    return 0
