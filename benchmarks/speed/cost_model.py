"""What a selection costs: operations, memory and messages, fitted to measured rows; no torch.

Letters: N atoms, D dimensions, n picks, P ranks, M atoms of the pool, b picks on trial.

A round scores all atoms, lets newcomers into the pool, extends the basis by b picks and keeps some
of them. With r rounds, and k picks so far on average n/2:

- check: every atom times c columns, r·c·N·D multiplications: c is 32 in exact mode; 1 in fast
  mode, which is bound by the memory's speed and has a constant of its own, and another one for
  structured atoms, of which there is less to read. Shared by the ranks.
- basis: b picks three times against k vectors, newcomers once: r·(3b + M/2)·k·D. Not shared:
  every rank makes the same picks.
- refit: Gram matrix and a few Cholesky factors of n×n numbers, once: n³. Only for weights ≥ 0, or
  if n > D, where several sweeps share the weight. Not shared.
- rounds: what each costs however small it is.

The seconds per multiplication are fitted, each term's constant ≥ 0, to the relative errors.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from benchmarks.grid.rows import Row
from benchmarks.speed.scaling_cases import SCIKIT_LEARN, finished

PICKS_PER_ROUND = {"exact": 20, "fast": 47}
TRIAL = {"exact": 31, "fast": 47}
COLUMNS = {"exact": 32, "fast": 1}
POOL = {"exact": 512, "fast": 256}
TERMS = ("check, exact", "check, fast", "check, structured", "basis", "refit", "rounds")
FEWEST_ROWS = 6
LISTED_FROM = 1000
"""Picks of the smallest selection in the report."""
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
        numbers = round(float(row["dictionary_gb"]) * 1e9 / 4 / atoms)
        return cls(row["method"], atoms, dim, int(row["size"]), 1, large, numbers)

    @property
    def is_structured(self) -> bool:
        """Whether the dictionary holds less than N·D numbers."""
        return self.numbers_per_atom is not None and self.numbers_per_atom < self.dim

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
    check = f"check, {'structured' if shape.is_structured and shape.mode == 'fast' else shape.mode}"
    work[check] = rounds * COLUMNS[shape.mode] * shape.atoms * shape.dim / shape.ranks
    work["basis"] = rounds * (3 * TRIAL[shape.mode] + POOL[shape.mode] / 2) * picked * shape.dim
    work["refit"] = float(shape.size) ** 3 if shape.nonnegative or shape.sweeps > 1 else 0.0
    work["rounds"] = rounds
    return work


def memory_bytes(shape: Shape) -> dict[str, float]:
    """Bytes that a rank holds, by what they are for; the refit begins when the basis is freed."""
    numbers = shape.numbers_per_atom or shape.dim
    picked = min(shape.size, shape.dim)
    refit = 2 * shape.size**2 / 2 if shape.nonnegative or shape.sweeps > 1 else 0.0
    return {
        "dictionary": 4.0 * shape.atoms / shape.ranks * numbers,
        "basis": 4.0 * picked * shape.dim,
        "factor": 8.0 * picked**2 / 2,
        "pool": 4.0 * POOL[shape.mode] * (1.5 * shape.dim + picked),
        "scores": 4.0 * shape.atoms / shape.ranks * 3 * (1 + COLUMNS[shape.mode]),
        "refit": 8.0 * refit,
    }


def extra_bytes(shape: Shape) -> float:
    """The peak beyond the dictionary: while picking, or while refitting."""
    held = memory_bytes(shape)
    return max(held["basis"] + held["factor"] + held["pool"], held["refit"]) + held["scores"]


def wire_bytes(shape: Shape) -> float:
    """Bytes that a rank receives in one round, as ``pursuit.sharded_scoreboard`` says.

    A reduction passes each byte twice through every rank (in a ring), a gathering once from each.
    """
    pool, size = POOL[shape.mode], min(shape.size, shape.dim) / 2
    newcomers = 4.0 * (shape.dim + 1) * pool / 2 + 5.0 * pool
    trials = 16.0 * TRIAL[shape.mode] if shape.mode == "exact" else 0.0
    reduced = newcomers + trials + 4.0 * size
    gathered = 16.0 * pool + 12.0
    return 2.0 * reduced + shape.ranks * gathered


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


def usable_rows(rows: Sequence[Row]) -> list[Row]:
    """The rows of one selection of ours each."""
    found = [row for part in ("growth", "large") for row in finished(list(rows), part)]
    return [row for row in found if row["method"] != SCIKIT_LEARN]


def fit(rows: Sequence[Row]) -> CostModel | None:
    """Fit the constants to the rows of one selection each; None if there are too few."""
    usable = usable_rows(rows)
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
    "64 ranks, projections, D = 8,000": Shape("fast", 10**8, 8000, 10**5, 64, True),
    "64 ranks, last layer, D > n": Shape("fast", 10**8, 102_400, 10**5, 64, True, 4 * (100 + 256)),
}


def report(model: CostModel, rows: Sequence[Row]) -> str:
    """Constants, their fit and the predictions, as Markdown."""
    lines = ["| term | seconds per 10⁹ multiplications |", "|---|---|"]
    lines += [f"| {term} | {model.constants[term] * 1e9:.4f} |" for term in TERMS[:-1]]
    errors = sorted(model.errors)
    lines += [
        f"| one round | {model.constants['rounds']:.4f} s |",
        "",
        f"Predicted over measured time: {errors[0]:.2f} to {errors[-1]:.2f}, median "
        f"{errors[len(errors) // 2]:.2f}, over {len(errors)} rows.",
        "",
        *_row_lines(model, rows),
        "",
    ]
    for name, shape in PREDICTED.items():
        lines += [f"**{name}**", "", *_prediction_lines(model, shape), ""]
    return "\n".join(lines)


def _row_lines(model: CostModel, rows: Sequence[Row]) -> list[str]:
    """Time, and memory beyond the dictionary, of the largest rows: predicted and measured."""
    lines = [
        "| selection | seconds, predicted | measured | extra GB, predicted | measured |",
        "|---|---|---|---|---|",
    ]
    for row in usable_rows(rows):
        if int(row["size"]) >= LISTED_FROM:
            shape = Shape.of(row)
            extra = extra_bytes(shape) / 1e9
            name = f"{row['part']}, {shape.mode}, N={shape.atoms}, D={shape.dim}, n={shape.size}"
            seconds = sum(model.seconds(shape).values())
            lines.append(
                f"| {name} | {seconds:.1f} | {float(row['seconds']):.1f} "
                f"| {extra:.2f} | {float(row['extra_gb']):.2f} |"
            )
    return lines


def _prediction_lines(model: CostModel, shape: Shape) -> list[str]:
    """Time, memory and messages of one selection."""
    seconds, held, wire = model.seconds(shape), memory_bytes(shape), wire_bytes(shape)
    seconds["messages"] = wire * shape.rounds / WIRE_BYTES_PER_SECOND
    total = sum(seconds.values())
    most = max(seconds, key=lambda term: seconds[term])
    lines = [
        f"{shape.mode} mode, N = {shape.atoms:,}, n = {shape.size:,}, D = {shape.dim:,}: "
        f"{shape.sweeps} sweep(s), {shape.rounds:,.0f} rounds, {total / 3600:.1f} hours, of which "
        f"{most} {seconds[most] / total:.0%}; {wire / 1e6:.1f} MB on the wire to every rank in a "
        f"round, {wire * shape.rounds / 1e9:.0f} GB in all.",
        "",
        "| term | hours | | memory of a rank | GB |",
        "|---|---|---|---|---|",
    ]
    times = [f"{term} | {value / 3600:.2f}" for term, value in seconds.items() if value]
    bytes_held = [f"{name} | {value / 1e9:.1f}" for name, value in held.items()]
    for time, memory in itertools.zip_longest(times, bytes_held, fillvalue=" | "):
        lines.append(f"| {time} | | {memory} |")
    return lines
