"""Hold the paper's claims against the committed rows: a Markdown table, claim by claim.

    python -m benchmarks claims                                          # print it
    python -m benchmarks claims --update README.md benchmarks/README.md  # and put it into pages

A page has marks around the place of a table: ``<!-- claims -->`` and ``<!-- end of claims -->``;
for the verdicts alone ``verdicts`` instead of ``claims``, for what was run ``runs``, for many
memories side by side ``rivals``, beside the figures of other authors ``published``.

Differences are paired by seed and tested; half a point of accuracy is of no interest. A claim is
*reproduced* if it holds on every stream, *partly* if on some, *not reproduced* if on none.
Nothing is trained, torch is not imported.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.files import write_whole
from benchmarks.grid.rows import PUBLISHED
from benchmarks.options import rows_folder
from benchmarks.report.claims import markdown, updated


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m benchmarks claims``."""
    parser.add_argument(
        "--results", type=rows_folder, default=PUBLISHED, help="folder of the CSV files"
    )
    parser.add_argument(
        "--update", type=Path, nargs="+", default=[], metavar="PAGE", help="put it into these"
    )


def run(args: argparse.Namespace) -> int:
    """Print the tables; update pages if asked to."""
    texts = {page: updated(page, args.results) for page in args.update}
    for page, text in texts.items():
        write_whole(page, text)
    print(markdown(args.results))
    return 0
