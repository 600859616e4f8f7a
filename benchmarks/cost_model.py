"""What a selection costs: operations, memory and messages, fitted to measured rows; no torch.

Letters: N atoms, D dimensions, n picks, P ranks, M atoms of the pool, b picks on trial.

A round scores all atoms, lets newcomers into the pool, extends the basis by b picks and keeps some
of them. With r rounds, and k picks so far on average n/2:

- check: every atom times c columns, r·c·N·D multiplications: c is 32 in exact mode; 1 in fast
  mode, which is bound by the memory's speed and has a constant of its own. Shared by the ranks.
- basis: b picks three times against k vectors, newcomers once: r·(3b + M/2)·k·D. Not shared:
  every rank makes the same picks.
- refit: the n×n factor, its Gram matrix and a few Cholesky factors of it: n³ (weights ≥ 0), once.
- rounds: what each costs however small it is.

The seconds per multiplication are fitted, each term's constant ≥ 0, to the relative errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from benchmarks.results import Row
from benchmarks.scaling_cases import SCIKIT_LEARN, finished

PICKS_PER_ROUND = {"exact": 20, "fast": 47}
TRIAL = {"exact": 31, "fast": 47}
COLUMNS = {"exact": 32, "fast": 1}
POOL = {"exact": 512, "fast": 256}
TERMS = ("check, exact", "check, fast", "basis", "refit", "rounds")
FEWEST_ROWS = 6
WIRE_BYTES_PER_SECOND = 1.25e9
"""Ten gigabits per second."""


@dataclass(frozen=True)
class Shape:
    """A selection: its mode, N, D, n, and the ranks that share the atoms.

    :param numbers_per_atom: what the dictionary holds for an atom; D unless it is structured.
    """

    mode: str
    atoms: int
    dim: int
    size: int
    ranks: int = 1
    nonnegative: bool = False
    numbers_per_atom: int | None = None

    @classmethod
    def of(cls, row: Row) -> Shape:
        """The selection of a measured row of the parts "growth" and "large"."""
        atoms, dim = int(row["examples"]), int(row["dim"])
        large = row["part"] == "large"
        numbers = int(float(row["dictionary_gb"]) * 1e9 / 4 / atoms)
        return cls(row["method"], atoms, dim, int(row["size"]), 1, large, numbers)

    @property
    def sweeps(self) -> int:
        """Pursuits of the whole target, each of at most D picks."""
        return math.ceil(self.size / self.dim)

    @property
    def rounds(self) -> float:
        """Rounds of all sweeps."""
        return self.size / PICKS_PER_ROUND[self.mode]


def operations(shape: Shape) -> dict[str, float]:
    """Multiplications of each term; the rounds are only counted."""
    rounds, picked = shape.rounds, min(shape.size, shape.dim) / 2
    work = dict.fromkeys(TERMS, 0.0)
    check = rounds * COLUMNS[shape.mode] * shape.atoms * shape.dim / shape.ranks
    work[f"check, {shape.mode}"] = check
    work["basis"] = rounds * (3 * TRIAL[shape.mode] + POOL[shape.mode] / 2) * picked * shape.dim
    work["refit"] = float(shape.size) ** 3 if shape.nonnegative or shape.sweeps > 1 else 0.0
    work["rounds"] = rounds
    return work


def memory_bytes(shape: Shape) -> dict[str, float]:
    """Bytes that a rank holds, by what they are for."""
    numbers = shape.numbers_per_atom or shape.dim
    picked, pool = min(shape.size, shape.dim), POOL[shape.mode]
    factors = 2 * shape.size**2 / 2 if shape.nonnegative else picked**2 / 2
    return {
        "dictionary": 4.0 * shape.atoms / shape.ranks * numbers,
        "basis": 4.0 * picked * shape.dim,
        "factor": 8.0 * factors,
        "pool": 4.0 * pool * (1.5 * shape.dim + picked),
        "scores": 4.0 * shape.atoms / shape.ranks * 3 * (1 + COLUMNS[shape.mode]),
    }


def wire_bytes(shape: Shape) -> float:
    """Bytes that a rank receives in one round: the pool's new rows, and small reductions."""
    newcomers = POOL[shape.mode] / 2
    candidates = 12.0 * POOL[shape.mode] * shape.ranks
    verdicts = 12.0 * TRIAL[shape.mode] * shape.ranks
    correlations = 4.0 * min(shape.size, shape.dim) / 2
    return newcomers * shape.dim * 4 + candidates + verdicts + correlations


@dataclass(frozen=True)
class CostModel:
    """Seconds per multiplication of each term, and per round.

    :param errors: predicted over measured, for each of the rows that were fitted.
    """

    constants: dict[str, float]
    errors: tuple[float, ...]

    def seconds(self, shape: Shape) -> dict[str, float]:
        """Seconds of each term."""
        work = operations(shape)
        return {term: work[term] * self.constants[term] for term in TERMS}


def fit(rows: Sequence[Row]) -> CostModel | None:
    """Fit the constants to the rows of one selection each; None if there are too few."""
    usable = [row for part in ("growth", "large") for row in finished(list(rows), part)]
    usable = [row for row in usable if row["method"] != SCIKIT_LEARN]
    if len(usable) < FEWEST_ROWS:
        return None
    seconds = np.array([float(row["seconds"]) for row in usable])
    work = np.array([list(operations(Shape.of(row)).values()) for row in usable])
    relative = work / seconds[:, None]
    scale = np.maximum(relative.max(axis=0), 1e-300)
    solution = nnls(relative / scale, np.ones(len(usable)))[0] / scale
    constants = dict(zip(TERMS, solution.tolist(), strict=True))
    return CostModel(constants, tuple((relative @ solution).tolist()))


PREDICTED = {
    "64 ranks, dense": Shape("fast", 10**8, 8000, 10**5, 64, True),
    "64 ranks, last layer, D > n": Shape("fast", 10**8, 102_400, 10**5, 64, True, 4 * (100 + 256)),
    "one machine of today's rows": Shape("fast", 60_000, 25_600, 20_000, 1, True, 4 * (10 + 640)),
}


def report(model: CostModel, rows: Sequence[Row]) -> str:
    """Constants, their fit and the predictions, as Markdown."""
    lines = ["| term | seconds per 10⁹ multiplications |", "|---|---|"]
    for term in TERMS[:-1]:
        lines.append(f"| {term} | {model.constants[term] * 1e9:.4f} |")
    lines.append(f"| one round | {model.constants['rounds']:.4f} s |")
    errors = sorted(model.errors)
    lines += ["", f"predicted / measured over {len(errors)} rows: {errors[0]:.2f} to "]
    lines[-1] += f"{errors[-1]:.2f}, median {errors[len(errors) // 2]:.2f}"
    lines += ["", *_memory_lines(rows), ""]
    for name, shape in PREDICTED.items():
        lines += [f"### {name}", "", *_prediction_lines(model, shape), ""]
    return "\n".join(lines)


def _memory_lines(rows: Sequence[Row]) -> list[str]:
    """Memory beyond the dictionary of the largest rows, predicted and measured."""
    lines = ["| row | extra GB, predicted | measured |", "|---|---|---|"]
    usable = [row for part in ("growth", "large") for row in finished(list(rows), part)]
    for row in usable:
        if row["method"] != SCIKIT_LEARN and int(row["size"]) >= 1000:
            parts = memory_bytes(Shape.of(row))
            extra = (sum(parts.values()) - parts["dictionary"]) / 1e9
            name = f"{row['method']}, N={row['examples']}, D={row['dim']}, n={row['size']}"
            lines.append(f"| {name} | {extra:.2f} | {float(row['extra_gb']):.2f} |")
    return lines


def _prediction_lines(model: CostModel, shape: Shape) -> list[str]:
    """Time, memory and messages of one selection."""
    seconds, held = model.seconds(shape), memory_bytes(shape)
    wire = wire_bytes(shape) if shape.ranks > 1 else 0.0
    lines = [
        f"{shape.mode}, N = {shape.atoms:,}, n = {shape.size:,}, D = {shape.dim:,}, "
        f"{shape.ranks} ranks, {shape.sweeps} sweeps, {shape.rounds:,.0f} rounds",
        "",
        "| what | predicted |",
        "|---|---|",
    ]
    lines += [f"| {term} | {value / 3600:.2f} h |" for term, value in seconds.items() if value]
    if wire:
        total = wire * shape.rounds
        hours = total / WIRE_BYTES_PER_SECOND / 3600
        lines.append(f"| messages, {wire / 1e6:.1f} MB a round, {total / 1e9:.0f} GB | {hours:.2f} h |")
    lines += [f"| {name}, each rank | {value / 1e9:.1f} GB |" for name, value in held.items()]
    return lines
