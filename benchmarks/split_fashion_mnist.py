"""Gradient matching against reservoir sampling with GDumb on Split Fashion-MNIST.

python benchmarks/split_fashion_mnist.py --mem-size 200 --seed 0
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from avalanche.training.supervised import Naive
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))

from avalanche_gmc import CoresetGDumbPlugin
from benchmarks.comparison import compare, script_parser
from benchmarks.streams.images import split_fashion_mnist
from benchmarks.streams.models import cnn


def make_strategy(
    model: nn.Module, memory: Any, args: argparse.Namespace, training: dict[str, Any]
) -> Naive:
    """Avalanche's plainest strategy with GDumb as a plugin."""
    gdumb = CoresetGDumbPlugin(args.mem_size, memory, train_on="last", seed=args.seed)
    return Naive(model=model, plugins=[gdumb], **training)


def main(argv: Sequence[str] | None = None) -> None:
    args = script_parser(__doc__, mem_size=200, epochs=200).parse_args(argv)
    # Five experiences of two classes, as in Avalanche's SplitFMNIST.
    benchmark = split_fashion_mnist(args.data_root, train_fraction=args.train_fraction)
    compare(benchmark, cnn, make_strategy, args)


if __name__ == "__main__":
    main()
