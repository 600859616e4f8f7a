"""Run an experiment of the paper: a resumable grid of methods, memory sizes and seeds.

    python -m benchmarks run gdumb --preset quick --jobs 2
    python -m benchmarks run gdumb --streams sorted-covertype --methods reservoir gmc-last-layer \\
        --memory-sizes 100 1000 --seeds 0 1 2
    python -m benchmarks run gdumb --csv mine.csv --target label --sort-by time
    python -m benchmarks run replay --shard 1/4

One cell is one row of RESULTS/EXPERIMENT.csv. Finished cells are skipped, so the same command
resumes a stopped run; several processes may work on one grid. A cell that fails stops the run.
Experiments: gdumb, gdumb-per-task, facility-location, replay, local, class-frequencies, demo;
beyond the paper draws, rivals, rivals-replay, gdumb-published, label-noise, imbalanced.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import UsageError
from benchmarks.data.datasets import ensure
from benchmarks.grid.cells import check_methods, make_cells, make_groups, shard
from benchmarks.grid.experiments import EXPERIMENTS, PRESETS, WHOLE, Scale
from benchmarks.grid.methods import METHODS
from benchmarks.grid.rows import RESULTS, Cell, ResultsFile
from benchmarks.options import add_data_root, folder, fraction, natural, positive
from benchmarks.streams.registry import STREAMS, datasets_of

INTERRUPTED = 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m benchmarks run``."""
    parser.add_argument("experiment", choices=tuple(EXPERIMENTS), metavar="EXPERIMENT")
    what = parser.add_argument_group("what to run (an option overrides the preset)")
    what.add_argument("--preset", choices=tuple(PRESETS), default="paper", help="how much to run")
    what.add_argument("--streams", nargs="+", metavar="STREAM", help=", ".join(STREAMS))
    what.add_argument("--methods", nargs="+", metavar="METHOD", help=", ".join(METHODS))
    what.add_argument("--memory-sizes", nargs="+", type=positive, metavar="N")
    what.add_argument("--seeds", nargs="+", type=natural, metavar="SEED")
    what.add_argument("--epochs", type=positive, help="per training")
    what.add_argument("--train-fraction", type=fraction, help="of the training stream to keep")
    what.add_argument(
        "--precision",
        choices=("float32", "bf16"),
        default="float32",
        help="of training and test; bf16 is for convolutional networks where bfloat16 is fast",
    )
    what.add_argument("--csv", type=Path, help="a table of your own instead of --streams")
    what.add_argument("--target", metavar="COLUMN", help="what to predict in --csv")
    what.add_argument("--sort-by", metavar="COLUMN", help="order of --csv; else as the rows come")
    how = parser.add_argument_group("how gradient matching works")
    how.add_argument(
        "--draws", type=positive, help="parameter draws s; else the experiment's, or 4"
    )
    how.add_argument("--dim", type=positive, default=2000, help="dimensions d per projected draw")
    how.add_argument(
        "--same-dim-as",
        type=positive,
        metavar="S",
        help="last layer: fewer features per draw, as many dimensions in all as S whole draws have",
    )
    how.add_argument("--projection", choices=("sparse", "rademacher"), default="sparse")
    how.add_argument("--mode", choices=("exact", "fast"), default="exact", help="of the pursuit")
    how.add_argument("--unweighted", action="store_true", help="train without the weights")
    where = parser.add_argument_group("where and how fast")
    where.add_argument("--jobs", type=positive, default=os.cpu_count() or 1, help="processes")
    where.add_argument("--threads", type=positive, default=1, help="torch threads of each worker")
    where.add_argument(
        "--shard", type=parse_shard, default=(1, 1), metavar="I/K", help="part I of K"
    )
    where.add_argument("--results", type=folder, default=RESULTS, help="folder of the CSV files")
    add_data_root(parser)


def parse_shard(text: str) -> tuple[int, int]:
    """``I/K`` with 1 ≤ I ≤ K."""
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise argparse.ArgumentTypeError(f"{text!r} is not I/K with 1 ≤ I ≤ K, such as 1/4")
    return int(index), int(count)


def run(args: argparse.Namespace) -> int:
    """Run what is not finished yet."""
    from benchmarks.grid.workers import GridStopped, run_grid

    cells = grid_of(args)
    index, count = args.shard
    groups = shard(make_groups(cells), index - 1, count)
    mine = [cell for group in groups for cell in group.cells]
    file = ResultsFile(args.results / f"{args.experiment}.csv")
    finished = file.finished()
    left = [cell for cell in mine if cell.key() not in finished]
    print(f"{len(mine) - len(left)} of {len(mine)} cells are finished", file=sys.stderr)
    for name in datasets_of([cell.stream for cell in left]):
        ensure(name, args.data_root)
    try:
        if left:
            run_grid(
                make_groups(left),
                jobs=args.jobs,
                threads=args.threads,
                results=args.results,
                root=args.data_root,
            )
    except GridStopped as error:
        print(f"python -m benchmarks run: stopped: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; the same command takes it up again", file=sys.stderr)
        return INTERRUPTED
    print(file.path)
    return 0


def require_use(args: argparse.Namespace, methods: Sequence[str]) -> None:
    """Refuse an option of gradient matching that none of the methods looks at."""
    given = {
        "draws": args.draws is not None,
        "dim": args.dim != Cell.dim,
        "projection": args.projection != Cell.projection,
        "mode": args.mode != Cell.mode,
        "weighted": args.unweighted,
    }
    users = {
        f"--{option}": [name for name, method in METHODS.items() if option in method.options]
        for option, asked_for in given.items()
        if asked_for
    }
    if args.same_dim_as:
        users["--same-dim-as"] = ["gmc-last-layer"]
    for option, names in users.items():
        if not set(names) & set(methods):
            option = "--unweighted" if option == "--weighted" else option
            raise UsageError(
                f"{option} changes nothing for {', '.join(methods)}: choose --methods among "
                f"{', '.join(names)}, or leave it out"
            )


def grid_of(args: argparse.Namespace) -> list[Cell]:
    """The cells that the options ask for."""
    cells = []
    methods = args.methods or EXPERIMENTS[args.experiment].methods
    check_methods(args.methods or ())
    require_use(args, methods)
    given = {"epochs": args.epochs, "draws": args.draws, "same_dim_as": args.same_dim_as}
    for stream in streams_of(args):
        seeds, sizes, fraction = (
            asked(args, stream, name) for name in ("seeds", "memory_sizes", "train_fraction")
        )
        cells += make_cells(
            args.experiment,
            [stream],
            methods,
            sizes,
            seeds,
            defaults={"epochs": PRESETS[args.preset].epochs or WHOLE.epochs},
            train_fraction=fraction,
            dim=args.dim,
            projection=args.projection,
            mode=args.mode,
            weighted=not args.unweighted,
            precision=precision_of(args),
            **{name: value for name, value in given.items() if value},
        )
    return cells


def asked(args: argparse.Namespace, stream: str, name: str) -> Any:
    """How much to run of a stream: by option, preset, or what the experiment has for it."""
    experiment = EXPERIMENTS[args.experiment]
    own = experiment.scales.get(stream, Scale())
    for whom in (args, PRESETS[args.preset], own, experiment, WHOLE):
        if (value := getattr(whom, name, None)) is not None:
            return value
    raise AssertionError(f"nobody says what {name} is")  # WHOLE has what experiments have not


def precision_of(args: argparse.Namespace) -> str:
    """The precision that the options ask for, if the machine has it."""
    if args.precision == "float32":
        return "float32"
    from benchmarks.grid.training import fast_precision

    fast = fast_precision()
    if fast != args.precision:
        print(f"bfloat16 is slow on this machine: {fast} it is, in the rows too", file=sys.stderr)
    return fast


def streams_of(args: argparse.Namespace) -> Sequence[str]:
    """The streams that the options ask for, a table of the user's own among them."""
    if args.csv is None:
        if args.target or args.sort_by:
            raise UsageError("--target and --sort-by describe a table: name it with --csv")
        return args.streams or EXPERIMENTS[args.experiment].streams
    if args.streams or not args.target:
        raise UsageError("--csv needs --target COLUMN and takes the place of --streams")
    from benchmarks.streams.opening import build, csv_stream_name

    name = csv_stream_name(args.csv, args.target, args.sort_by)
    build(name, None, args.train_fraction or 1.0)  # so that errors are told before anything starts
    return [name]
