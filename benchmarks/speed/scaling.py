"""Measure how the selection grows, a stream of a million examples, and 20,000 picks at once.

    python -m benchmarks scaling
    python -m benchmarks scaling --part growth --sizes 100 1000 --limit 60
    python -m benchmarks scaling --part none --csv benchmarks/results/scaling.csv --output docs

Rows go to a CSV file, each measured in a process of its own; rows that are there already are not
measured again, so the command can be interrupted and taken up at any time. Afterwards, from the
file alone, it prints the rows as a table and draws the growth on logarithmic axes; ``scaling.md``
in the folder of the figure gets the table between its marks. ``--part none`` measures nothing.

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
from benchmarks.options import add_data_root, folder, natural, positive
from benchmarks.report import pages
from benchmarks.speed.scaling_cases import (
    EMBEDDINGS,
    MEASUREMENTS,
    PARTS,
    SOURCES,
    STOPPED,
    Case,
    finished,
    growth,
    results_file,
)

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""What NumPy's matrix products, and so scikit-learn, go by."""
DIM_STEP = 40
"""Four draws times ten classes: what one hidden unit more adds to D."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add = parser.add_argument
    add("--part", nargs="+", choices=(*PARTS, "none"), default=list(PARTS), help="what to measure")
    add("--source", choices=SOURCES, default="fashion-mnist", help="data of growth and large")
    add("--sizes", type=positive, nargs="+", default=[100, 300, 1000, 3000, 6000], help="growth: n")
    add("--atoms", type=positive, nargs="+", default=[6000, 12000, 24000, 48000], help="growth: N")
    add("--dims", type=positive, nargs="+", default=[2000, 4000, 8000], help="growth: D")
    add("--limit", type=float, default=240.0, help="seconds for a row of the growth")
    add("--stream-examples", type=positive, default=1_000_000, help="stream: N")
    add("--stream-size", type=positive, default=5000, help="stream: n")
    add("--stream-dim", type=positive, default=8000, help="stream: D")
    add("--stream-embeddings", nargs="+", choices=EMBEDDINGS, default=["last-layer"])
    add(
        "--chunks",
        type=natural,
        nargs="+",
        default=[0],
        help="stream: chunk sizes; 0 is the buffer's",
    )
    add("--large-atoms", type=positive, default=60_000, help="large: N")
    add("--large-sizes", type=positive, nargs="+", default=[5000, 10_000, 20_000], help="large: n")
    add("--large-dim", type=positive, default=25_600, help="large: D")
    add("--large-modes", nargs="+", choices=("exact", "fast"), default=["fast"])
    add("--threads", type=positive, default=2, help="threads of every method")
    add_data_root(parser)
    add("--csv", type=Path, default=RESULTS / "scaling.csv", help="file of the rows")
    add("--output", type=folder, default=RESULTS, help="folder of the figure")


def run(args: argparse.Namespace) -> int:
    """Measure what is missing, then report."""
    cases = list(planned(args))
    check(args, cases)
    file = results_file(args.csv)
    for case in cases:
        if case.key not in file.finished() and not measure(case, file, args):
            return 1
    report(file.rows(), args.output)
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
    if not args.limit > 0:
        raise UsageError(f"--limit must be above 0 but is {args.limit}")
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


def in_a_process(case: Case, limit: float | None, data_root: Path | None) -> dict[str, object]:
    """What the process measured, or that it was stopped, or that it failed."""
    command = [sys.executable, "-m", "benchmarks.speed.scaling_child", json.dumps(asdict(case))]
    try:
        done = subprocess.run(
            command + ([str(data_root)] if data_root else []),
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


def report(rows: list[Row], output: Path) -> None:
    """The figure, and the rows as a table."""
    from benchmarks.speed import scaling_figure

    if not finished(rows, "growth"):
        print("no rows of the growth to draw")
        return
    for path in scaling_figure.draw(rows, output):
        print(path)
    text = table(rows)
    print(text)
    page = output / "scaling.md"
    if page.exists():
        pages.replace_part(page, "measured", text)


def table(rows: list[Row]) -> str:
    """Time and memory of every selection that came to an end, as Markdown."""
    header = ["selection", "N", "D", "n", "seconds", "peak GB", "extra GB", "residual"]
    body = [
        [
            f"{row['part']}, {row['method']}",
            *(f"{int(row[column]):,}" for column in ("examples", "dim", "size")),
            f"{float(row['seconds']):.1f}",
            f"{float(row['peak_gb']):.2f}",
            f"{float(row['extra_gb']):.2f}",
            f"{float(row['residual']):.4f}",
        ]
        for part in PARTS
        for row in finished(rows, part)
    ]
    return pages.table(header, body)
