"""Result rows: one CSV file per experiment, one row per finished cell; no torch in here.

Appending is safe against ``kill -9``, full disks and other processes: a row is a whole line, added
under a file lock, and a line that a crash cut short is dropped by the next writer.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from filelock import FileLock

from benchmarks import UsageError
from benchmarks.files import append_whole, write_whole

PUBLISHED = Path(__file__).parents[1] / "results"
"""The committed rows. They are read; only ``--results`` or ``--csv`` can name them to write."""
RESULTS = Path("results")
"""Where runs of the user go by default."""

Row = dict[str, str]
Key = tuple[str, ...]


@dataclass(frozen=True)
class Cell:
    """The full configuration of one measurement; the fields are the CSV's first columns."""

    experiment: str
    stream: str
    method: str
    memory_size: int
    seed: int
    model: str
    epochs: int = 200
    batch_size: int = 100
    learning_rate: float = 1e-3
    train_fraction: float = 1.0
    draws: int = 4
    dim: int = 2000
    projection: str = "sparse"
    mode: str = "exact"
    weighted: bool = True
    precision: str = "float32"

    def row(self) -> dict[str, object]:
        """The configuration columns of the cell's row."""
        return asdict(self)

    def key(self) -> Key:
        """Identity of the cell in a results file."""
        return key(self.row())

    def describe(self) -> str:
        """The cell in words, for messages."""
        return (
            f"{self.experiment} / {self.stream} / {self.method} / "
            f"{self.memory_size} exemplars / seed {self.seed}"
        )


CONFIGURATION = tuple(field.name for field in fields(Cell))
"""What was run; these columns together identify a cell."""
MEASUREMENTS = (
    "accuracy",
    "accuracy_per_experience",
    "residual",
    "class_counts",
    "class_counts_per_experience",
    "wrong_labels",
    "wrong_weight",
    "embedding_seconds",
    "selection_seconds",
    "training_seconds",
    "versions",
    "device",
)
"""What came out; lists are joined by ";", lists of lists by "|"."""
COLUMNS = CONFIGURATION + MEASUREMENTS
NUMBERS = {"memory_size", "seed", "accuracy", "embedding_seconds", "selection_seconds"}
"""Columns that hold a number or nothing, by which broken files are recognised."""
LATER_COLUMNS = {"precision": "float32", "wrong_labels": "", "wrong_weight": ""}
"""Columns that older files do not have, and what their rows would say."""


def key(row: Mapping[str, object], columns: Sequence[str] = CONFIGURATION) -> Key:
    """Identity of a cell: its configuration as it is written in the file."""
    return tuple(as_text(row[column]) for column in columns)


def as_text(value: object) -> str:
    """A value as it is written: shortest exact numbers, ``;`` and ``|`` between list items."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        nested = any(isinstance(item, (list, tuple)) for item in value)
        return ("|" if nested else ";").join(as_text(item) for item in value)
    return "" if value is None else str(value)


def numbers(text: str) -> list[float]:
    """The inverse of :func:`as_text` for a flat list of numbers."""
    return [float(item) for item in text.split(";") if item]


def write_rows(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Replace a CSV file by these rows, which have the same columns."""
    write_whole(path, _lines(rows[0], *(map(as_text, row.values()) for row in rows)))


class ResultsFile:
    """The rows of one experiment.

    :param path: the CSV file; it and its folder are created by the first row.
    :param configuration: the columns that identify a row.
    :param measurements: the others.
    """

    def __init__(
        self,
        path: Path,
        configuration: tuple[str, ...] = CONFIGURATION,
        measurements: tuple[str, ...] = MEASUREMENTS,
    ) -> None:
        self.path = path
        self.configuration = configuration
        self.columns = configuration + measurements

    def rows(self) -> list[Row]:
        """All complete rows."""
        if not self.path.exists():
            return []
        try:
            text = self.path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise UsageError(f"{self.path} is no CSV file of rows: it is not UTF-8") from None
        complete = text[: text.rfind("\n") + 1]
        reader = csv.DictReader(io.StringIO(complete, newline=""))
        found = reader.fieldnames or ()
        missing = {
            c: LATER_COLUMNS[c] for c in self.columns if c not in found and c in LATER_COLUMNS
        }
        if complete and {*found, *missing} != {*self.columns}:
            raise UsageError(
                f"{self.path} has other columns than this version writes: move it away first"
            )
        rows = [{**row, **missing} for row in reader]
        self._require_numbers(rows)
        return rows

    def _require_numbers(self, rows: Sequence[Row]) -> None:
        for column in NUMBERS.intersection(self.columns):
            for line, row in enumerate(rows, start=2):
                try:
                    float(row[column] or 0)
                except (TypeError, ValueError):
                    raise UsageError(
                        f"{self.path}, line {line}: {column} must be a number but is "
                        f"{row[column]!r}; when files are put together, only the first header stays"
                    ) from None

    def finished(self) -> set[Key]:
        """Keys of the cells that have a row."""
        return {key(row, self.configuration) for row in self.rows()}

    def append(self, row: Mapping[str, object]) -> None:
        """Add one row, whole or not at all; a cell that has a row already is left alone."""
        if set(row) != set(self.columns):
            raise ValueError(f"a row must have the columns {self.columns} but has {tuple(row)}")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self.path.with_name(f".{self.path.name}.lock")):
            if key(row, self.configuration) in self.finished():
                return
            self._prepare()
            append_whole(self.path, _lines([as_text(row[column]) for column in self.columns]))

    def _prepare(self) -> None:
        """Leave a header of today's columns and complete lines only."""
        content = self.path.read_bytes() if self.path.exists() else b""
        if content.startswith(_lines(self.columns).encode()):
            os.truncate(self.path, content.rfind(b"\n") + 1)
        else:
            rows = ([row[column] for column in self.columns] for row in self.rows())
            write_whole(self.path, _lines(self.columns, *rows))


def _lines(*rows: Iterable[str]) -> str:
    """CSV text of the rows."""
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue()
