"""Download and verify the data sets, or say where to put them.

    python -m benchmarks data mnist fashion-mnist cifar10 covertype electricity

Files live under ``--data-root``, else ``$AVALANCHE_GMC_DATA``, else the platform's cache folder.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.data.datasets import DATASETS, ensure
from benchmarks.options import add_data_root


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m benchmarks data``."""
    parser.add_argument(
        "names", nargs="+", choices=sorted(DATASETS), metavar="NAME", help="data set"
    )
    add_data_root(parser)


def run(args: argparse.Namespace) -> int:
    """Fetch and verify each named data set."""
    for name in args.names:
        print(f"{name}: fetching and verifying", file=sys.stderr)
        print(f"{name}: verified in {ensure(name, args.data_root)}")
    return 0
