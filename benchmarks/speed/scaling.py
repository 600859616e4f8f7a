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
- large: one selection (weights ≥ 0) out of structured last-layer gradients of a wide MLP.

Letters: N examples, D dimensions, n picks.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from benchmarks import UsageError
from benchmarks.grid.rows import RESULTS, Key, ResultsFile, Row, key
from benchmarks.options import add_data_root, folder, positive
from benchmarks.report import pages

PARTS = ("growth", "stream", "large")
SCIKIT_LEARN = "scikit-learn"
METHODS = (SCIKIT_LEARN, "exact", "fast")
SOURCES = ("fashion-mnist", "synthetic")
FINISHED, STOPPED = "finished", "stopped"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""What NumPy's matrix products, and so scikit-learn, go by."""
DIM_STEP = 40
"""Four draws times ten classes: what one hidden unit more adds to D."""


@dataclass(frozen=True)
class Case:
    """One row to measure: a dense dictionary (growth), a buffer (stream), a structured one (large).

    :param chunk: new examples at once, for the stream; 0 is what the buffer takes by itself.
    :param threads: of torch and of scikit-learn's BLAS.
    """

    part: str
    method: str
    source: str
    embedding: str
    examples: int
    dim: int
    size: int
    chunk: int
    threads: int

    @property
    def key(self) -> Key:
        """As it is written in the file."""
        return key(asdict(self), CONFIGURATION)

    def __str__(self) -> str:
        return f"{self.part}: {self.method}, N={self.examples}, D={self.dim}, n={self.size}"


CONFIGURATION = tuple(field.name for field in fields(Case))
MEASUREMENTS = (
    *("status", "seconds", "embedding_seconds", "peak_gb", "extra_gb", "dictionary_gb", "picked"),
    *("residual", "versions", "device"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add = parser.add_argument
    shape = {"type": positive, "nargs": 3, "metavar": ("N", "D", "n")}
    add("--part", nargs="+", choices=(*PARTS, "none"), default=list(PARTS), help="what to measure")
    add("--source", choices=SOURCES, default="fashion-mnist", help="data of growth and large")
    add("--sizes", type=positive, nargs="+", default=[100, 300, 1000, 3000, 6000], help="growth")
    add("--atoms", type=positive, nargs="+", default=[6000, 12000, 24000, 48000], help="growth")
    add("--dims", type=positive, nargs="+", default=[2000, 4000, 8000], help="growth")
    add("--limit", type=positive, default=240, help="seconds for a row of the growth")
    add("--stream", default=[1_000_000, 8000, 5000], **shape)  # type: ignore[arg-type]
    add("--large", default=[60_000, 25_600, 20_000], **shape)  # type: ignore[arg-type]
    add("--threads", type=positive, default=2, help="threads of every method")
    add("--csv", type=Path, default=RESULTS / "scaling.csv", help="file of the rows")
    add("--output", type=folder, default=RESULTS, help="folder of the figure")
    add_data_root(parser)


def run(args: argparse.Namespace) -> int:
    """Measure what is missing, then report."""
    file = ResultsFile(args.csv, CONFIGURATION, MEASUREMENTS)
    cases = list(planned(args))
    for case in cases:
        if case.dim % DIM_STEP or case.dim < 2 * DIM_STEP:
            raise UsageError(f"D must be a multiple of {DIM_STEP} from 80 on but is {case.dim}")
        if case.size > case.examples:
            raise UsageError(f"{case.size} picks out of {case.examples} examples are too many")
    for case in cases:
        if case.key not in file.finished() and not measure(case, file, args):
            return 1
    report(file.rows(), args.output)
    return 0


def planned(args: argparse.Namespace) -> Iterator[Case]:
    """The rows that the options ask for; of the growth the quick ones first."""
    if "growth" in args.part:
        # n grows at the median N and the largest D, N and D at the median n.
        atoms, dim, size = middle(args.atoms), max(args.dims), middle(args.sizes)
        shapes = [(atoms, dim, n) for n in sorted(args.sizes)]
        shapes += [(count, dim, size) for count in sorted(args.atoms)]
        shapes += [(atoms, d, size) for d in sorted(args.dims)]
        for shape in dict.fromkeys(shapes):
            for method in METHODS if shape[2] <= shape[0] else ():
                yield Case("growth", method, args.source, "last-layer", *shape, 0, args.threads)
    for part, source in (("stream", "synthetic"), ("large", args.source)):
        if part in args.part:
            atoms, dim, size = vars(args)[part]
            yield Case(part, "fast", source, "last-layer", atoms, dim, size, 0, args.threads)


def middle(values: list[int]) -> int:
    """The median, the larger one of two."""
    return sorted(values)[len(values) // 2]


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
    return True


def hopeless(case: Case, rows: list[Row]) -> bool:
    """Whether the same method was stopped at a smaller size already."""
    return any(
        row["status"] == STOPPED
        and replace(case, examples=int(row["examples"]), size=int(row["size"])).key
        == key(row, CONFIGURATION)
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


def finished(rows: list[Row], part: str) -> list[Row]:
    """The rows of one part that came to an end."""
    return [row for row in rows if row["part"] == part and row["status"] == FINISHED]


def table(rows: list[Row]) -> str:
    """Time and memory of every selection that came to an end, as Markdown."""
    columns = {"seconds": ".1f", "peak_gb": ".2f", "extra_gb": ".2f", "residual": ".4f"}
    body = [
        [
            f"{row['part']}, {row['method']}",
            *(f"{int(row[column]):,}" for column in ("examples", "dim", "size")),
            *(format(float(row[column]), spec) for column, spec in columns.items()),
        ]
        for part in PARTS
        for row in finished(rows, part)
    ]
    header = ["selection", "N", "D", "n", "seconds", "peak GB", "extra GB", "residual"]
    return pages.table(header, body)
