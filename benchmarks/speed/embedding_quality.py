"""Compare gradient embeddings by the accuracy of the memories that they select.

    python -m benchmarks embedding-quality [--seeds 3] [--variants raw balanced last-layer]

Why does the projection of all gradients lose against the last layer on the paper's CNN: layer
scale, batch-norm parameters, or the dimension? And what does calibrating batch norm bring?

Fashion-MNIST, class-incremental in five experiences, the first 6,000 training images and the whole
test set. Each variant embeds the stream once per seed; orthogonal matching pursuit curates memories
of 100, 200 and 300; the CNN is trained from scratch on each (Adam 1e-3, weighted loss, 120 steps
of at most 100 examples) with the same initialisation for all variants of a seed. Rows go to a CSV
file as they are finished, and finished ones are not run again.

Letters: N examples, n exemplars.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from avalanche_gmc.dictionary import Dictionary
from avalanche_gmc.embedding import (
    GradientEmbedding,
    LastLayerEmbedding,
    LocalEmbedding,
    RandomProjectionEmbedding,
)
from avalanche_gmc.initialization import derive_seed, fresh_draws
from avalanche_gmc.pursuit.matching_pursuit import orthogonal_matching_pursuit
from benchmarks import UsageError
from benchmarks.data.arrays import fashion_mnist
from benchmarks.grid.rows import RESULTS
from benchmarks.streams.models import channels_last, cnn

SIZES = (100, 200, 300)
COLUMNS = ("variant", "size", "seed", "accuracy", "residual", "smallest_class")

Examples = tuple[Tensor, Tensor]  # N×1×28×28, N
Memory = tuple[Tensor, Tensor, float]  # positions n, weights n, residual
Variant = Callable[[int], GradientEmbedding]


def projected(model: Callable[[], nn.Module] = cnn, **options: object) -> Variant:
    """Makes an embedding from a seed."""
    return lambda seed: RandomProjectionEmbedding(model, seed=seed, **options)  # type: ignore[arg-type]


def weights_only() -> nn.Module:
    """The CNN whose biases and batch-norm parameters take no part in the gradient."""
    model = cnn()
    for parameter in model.parameters():
        parameter.requires_grad_(parameter.ndim > 1)
    return model


def middle_only() -> nn.Module:
    """The CNN of which only the three middle convolutions take part in the gradient."""
    model = cnn()
    for parameter in model.parameters():
        parameter.requires_grad_(parameter.numel() == 64 * 64 * 9)
    return model


def pretend_trained() -> nn.Module:
    """The CNN whose fresh batch-norm statistics (mean 0, variance 1) are taken as they are."""
    model = cnn()
    for name, buffer in model.named_buffers():
        if name.endswith("num_batches_tracked"):
            buffer.fill_(1)
    return model


VARIANTS: dict[str, Variant | None] = {
    "random": None,
    "last-layer": lambda seed: LastLayerEmbedding(cnn, seed=seed),
    "raw": projected(),
    "balanced": projected(balance=True),
    "balanced-weights": projected(weights_only, balance=True),
    "raw-weights": projected(weights_only),
    "raw-middle": projected(middle_only),
    "raw-500": projected(dim=500),
    "balanced-500": projected(dim=500, balance=True),
    "raw-6000": projected(dim=6000),
    "last-layer-uncalibrated": lambda seed: LastLayerEmbedding(pretend_trained, seed=seed),
    "raw-uncalibrated": projected(pretend_trained),
    "last-layer-1-draw": lambda seed: LastLayerEmbedding(cnn, draws=1, seed=seed),
    "last-layer-16-draws": lambda seed: LastLayerEmbedding(cnn, draws=16, seed=seed),
    "local-untrained": lambda seed: LocalEmbedding(fresh_draws(cnn, 1, seed)[0]),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), help="which to compare")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds")
    parser.add_argument("--examples", type=int, default=6000, help="training images to keep")
    parser.add_argument("--steps", type=int, default=120, help="optimizer steps of each training")
    parser.add_argument("--csv", type=Path, default=RESULTS / "embedding_quality.csv")
    parser.add_argument("--data-root", type=Path, default=None, help="folder of the data")


def run(args: argparse.Namespace) -> int:
    """Run what is missing in the CSV file, then print its table."""
    unknown = sorted(set(args.variants) - set(VARIANTS))
    if unknown:
        raise UsageError(f"unknown variants {unknown}: choose from {', '.join(VARIANTS)}")
    train, test = load(args.examples, args.data_root)
    for variant in args.variants:
        for seed in range(args.seeds):
            run_variant(variant, seed, train, test, args)
    print_table(read_rows(args.csv))
    return 0


def load(examples: int, root: Path | None) -> tuple[Examples, Examples]:
    """Training and test images, normalised to mean 0 and variance 1."""
    images = fashion_mnist(root)
    return scaled(images.train, examples), scaled(images.test, None)


def scaled(part: tuple[object, object], count: int | None) -> Examples:
    pixels, labels = (torch.as_tensor(array)[:count] for array in part)
    return (pixels.float() / 255 - 0.2860) / 0.3530, labels.long()


def run_variant(
    variant: str, seed: int, train: Examples, test: Examples, args: argparse.Namespace
) -> None:
    """All memory sizes of one variant and seed, unless their rows exist."""
    done = {(row["variant"], row["size"], row["seed"]) for row in read_rows(args.csv)}
    missing = [size for size in SIZES if (variant, str(size), str(seed)) not in done]
    if not missing:
        return
    for size, (chosen, weights, residual) in curate(variant, seed, train, missing).items():
        x, y = train[0][chosen], train[1][chosen]
        model = trained(x, y, weights, steps=args.steps, seed=derive_seed(seed, size))
        counts = torch.bincount(y, minlength=10)
        row = (variant, size, seed, accuracy(model, test), residual, int(counts.min()))
        append_row(args.csv, row)
        print(*row, file=sys.stderr, flush=True)


def curate(variant: str, seed: int, train: Examples, sizes: list[int]) -> dict[int, Memory]:
    """Stream the experiences through memories of all sizes."""
    make, labels = VARIANTS[variant], train[1]
    if make is None:
        generator = torch.Generator().manual_seed(derive_seed(seed))
        order = torch.randperm(len(labels), generator=generator)
        return {size: (order[:size], torch.ones(size), 1.0) for size in sizes}
    embedding, target = make(seed), torch.zeros(0)
    kept: dict[int, tuple[Memory, Dictionary]] = {}
    for task in range(5):
        new = (labels // 2 == task).nonzero().flatten()
        dictionary = embedding.embed(train[0][new], labels[new])
        target = target + dictionary.sum() if len(target) else dictionary.sum()
        kept = {size: select(kept.get(size), new, dictionary, target, size) for size in sizes}
    return {size: memory for size, (memory, _) in kept.items()}


def select(
    old: tuple[Memory, Dictionary] | None,
    new: Tensor,
    dictionary: Dictionary,
    target: Tensor,
    size: int,
) -> tuple[Memory, Dictionary]:
    """One step of the continual algorithm: pursue the target in [memory, new examples]."""
    if old is not None:
        new = torch.cat([old[0][0], new])
        dictionary = old[1].concat(dictionary)
    coreset = orthogonal_matching_pursuit(dictionary, target, size)
    memory = (new[coreset.indices], coreset.weights.float(), coreset.residual_norm)
    return memory, dictionary.take(coreset.indices)


def trained(x: Tensor, y: Tensor, weights: Tensor, *, steps: int, seed: int) -> nn.Module:
    """The CNN after some steps on a weighted memory."""
    (model,) = fresh_draws(cnn, 1, seed)
    model = channels_last(model).train()
    x = x.contiguous(memory_format=torch.channels_last)
    weights = weights / weights.mean()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(seed % 2**31)
    batches: list[Tensor] = []
    for _ in range(steps):
        batches = batches or list(torch.split(torch.randperm(len(y), generator=generator), 100))
        rows = batches.pop()
        loss = F.cross_entropy(model(x[rows]), y[rows], reduction="none")
        optimizer.zero_grad()
        torch.autograd.backward((loss * weights[rows]).mean())
        optimizer.step()
    return model.eval()


@torch.no_grad()
def accuracy(model: nn.Module, test: Examples) -> float:
    """Share of correct predictions."""
    parts = zip(torch.split(test[0], 500), torch.split(test[1], 500), strict=True)
    return sum(int((model(x).argmax(1) == y).sum()) for x, y in parts) / len(test[1])


def read_rows(path: Path) -> list[dict[str, str]]:
    """Finished rows."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def append_row(path: Path, row: tuple[object, ...]) -> None:
    """One more row, after the header if the file is new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file)
        if new:
            writer.writerow(COLUMNS)
        writer.writerow([f"{value:.6g}" if isinstance(value, float) else value for value in row])


def print_table(rows: list[dict[str, str]]) -> None:
    """Mean and standard deviation over seeds, one line per variant."""
    print(
        f"{'variant':<24}" + "".join(f"{f'n={size}':>16}" for size in SIZES) + "   smallest class"
    )
    for variant in dict.fromkeys(row["variant"] for row in rows):
        cells, smallest = [], []
        for size in SIZES:
            mine = [r for r in rows if r["variant"] == variant and r["size"] == str(size)]
            values = [float(row["accuracy"]) for row in mine]
            smallest.append(str(min((int(row["smallest_class"]) for row in mine), default=0)))
            spread = stdev(values) if len(values) > 1 else 0.0
            cells.append(f"{mean(values):.4f} ± {spread:.4f}" if values else "-")
        print(f"{variant:<24}" + "".join(f"{c:>16}" for c in cells) + f"   {' / '.join(smallest)}")
