"""Say how hard the exemplars of memories are, beside the whole stream: a Markdown table.

    python -m benchmarks hardness
    python -m benchmarks hardness --streams digits --methods gmc herding --memory-sizes 100

An example is as hard as a random forest, trained on other examples (five folds), is unsure of its
label: one minus the probability that it gives to it. Where labels are right, hard examples lie
between classes, where they are noisy, the wrong ones are hard. Numbers are means over exemplars
and seeds. No network is trained.
"""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks import UsageError
from benchmarks.grid.methods import METHODS
from benchmarks.options import add_data_root, fraction, natural, positive
from benchmarks.report.pages import table
from benchmarks.streams.registry import STREAMS, title_of

METHODS_SHOWN = ("reservoir", "gmc", "giga", "herding", "bilevel", "k-center", "grand")
FOLDS = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m benchmarks hardness``."""
    every = [name for name, method in METHODS.items() if method.family != "local"]
    streams = ("digits", "sorted-electricity")
    parser.add_argument("--streams", nargs="+", choices=STREAMS, default=streams)
    parser.add_argument("--methods", nargs="+", choices=every, default=METHODS_SHOWN)
    parser.add_argument("--memory-sizes", nargs="+", type=positive, default=[50, 200])
    parser.add_argument("--seeds", nargs="+", type=natural, default=[0, 1, 2, 3, 4])
    parser.add_argument("--train-fraction", type=fraction, default=1.0, help="part of the stream")
    add_data_root(parser)


def run(args: argparse.Namespace) -> int:
    """Select the memories and print the table."""
    places = [(stream, size) for stream in args.streams for size in args.memory_sizes]
    means: dict[tuple[str, tuple[str, int]], str] = {}
    whole = []
    for stream in args.streams:
        everything, found = measured(stream, args)
        whole += [f"{everything:.3f}"] * len(args.memory_sizes)
        means.update({(method, (stream, size)): text for (method, size), text in found.items()})
    body = [["the whole stream", *whole]]
    body += [
        [METHODS[name].label, *(means[name, place] for place in places)] for name in args.methods
    ]
    print(table(["exemplars of", *(f"{title_of(name)}, {size}" for name, size in places)], body))
    return 0


def measured(name: str, args: argparse.Namespace) -> tuple[float, dict[tuple[str, int], str]]:
    """How hard a stream is, and by method and size the exemplars of its memories."""
    import numpy as np

    from benchmarks.grid.cells import make_cells
    from benchmarks.grid.runner import final_memories, stream_seed
    from benchmarks.streams.assembly import stacked

    found: dict[tuple[str, int], list[float]] = {}
    levels: dict[int, tuple[float, Any]] = {}
    options = {"train_fraction": args.train_fraction}
    cells = make_cells("rivals", [name], args.methods, args.memory_sizes, args.seeds, **options)
    for cell, stream, memory in final_memories(cells, args.data_root):
        own = stream_seed(cell)
        if own not in levels:
            inputs, labels = (part.numpy() for part in stacked(stream.benchmark.train_stream))
            hard = hardness(inputs.reshape(len(inputs), -1), labels)
            keys = (key(*pair) for pair in zip(inputs, labels, strict=True))
            levels[own] = float(hard.mean()), dict(zip(keys, hard, strict=True))
        pairs = zip(memory.inputs.numpy(), memory.labels.numpy(), strict=True)
        mean = float(np.mean([levels[own][1][key(*pair)] for pair in pairs]))
        found.setdefault((cell.method, cell.memory_size), []).append(mean)
    everything = float(np.mean([mean for mean, _ in levels.values()]))
    return everything, {place: f"{np.mean(means):.3f}" for place, means in found.items()}


def hardness(inputs: Any, labels: Any) -> Any:
    """One minus the probability of each label by a forest that has not seen it: N×F, N → N."""
    import numpy as np
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    forest = RandomForestClassifier(random_state=0)
    places = np.unique(labels, return_inverse=True)[1]
    if np.bincount(places).min() < FOLDS:
        raise UsageError(f"a class has fewer than {FOLDS} examples: take more of the stream")
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)  # streams are sorted
    sure = cross_val_predict(forest, inputs, places, cv=folds, method="predict_proba")
    return 1 - sure[np.arange(len(labels)), places]


def key(inputs: Any, label: Any) -> bytes:
    """What tells an example apart."""
    found: bytes = inputs.tobytes() + int(label).to_bytes(8, "little")
    return found
