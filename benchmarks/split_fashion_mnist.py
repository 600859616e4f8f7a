"""Gradient matching against reservoir sampling with GDumb on Split Fashion-MNIST.

python benchmarks/split_fashion_mnist.py --mem-size 200 --seed 0
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from avalanche_gmc import CoresetGDumbPlugin
from benchmarks.comparison import compare, script_parser
from benchmarks.streams.images import split_fashion_mnist
from benchmarks.streams.models import cnn


def main(argv: Sequence[str] | None = None) -> None:
    args = script_parser(__doc__, mem_size=200, epochs=200).parse_args(argv)
    # Five experiences of two classes, as in Avalanche's SplitFMNIST.
    benchmark = split_fashion_mnist(args.data_root, train_fraction=args.train_fraction)
    compare(
        benchmark,
        cnn,
        lambda memory: CoresetGDumbPlugin(args.mem_size, memory, train_on="last", seed=args.seed),
        args,
    )


if __name__ == "__main__":
    main()
