"""Time the selection on a panel of dictionaries, beside scikit-learn and a plain loop.

    python -m benchmarks selection-speed
    python -m benchmarks selection-speed --rows gaussian digits-last-layer --repeats 5

Letters: N atoms, D dimensions, n picks.

All methods pick n atoms of the same float32 dictionary in one process, with the same number of
threads, and take turns; the median of their times counts. Weights may be negative, except with
CORDS-style. All methods but ours get dense atoms of unit length, whose making is not timed; ours
gets last-layer gradients as their two factors.

Ratios say how many times faster a method is than the faster of scikit-learn's ``orthogonal_mp`` and
the plain loop. A method that returns fewer than n atoms has no ratio and is no reference:
scikit-learn stops at the first atom that depends on the picked ones.

- plain: score all atoms, take the best, two passes of Gram–Schmidt. It returns no weights; they are
  solved for after the clock has stopped.
- textbook: Algorithm 1 of the paper to the letter, least squares from scratch after every pick.
- CORDS-style, DeepCore-style: as these libraries' papers describe them, the normal equations solved
  from scratch after every pick; the former drops atoms whose weight is negative. Their ridge is
  1e-6 here, because the usual 0.5 or 1 leaves a far larger residual.
- spams, omp-gpu: the packages ``spams-bin`` and ``orthogonal-matching-pursuit-gpu`` (formerly
  ``batched-omp``), if they are installed. Like scikit-learn, they take absolute values of scores.

Torch's threads stay busy for some 5 ms after an operation, which slows NumPy's. Every timed run
therefore starts after a pause of 20 ms, for all methods alike.

The rows of other dictionaries stay in the CSV file, and the summary is over all that are there.
"""

from __future__ import annotations

import argparse
import csv
import gc
import statistics
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from sklearn.linear_model import orthogonal_mp
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from torch import Tensor

from avalanche_gmc import DenseDictionary, Dictionary, orthogonal_matching_pursuit
from benchmarks import DataUnavailable
from benchmarks.grid.rows import RESULTS, write_rows
from benchmarks.options import add_data_root, positive
from benchmarks.speed.selection_panel import CASES

SCIKIT_LEARN, PLAIN = "scikit-learn", "plain"
COLUMNS = ["dictionary", "N", "D", "n", "method", "seconds", "ratio", "residual", "picked"]
COLUMNS += ["threads"]
LINE = "{:<23} {:>6} {:>6} {:>5}  {:<14} {:>9} {:>8} {:>10} {:>7} {:>8}"
OPTIONAL = {"spams": "spams", "omp-gpu": "orthogonal_matching_pursuit_gpu"}
LARGE = 3 * 10**7
"""Dictionaries of more numbers than this are timed once, unless ``--repeats`` says otherwise."""
PAUSE, WARM_UP, RIDGE = 0.02, 8, 1e-6

Picked = tuple[Tensor, Tensor | None]
Method = Callable[[Tensor, Tensor, int], Picked]
"""Atoms of unit length (N×D), target (D) and n → indices and weights, None for least squares."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--rows", nargs="+", choices=CASES, default=[*CASES], metavar="NAME")
    parser.add_argument("--repeats", type=positive, help="runs of each; else 3, 1 if it is large")
    parser.add_argument("--threads", type=positive, default=2, help="threads of every method")
    parser.add_argument("--csv", type=Path, default=RESULTS / "selection_speed.csv")
    add_data_root(parser)


def run(args: argparse.Namespace) -> int:
    """Time all methods on the chosen dictionaries."""
    torch.set_num_threads(args.threads)
    for name, module in OPTIONAL.items():
        if find_spec(module) is None:
            print(f"{name} is not installed: skipped")
    rows = [row for row in read_rows(args.csv) if row["dictionary"] not in args.rows]
    print(LINE.format(*COLUMNS))
    for name in args.rows:
        try:
            dictionary = CASES[name].make(args.data_root)
        except DataUnavailable as error:
            print(f"{name}: skipped, {error}")
            continue
        with threadpool_limits(args.threads):
            measured = measure(name, dictionary, args.repeats, args.threads)
        for row in measured:
            print(LINE.format(*row.values()), flush=True)
        rows += measured
        write_rows(args.csv, rows)
    for method in ("exact", "fast"):
        ratios = [float(row["ratio"]) for row in rows if row["method"] == method]
        if ratios:
            least, middle = min(ratios), statistics.median(ratios)
            print(f"{method}: at least {least:.2f}×, median {middle:.2f}×, rows: {len(ratios)}")
    return 0


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of an earlier run; none if there was none, or one with other columns."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        return list(reader) if reader.fieldnames == COLUMNS else []


def measure(
    name: str, dictionary: Dictionary, repeats: int | None, threads: int
) -> list[dict[str, str]]:
    """One row for each method."""
    size, target = CASES[name].size, dictionary.sum()
    atoms = dictionary.rows(torch.arange(dictionary.num_atoms))
    atoms /= atoms.norm(dim=1, keepdim=True).clamp(min=1e-30)
    if isinstance(dictionary, DenseDictionary):
        dictionary = DenseDictionary(atoms)
    goal = (target / target.norm()).float()
    methods: dict[str, Method] = {SCIKIT_LEARN: scikit_learn, PLAIN: plain}
    methods |= {"exact": ours(dictionary, "exact"), "fast": ours(dictionary, "fast")}
    if CASES[name].is_small:
        methods |= {"textbook": textbook, "CORDS-style": cords, "DeepCore-style": deepcore}
        optional: dict[str, Method] = {"spams": spams, "omp-gpu": omp_gpu}
        methods |= {key: optional[key] for key in optional if find_spec(OPTIONAL[key])}
    gc.collect()
    seconds: dict[str, list[float]] = {key: [] for key in methods}
    found: dict[str, Picked] = {}
    for method in methods.values():
        method(atoms, goal, min(size, WARM_UP))
    for _ in range(repeats or (1 if atoms.numel() > LARGE else 3)):
        for key, method in methods.items():
            time.sleep(PAUSE)
            start = time.perf_counter()
            found[key] = method(atoms, goal, size)
            seconds[key].append(time.perf_counter() - start)
    medians = {key: statistics.median(times) for key, times in seconds.items()}
    picked = {key: len(indices) for key, (indices, _) in found.items()}
    reference = min(medians[key] for key in (SCIKIT_LEARN, PLAIN) if picked[key] == size)
    rows = []
    for key, median in medians.items():
        left = residual(atoms, goal, *found[key])
        ratio = f"{reference / median:.2f}" if picked[key] == size else ""
        figures = f"{median:.4f}", ratio, f"{left:.6f}", picked[key]
        values = name, *atoms.shape, size, key, *figures, threads
        rows.append(dict(zip(COLUMNS, map(str, values), strict=True)))
    return rows


def residual(atoms: Tensor, target: Tensor, indices: Tensor, weights: Tensor | None) -> float:
    """The norm of what is not matched, relative to the target, in float64."""
    chosen, goal = atoms[indices].double(), target.double()
    if weights is None:
        weights = least_squares(chosen.T, goal)
    return float((goal - weights.double() @ chosen).norm() / goal.norm())


def least_squares(matrix: Tensor, vector: Tensor) -> Tensor:
    solution: Tensor = torch.linalg.lstsq(matrix, vector[:, None]).solution
    return solution[:, 0]


def ours(dictionary: Dictionary, mode: Literal["exact", "fast"]) -> Method:
    """This package's pursuit, of the dictionary as it is held."""
    norms = dictionary.norms()

    def select(atoms: Tensor, target: Tensor, size: int) -> Picked:
        coreset = orthogonal_matching_pursuit(
            dictionary, target, size, mode=mode, nonnegative=False
        )
        return coreset.indices, coreset.weights * norms[coreset.indices]

    return select


def nonzero(weights: Tensor) -> tuple[Tensor, Tensor]:
    """Indices and weights of those that are not zero: N → n, n."""
    indices = weights.nonzero()[:, 0]
    return indices, weights[indices]


def scikit_learn(atoms: Tensor, target: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """scikit-learn on atoms of unit length, as it asks for; it may stop early."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weights = orthogonal_mp(
            atoms.numpy().T, target.numpy(), n_nonzero_coefs=size, precompute=False
        )
    return nonzero(torch.from_numpy(weights))


def plain(atoms: Tensor, target: Tensor, size: int) -> Picked:
    """Score all atoms, pick the best, orthogonalise it twice against the picked ones."""
    basis = atoms.new_empty(size, atoms.shape[1])
    left = target.clone()
    picks: list[int] = []
    for count in range(size):
        scores = atoms @ left
        scores[picks] = -torch.inf
        picks.append(int(scores.argmax()))
        vector = atoms[picks[-1]].clone()
        for _ in range(2):
            vector -= (basis[:count] @ vector) @ basis[:count]
        basis[count] = vector / vector.norm()
        left -= (basis[count] @ left) * basis[count]
    return torch.tensor(picks), None


def refitting(
    atoms: Tensor, target: Tensor, size: int, solve: Callable[[Tensor], Tensor], *, drop: bool
) -> Picked:
    """Pick the best atom, solve for all weights (b×D → b), and so on.

    :param drop: whether atoms of negative weight are given up, the worst first.
    """
    left, picks = target, torch.empty(0, dtype=torch.long)
    weights = target.new_empty(0)
    for _ in range(size):
        scores = atoms @ left
        scores[picks] = -torch.inf
        picks = torch.cat([picks, scores.argmax()[None]])
        weights = solve(atoms[picks])
        while drop and len(picks) > 1 and bool(weights.min() < 0):
            picks = picks[torch.arange(len(picks)) != weights.argmin()]
            weights = solve(atoms[picks])
        left = target - weights @ atoms[picks]
    return picks, weights


def textbook(atoms: Tensor, target: Tensor, size: int) -> Picked:
    def solve(chosen: Tensor) -> Tensor:
        return least_squares(chosen.T, target)

    return refitting(atoms, target, size, solve, drop=False)


def deepcore(atoms: Tensor, target: Tensor, size: int, *, drop: bool = False) -> Picked:
    def solve(chosen: Tensor) -> Tensor:
        gram = chosen @ chosen.T + RIDGE * torch.eye(len(chosen))
        return least_squares(gram, chosen @ target)

    return refitting(atoms, target, size, solve, drop=drop)


def cords(atoms: Tensor, target: Tensor, size: int) -> Picked:
    return deepcore(atoms, target, size, drop=True)


def spams(atoms: Tensor, target: Tensor, size: int) -> Picked:
    signal = np.asfortranarray(target.numpy()[:, None])
    # Without eps, the package reads a number that was never set.
    options = {"L": size, "eps": 0.0, "numThreads": torch.get_num_threads()}
    found = import_module("spams").omp(signal, atoms.numpy().T, **options)
    return nonzero(torch.from_numpy(found.toarray()[:, 0]))


def omp_gpu(atoms: Tensor, target: Tensor, size: int) -> Picked:
    package = import_module(OPTIONAL["omp-gpu"])
    options = {"normalize": False, "fit_intercept": False, "alg": "v0"}
    return nonzero(package.run_omp(atoms.T, target[None], size, **options)[0])
