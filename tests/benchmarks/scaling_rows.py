"""Invented rows of the scaling benchmark, for tests of what is made from them."""

from __future__ import annotations

from dataclasses import asdict

from benchmarks.grid.rows import as_text
from benchmarks.speed.scaling import CONFIGURATION, FINISHED, MEASUREMENTS, STOPPED, Case


def row(case: Case, *, stopped: bool = False) -> dict[str, str]:
    """A row as it is read from a file."""
    slower = 6 if case.method == "scikit-learn" else 1
    measured = {
        "status": STOPPED if stopped else FINISHED,
        "seconds": slower * case.size * case.examples * case.dim * 1e-10,
        "embedding_seconds": 1.0,
        "peak_gb": 5.0,
        "extra_gb": case.size * case.dim * 8e-9,
        "dictionary_gb": case.examples * case.dim * 4e-9,
        "picked": case.size,
        "residual": 0.01,
        "versions": "",
        "device": "",
    }
    if stopped:
        measured = dict.fromkeys(MEASUREMENTS) | {"status": STOPPED}
    values = asdict(case) | measured
    return {column: as_text(values[column]) for column in CONFIGURATION + MEASUREMENTS}


def rows() -> list[dict[str, str]]:
    """A growth in which scikit-learn was stopped, a stream and a large selection."""
    shapes = [(24_000, 8000, n) for n in (100, 300, 1000, 3000, 6000)]
    shapes += [(count, 8000, 1000) for count in (6000, 12_000, 48_000)]
    found = [
        row(
            Case("growth", method, "synthetic", "last-layer", *shape, 0, 2),
            stopped=method == "scikit-learn" and shape[2] >= 3000,
        )
        for shape in shapes
        for method in ("scikit-learn", "exact", "fast")
    ]
    shape = ("synthetic", "last-layer", 1_000_000, 8000, 5000, 0, 2)
    found.append(row(Case("stream", "fast", *shape)))
    for size in (5000, 10_000, 20_000):
        shape = ("fashion-mnist", "last-layer", 60_000, 25_600, size, 0, 2)
        found.append(row(Case("large", "fast", *shape)))
    return found
