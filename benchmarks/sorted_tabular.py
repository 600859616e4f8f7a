"""Gradient matching against reservoir sampling on a task-free stream: a table sorted by a feature.

python benchmarks/sorted_tabular.py --mem-size 1000 --seed 0
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from avalanche_gmc import CoresetGDumbPlugin
from benchmarks.comparison import compare, script_parser
from benchmarks.streams.models import mlp
from benchmarks.streams.tabular import sorted_tabular


def main(argv: Sequence[str] | None = None) -> None:
    parser = script_parser(__doc__, mem_size=200, epochs=200)
    parser.add_argument("--dataset", choices=["covertype", "electricity"], default="electricity")
    args = parser.parse_args(argv)
    # Ten experiences: the rows of the training set in the order of their first feature.
    benchmark = sorted_tabular(
        args.dataset, feature=0, root=args.data_root, train_fraction=args.train_fraction
    )
    num_features = len(benchmark.train_stream[0].dataset[0][0])
    num_classes = 1 + max(max(e.dataset.targets) for e in benchmark.train_stream)
    compare(
        benchmark,
        lambda: mlp(num_features, num_classes),
        lambda memory: CoresetGDumbPlugin(args.mem_size, memory, train_on="last", seed=args.seed),
        args,
    )


if __name__ == "__main__":
    main()
