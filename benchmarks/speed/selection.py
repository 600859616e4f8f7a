"""Time the selection: exact and fast pursuit against scikit-learn and the textbook loop.

    python -m benchmarks selection-speed
    python -m benchmarks selection-speed --sizes 1000 --atoms 12000

Every method picks the same number of atoms out of the same float32 dictionary, in turns in one
process, with the same number of threads, and with signed weights unless "w ≥ 0" is said. Times are
also given as ratios to scikit-learn's ``orthogonal_mp(precompute=False)``. The dictionary holds
gradients of Fashion-MNIST images at four initialisations of the paper's MLP, sketched to 2,000
numbers each; ``--source synthetic`` takes Gaussian atoms with a common mean instead, whose spectrum
decays as the inverse square root.

At n = 5,000 scikit-learn had not finished after four minutes; by default it runs up to n = 1,000.
``extra memory`` is the peak of the process beyond what it held before, as a fraction of the
dictionary. The textbook loop solves least squares from scratch after every pick.
"""

from __future__ import annotations

import argparse
import csv
import gc
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import orthogonal_mp
from torch import Tensor

from avalanche_gmc import DenseDictionary, RandomProjectionEmbedding, orthogonal_matching_pursuit
from benchmarks import UsageError
from benchmarks.data.arrays import fashion_mnist
from benchmarks.grid.rows import RESULTS
from benchmarks.speed.peak_memory import peak_memory
from benchmarks.streams.models import mlp

DRAWS = 4
SCIKIT_LEARN = "scikit-learn"


@dataclass(frozen=True)
class Measurement:
    """One method on one dictionary; ``picked`` may fall short of ``size``."""

    method: str
    source: str
    atoms: int
    dim: int
    size: int
    threads: int
    picked: int
    seconds: float
    speedup: float | None
    residual: float
    extra_memory: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000, 5000], help="picks n")
    parser.add_argument("--atoms", type=int, nargs="+", default=[3000, 6000, 12000], help="N")
    parser.add_argument("--dim", type=int, default=8000, help="D, a multiple of 4")
    parser.add_argument("--source", choices=("fashion-mnist", "synthetic"), default="fashion-mnist")
    parser.add_argument("--threads", type=int, default=2, help="threads of every method")
    parser.add_argument(
        "--textbook-up-to", type=int, default=100, help="largest n of the plain loop"
    )
    parser.add_argument(
        "--scikit-learn-up-to", type=int, default=1000, help="largest n of scikit-learn"
    )
    parser.add_argument("--data-root", default=None, help="folder of the data sets")
    parser.add_argument("--csv", type=Path, default=RESULTS / "selection_speed.csv")


def run(args: argparse.Namespace) -> int:
    """Measure all methods at the largest N for every n, and at the median n for every N."""
    if args.dim % DRAWS or min(args.sizes + args.atoms + [args.dim]) < 1:
        raise UsageError("--sizes, --atoms and --dim must be positive, --dim a multiple of 4")
    torch.set_num_threads(args.threads)
    largest, middle = max(args.atoms), sorted(args.sizes)[len(args.sizes) // 2]
    atoms = make_atoms(args.source, largest, args.dim, args.data_root)
    cases = [(largest, size) for size in sorted(args.sizes)]
    cases += [(count, middle) for count in sorted(args.atoms) if count != largest]
    rows: list[Measurement] = []
    print(header())
    for count, size in cases:
        if size > count:
            continue
        for row in measure(atoms[:count].contiguous(), size, args):
            print(line(row), flush=True)
            rows.append(row)
            write_csv(args.csv, rows)
    print(f"wrote {args.csv}")
    return 0


def make_atoms(source: str, count: int, dim: int, root: str | None) -> Tensor:
    """N×D, float32."""
    if source == "synthetic":
        generator = torch.Generator().manual_seed(0)
        atoms = torch.randn(count, dim, generator=generator)
        atoms += torch.randn(1, dim, generator=generator)
        return atoms * torch.arange(1, dim + 1) ** -0.5
    pixels, labels = fashion_mnist(root).train
    if count > len(labels):
        raise UsageError(f"Fashion-MNIST has {len(labels)} images, {count} were asked for")
    inputs = torch.from_numpy(pixels[:count].reshape(count, -1).astype(np.float32) / 255)
    inputs = (inputs - inputs.mean()) / inputs.std()
    embedding = RandomProjectionEmbedding(lambda: mlp(784, 10), draws=DRAWS, dim=dim // DRAWS)
    dictionary = embedding.embed(inputs, torch.from_numpy(labels[:count]))
    assert isinstance(dictionary, DenseDictionary)
    return dictionary.atoms


Method = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]


def scikit_learn(atoms: Tensor, target: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """scikit-learn on atoms of unit length, as it asks for; it may stop early."""
    matrix = atoms.numpy().T
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weights = orthogonal_mp(matrix, target.numpy(), n_nonzero_coefs=size, precompute=False)
    indices = torch.from_numpy(np.flatnonzero(weights))
    return indices, torch.from_numpy(weights)[indices]


def textbook(atoms: Tensor, target: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Algorithm 1 of the paper as it is written down."""
    norms, residual = atoms.norm(dim=1), target
    picks: list[int] = []
    weights = target.new_empty(0)
    for _ in range(size):
        scores = atoms @ residual / norms
        scores[picks] = -torch.inf
        picks.append(int(scores.argmax()))
        weights = torch.linalg.lstsq(atoms[picks].T, target[:, None]).solution[:, 0]
        residual = target - weights @ atoms[picks]
    return torch.tensor(picks), weights


def ours(mode: str, *, nonnegative: bool = False) -> Method:
    """This package's pursuit; by default with signed weights, as the others'."""

    def select(atoms: Tensor, target: Tensor, size: int) -> tuple[Tensor, Tensor]:
        coreset = orthogonal_matching_pursuit(
            atoms, target, size, mode=mode, nonnegative=nonnegative
        )
        return coreset.indices, coreset.weights

    return select


def measure(atoms: Tensor, size: int, args: argparse.Namespace) -> Iterator[Measurement]:
    """One row per method, scikit-learn first because the others are compared with it."""
    # scikit-learn asks for atoms of unit length; so that all methods see the same, all get them.
    atoms = atoms / atoms.norm(dim=1, keepdim=True).clamp(min=1e-30)
    target = atoms.double().sum(dim=0).float()
    methods = {
        "exact": ours("exact"),
        "exact, w ≥ 0": ours("exact", nonnegative=True),
        "fast": ours("fast"),
    }
    if size <= args.textbook_up_to:
        methods["textbook"] = textbook
    reference = None
    if size <= args.scikit_learn_up_to:
        methods = {SCIKIT_LEARN: scikit_learn, **methods}
    for name, method in methods.items():
        gc.collect()
        with peak_memory() as peak:
            start = time.perf_counter()
            indices, weights = method(atoms, target, size)
            seconds = time.perf_counter() - start
        reference = seconds if name == SCIKIT_LEARN else reference
        missed = target.double() - weights.double() @ atoms[indices].double()
        yield Measurement(
            method=name,
            source=args.source,
            atoms=len(atoms),
            dim=atoms.shape[1],
            size=size,
            threads=args.threads,
            picked=len(indices),
            seconds=round(seconds, 3),
            speedup=None if reference is None else round(reference / seconds, 2),
            residual=round(float(missed.norm() / target.double().norm()), 6),
            extra_memory=round(peak[0] / atoms.nbytes, 3),
        )


COLUMNS = "{:>7} {:>6} {:>5}  {:<12} {:>7} {:>9} {:>8} {:>9} {:>13}"


def header() -> str:
    return COLUMNS.format(
        "N", "D", "n", "method", "picked", "seconds", "speedup", "residual", "extra memory"
    )


def line(row: Measurement) -> str:
    return COLUMNS.format(
        row.atoms,
        row.dim,
        row.size,
        row.method,
        row.picked,
        f"{row.seconds:.2f}",
        "" if row.speedup is None else f"{row.speedup:.2f}×",
        f"{row.residual:.4f}",
        f"{row.extra_memory:.2f}",
    )


def write_csv(path: Path, rows: list[Measurement]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Measurement)])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
