"""Compare memories on bundled digits in a minute, offline; prints a table and a figure's path.

    python -m benchmarks demo

Two streams of scikit-learn's digits: two new classes at a time, and all classes sorted by one
informative pixel. Each memory sees the stream once; then a model is trained from scratch on what it
kept (GDumb) and tested on the whole test set. Training is as in the paper for tables (MLP, Adam,
200 epochs); gradient matching is as the library does it by default. The methods differ in nothing
but what they keep, and in gradient matching's weights, which are part of the method.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from benchmarks.grid.cells import make_cells, make_groups
from benchmarks.grid.experiments import EXPERIMENTS
from benchmarks.grid.rows import RESULTS, ResultsFile
from benchmarks.options import folder, positive


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m benchmarks demo``."""
    parser.add_argument("--seeds", type=positive, default=5, help="how many runs to average")
    parser.add_argument("--epochs", type=positive, default=200, help="per training")
    parser.add_argument("--jobs", type=positive, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--output", type=folder, default=RESULTS / "demo", help="folder")


def run(args: argparse.Namespace) -> int:
    """Run the comparison afresh, print it and draw it."""
    from benchmarks.grid.workers import GridStopped, run_grid
    from benchmarks.report import figures, tables

    demo = EXPERIMENTS["demo"]
    grid = (demo.streams, demo.methods, demo.memory_sizes, range(args.seeds))
    cells = make_cells("demo", *grid, epochs=args.epochs)
    file = ResultsFile(args.output / "demo.csv")
    file.path.unlink(missing_ok=True)  # a demonstration shows a run, not the rows of an old one
    start = time.monotonic()
    try:
        run_grid(make_groups(cells), jobs=args.jobs, threads=1, results=args.output, root=None)
    except GridStopped as error:
        print(f"python -m benchmarks demo: stopped: {error}", file=sys.stderr)
        return 1
    print(f"{len(cells)} memories in {time.monotonic() - start:.0f} seconds", file=sys.stderr)
    rows = file.rows()
    print(tables.markdown("demo", rows))
    print(f"Figure: {figures.draw('demo', rows, args.output)[0].resolve()}")
    return 0
