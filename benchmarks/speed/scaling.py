"""Measure how the selection grows, a stream of a million examples, and 20,000 picks at once.

    python -m benchmarks scaling
    python -m benchmarks scaling --part growth --sizes 100 1000 --limit 60
    python -m benchmarks scaling --part none

Rows go to a CSV file, each measured in a process of its own; rows that are there already are not
measured again, so the command can be interrupted and taken up at any time. Afterwards, from the
file alone, it draws the growth on logarithmic axes, fits the cost model to the rows and prints its
constants, how well they meet the rows, and what they predict past these machines; ``scaling.md`` in
the same folder gets the same text between its markers. ``--part none`` measures nothing.

- growth: time and memory against n, N and D, exact, fast and scikit-learn (signed weights), from a
  dense dictionary of last-layer gradients of Fashion-MNIST, all atoms of unit length. A row that
  takes longer than ``--limit``, with making its dictionary, is stopped and noted as such.
- stream: features made on the fly, ten experiences, through a real embedding into the memory.
- large: one selection (weights ≥ 0) out of 60,000 structured last-layer gradients of a wide MLP.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks import UsageError
from benchmarks.grid.rows import RESULTS, ResultsFile, Row
from benchmarks.report import pages
from benchmarks.speed.scaling_cases import (
    EMBEDDINGS,
    MEASUREMENTS,
    PARTS,
    SOURCES,
    STOPPED,
    Case,
    growth,
    results_file,
)

DOCS = Path(__file__).parents[2] / "docs"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""What NumPy's matrix products, and so scikit-learn, go by."""
DIM_STEP = 40
"""Four draws times ten classes: what one hidden unit more adds to D."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add = parser.add_argument
    add("--part", nargs="+", choices=(*PARTS, "none"), default=list(PARTS), help="what to measure")
    add("--source", choices=SOURCES, default="fashion-mnist", help="data of growth and large")
    add("--sizes", type=int, nargs="+", default=[100, 300, 1000, 3000, 6000], help="growth: n")
    add("--atoms", type=int, nargs="+", default=[6000, 12000, 24000, 48000], help="growth: N")
    add("--dims", type=int, nargs="+", default=[2000, 4000, 8000], help="growth: D")
    add("--limit", type=float, default=240.0, help="seconds for a row of the growth")
    add("--stream-examples", type=int, default=1_000_000, help="stream: N")
    add("--stream-size", type=int, default=5000, help="stream: n")
    add("--stream-dim", type=int, default=8000, help="stream: D")
    add("--stream-embeddings", nargs="+", choices=EMBEDDINGS, default=["last-layer"])
    add("--chunks", type=int, nargs="+", default=[0], help="stream: chunk sizes; 0 is the buffer's")
    add("--large-atoms", type=int, default=60_000, help="large: N")
    add("--large-sizes", type=int, nargs="+", default=[5000, 10_000, 20_000], help="large: n")
    add("--large-dim", type=int, default=25_600, help="large: D")
    add("--large-modes", nargs="+", choices=("exact", "fast"), default=["fast"])
    add("--threads", type=int, default=2, help="threads of every method")
    add("--data-root", default=None, help="folder of the data sets")
    add("--csv", type=Path, default=RESULTS / "scaling.csv", help="file of the rows")
    add("--output", type=Path, default=DOCS, help="folder of the figure")


def run(args: argparse.Namespace) -> int:
    """Measure what is missing, then draw, fit and predict."""
    cases = list(planned(args))
    check(args, cases)
    file = results_file(args.csv)
    for case in cases:
        if case.key not in file.finished() and not measure(case, file, args):
            return 1
    report(file.rows(), args)
    return 0


def planned(args: argparse.Namespace) -> Iterator[Case]:
    """The rows that the options ask for."""
    if "growth" in args.part:
        yield from growth(
            source=args.source,
            sizes=args.sizes,
            examples=args.atoms,
            dims=args.dims,
            threads=args.threads,
        )
    if "stream" in args.part:
        shape = (args.stream_examples, args.stream_dim, args.stream_size)
        for embedding in args.stream_embeddings:
            for chunk in args.chunks:
                yield Case("stream", "fast", "synthetic", embedding, *shape, chunk, args.threads)
    if "large" in args.part:
        for mode in args.large_modes:
            for size in sorted(args.large_sizes):
                shape = (args.large_atoms, args.large_dim, size)
                yield Case("large", mode, args.source, "last-layer", *shape, 0, args.threads)


def check(args: argparse.Namespace, cases: list[Case]) -> None:
    """Refuse sizes that no row can have."""
    numbers = [*args.sizes, *args.atoms, args.threads, args.stream_size, *args.large_sizes]
    if min(numbers) < 1 or min(args.chunks) < 0 or not args.limit > 0:
        raise UsageError("sizes, numbers of atoms, threads and --limit must be positive")
    for dim in [*args.dims, args.stream_dim, args.large_dim]:
        if dim % DIM_STEP or dim < 2 * DIM_STEP:
            raise UsageError(f"dimensions must be multiples of {DIM_STEP} from 80 on, got {dim}")
    for case in cases:
        if case.size > case.examples:
            raise UsageError(f"{case.size} picks out of {case.examples} examples are too many")


def measure(case: Case, file: ResultsFile, args: argparse.Namespace) -> bool:
    """Run a case in a process of its own and append its row; whether that went well."""
    limit = args.limit if case.part == "growth" else None
    if limit is not None and hopeless(case, file.rows()):
        values: dict[str, object] = {"status": STOPPED}
    else:
        print(f"measuring {case} …", file=sys.stderr, flush=True)
        values = in_a_process(case, limit, args.data_root)
    if "status" not in values:
        print(f"{case}: {values['failure']}", file=sys.stderr)
        return False
    file.append(dict.fromkeys(MEASUREMENTS) | asdict(case) | values)
    print(f"{case}: {summary(values)}", flush=True)
    return True


def hopeless(case: Case, rows: list[Row]) -> bool:
    """Whether the same method was stopped at a smaller size already."""
    return any(
        row["status"] == STOPPED
        and replace(case, examples=int(row["examples"]), size=int(row["size"])).key
        == tuple(row[column] for column in asdict(case))
        and int(row["examples"]) <= case.examples
        and int(row["size"]) <= case.size
        for row in rows
    )


def in_a_process(case: Case, limit: float | None, data_root: str | None) -> dict[str, object]:
    """What the process measured, or that it was stopped, or that it failed."""
    command = [sys.executable, "-m", "benchmarks.speed.scaling_child", json.dumps(asdict(case))]
    try:
        done = subprocess.run(
            command + ([data_root] if data_root else []),
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **dict.fromkeys(THREADS, str(case.threads))},
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"status": STOPPED}
    if done.returncode:
        return {"failure": f"the process that measures it ended with {done.returncode}"}
    return dict(json.loads(done.stdout))


def summary(values: dict[str, object]) -> str:
    """One line about a measured row."""
    if values["status"] == STOPPED:
        return "stopped"
    text = "{seconds:.1f} s, peak {peak_gb:.2f} GB, {extra_gb:.2f} GB of it for the selection, "
    return (text + "{picked} picked, residual {residual:.4g}").format(**values)


def report(rows: list[Row], args: argparse.Namespace) -> None:
    """The figure, the cost model and its predictions."""
    from benchmarks.speed import cost_model, scaling_figure

    model = cost_model.fit(rows)
    if model is None:
        print("too few rows of the growth for a figure and a cost model")
        return
    for path in scaling_figure.draw(rows, model, args.output):
        print(path)
    text = cost_model.report(model, rows)
    print(text)
    refresh_page(args.output / "scaling.md", text)


def refresh_page(page: Path, text: str) -> None:
    """Put what was measured into the page, if there is one."""
    if not page.exists():
        return
    changed = pages.with_part(pages.read(page), "measured", text.rstrip())
    if changed is None:
        raise UsageError(
            f"{page} needs the lines <!-- measured --> and, below, <!-- end of measured -->"
        )
    page.write_text(changed, encoding="utf-8")
