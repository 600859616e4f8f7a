"""How many dimensions a last-layer embedding needs: accuracy of GDumb on memories chosen with some.

    python -m benchmarks.embedding_size digits --sizes 50 200 --variants 4 4:4000 2
    python -m benchmarks.embedding_size split-mnist-400 --wide --train-fraction 0.1 --epochs 100

A variant is a number of draws and, after a colon, the dimensions to which features are summed. Rows
are added to a CSV file, one for each memory. The table is in docs/guide/choices.md.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from avalanche.models import SimpleMLP
from torch import nn

from avalanche_gmc import GradientMatchingBuffer, LastLayerEmbedding
from avalanche_gmc.embedding import GradientEmbedding
from avalanche_gmc.embedding.fewer_features import FewerFeatures
from benchmarks.grid.rows import RESULTS
from benchmarks.grid.runner import score
from benchmarks.grid.selection import memory_of
from benchmarks.grid.training import PlayedBackBuffer, Recipe, train
from benchmarks.options import fraction, natural, positive
from benchmarks.streams.opening import Stream, open_stream
from benchmarks.streams.registry import stream_info

COLUMNS = ("stream", "model", "train_fraction", "epochs", "memory_size", "seed", "variant")
WIDE = 512


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what the options ask for."""
    parser = argparse.ArgumentParser("python -m benchmarks.embedding_size", description=__doc__)
    parser.add_argument("stream")
    parser.add_argument("--wide", action="store_true", help=f"an MLP of {WIDE} units instead")
    parser.add_argument("--sizes", nargs="+", type=positive, default=[200, 1000], help="exemplars")
    parser.add_argument("--variants", nargs="+", default=["4", "2"], help="draws, or draws:dim")
    parser.add_argument("--seeds", nargs="+", type=natural, default=[0, 1, 2])
    parser.add_argument("--epochs", type=positive, default=200)
    parser.add_argument("--train-fraction", type=fraction, default=1.0, help="part of the stream")
    parser.add_argument("--precision", choices=("float32", "bf16"), default="float32")
    parser.add_argument("--csv", type=Path, default=RESULTS / "embedding_size.csv")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for seed in args.seeds:
        own_seed = seed if stream_info(args.stream).seeded else 0
        stream = open_stream(args.stream, None, args.train_fraction, own_seed)
        make_model = stream.make_model
        if args.wide:
            make_model = partial(SimpleMLP, num_classes=10, hidden_size=WIDE, drop_rate=0.0)
        for size in args.sizes:
            for variant in args.variants:
                embedding = make_embedding(make_model, variant, seed)
                found = measure(stream, make_model, embedding, size, seed, args)
                model = f"mlp-{WIDE}" if args.wide else stream_info(args.stream).model
                settings = [args.stream, model, args.train_fraction, args.epochs, size, seed]
                append(args.csv, [*settings, variant, f"{found:.4f}"])


def make_embedding(
    make_model: Callable[[], nn.Module], variant: str, seed: int
) -> GradientEmbedding:
    """The embedding of a variant."""
    draws, _, dim = variant.partition(":")
    embedding = LastLayerEmbedding(make_model, draws=positive(draws), seed=seed)
    return FewerFeatures(embedding, positive(dim)) if dim else embedding


def measure(
    stream: Stream,
    make_model: Callable[[], nn.Module],
    embedding: GradientEmbedding,
    size: int,
    seed: int,
    args: argparse.Namespace,
) -> float:
    """Accuracy of a model trained on the memory of the whole stream."""
    buffer = GradientMatchingBuffer(size, embedding, seed=seed, chunk_size=sys.maxsize)
    experiences = list(stream.benchmark.train_stream)
    for experience in experiences:
        buffer.update_from_dataset(experience.dataset)
    buffer.flush()
    recipe = Recipe(make_model, args.epochs, 100, 1e-3, seed, precision=args.precision)
    policy = PlayedBackBuffer(size, [memory_of(buffer)], weighted=True)
    return score(train("gdumb", recipe, [experiences[-1]], policy), stream, args.precision)


def append(path: Path, row: Sequence[Any]) -> None:
    """Add a row, after a header in a new file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    is_new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(
            [[*COLUMNS, "accuracy"], row] if is_new else [row]
        )
    print(*row, flush=True)


if __name__ == "__main__":
    main()
