"""What ``python -m benchmarks scaling`` measures, and the file of its rows; no torch in here.

Letters: N examples, D dimensions, n picks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from benchmarks.grid.rows import Key, ResultsFile, Row, key

PARTS = ("growth", "stream", "large")
SCIKIT_LEARN = "scikit-learn"
METHODS = (SCIKIT_LEARN, "exact", "fast")
SOURCES = ("fashion-mnist", "synthetic")
EMBEDDINGS = ("last-layer", "random-projection")


@dataclass(frozen=True)
class Case:
    """One row to measure, in a process of its own.

    :param part: "growth" (a dense dictionary), "stream" (a buffer fed by experiences) or "large"
        (a structured dictionary).
    :param method: "exact", "fast" or "scikit-learn".
    :param source: where the examples come from.
    :param embedding: how they are embedded.
    :param examples: N.
    :param dim: D.
    :param size: n.
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
    "status",
    "seconds",
    "embedding_seconds",
    "peak_gb",
    "extra_gb",
    "dictionary_gb",
    "picked",
    "residual",
    "versions",
    "device",
)
FINISHED, STOPPED = "finished", "stopped"


def results_file(path: Path) -> ResultsFile:
    """The rows measured so far."""
    return ResultsFile(path, CONFIGURATION, MEASUREMENTS)


def growth(
    *, source: str, sizes: list[int], examples: list[int], dims: list[int], threads: int
) -> Iterator[Case]:
    """n grows at the median N and the largest D, N and D at the median n; quick ones first."""
    atoms, dim, size = _middle(examples), max(dims), _middle(sizes)
    shapes = [(atoms, dim, n) for n in sorted(sizes)]
    shapes += [(count, dim, size) for count in sorted(examples)]
    shapes += [(atoms, d, size) for d in sorted(dims)]
    for count, d, n in dict.fromkeys(shapes):
        for method in METHODS:
            if n <= count:
                yield Case("growth", method, source, "last-layer", count, d, n, 0, threads)


def _middle(values: list[int]) -> int:
    return sorted(values)[len(values) // 2]


def finished(rows: list[Row], part: str) -> list[Row]:
    """The rows of one part that came to an end."""
    return [row for row in rows if row["part"] == part and row["status"] == FINISHED]
