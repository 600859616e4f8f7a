"""Gradient matching against reservoir sampling with experience replay on Split CIFAR-10.

python benchmarks/split_cifar10.py --mem-size 500 --epochs 5 --seed 0
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from avalanche_gmc import CoresetReplayPlugin
from benchmarks.comparison import compare, script_parser
from benchmarks.streams.images import split_cifar10
from benchmarks.streams.models import resnet18


def main(argv: Sequence[str] | None = None) -> None:
    args = script_parser(__doc__, mem_size=500, epochs=5).parse_args(argv)
    # Five experiences of two classes, without augmentation as in the paper.
    benchmark = split_cifar10(args.data_root, train_fraction=args.train_fraction)
    compare(
        benchmark,
        resnet18,
        lambda memory: CoresetReplayPlugin(args.mem_size, storage_policy=memory),
        args,
    )


if __name__ == "__main__":
    main()
