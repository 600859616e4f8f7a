"""Draw a contact sheet of a memory's exemplars with their weights, for image streams.

    python -m benchmarks show-memory split-fashion-mnist --method gmc-last-layer --memory-size 100
    python -m benchmarks show-memory digits --method reservoir --output reservoir.png

The memory is selected from the whole stream as the grid would; nothing is trained. Each class is a
row, the heaviest exemplars first; the number below an image is its weight relative to the mean.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import UsageError
from benchmarks.data.datasets import add_root_argument
from benchmarks.grid.cells import METHODS, make_cells
from benchmarks.grid.rows import RESULTS
from benchmarks.streams.registry import title_of

IMAGE_STREAMS = ("split-fashion-mnist", "split-cifar10", "digits", "sorted-digits")
CLASSES = {
    "split-fashion-mnist": "T-shirt Trouser Pullover Dress Coat Sandal Shirt Sneaker Bag Boot",
    "split-cifar10": "airplane car bird cat deer dog frog horse ship truck",
}
MOST_COLUMNS = 24


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m benchmarks show-memory``."""
    methods = [method for method in METHODS if method != "gmc-local"]
    parser.add_argument("stream", nargs="?", choices=IMAGE_STREAMS, default=IMAGE_STREAMS[0])
    parser.add_argument("--method", choices=methods, default="gmc-last-layer", help="the memory")
    parser.add_argument("--memory-size", type=int, default=100, help="number of exemplars")
    parser.add_argument("--seed", type=int, default=0, help="of the draws or the sampling")
    parser.add_argument("--train-fraction", type=float, default=1.0, help="of the training stream")
    parser.add_argument("--output", type=Path, help="image file; else in the results folder")
    add_root_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Select the memory and draw it."""
    if not 0 < args.train_fraction <= 1:
        raise UsageError(f"--train-fraction must lie in (0, 1] but is {args.train_fraction}")
    (cell,) = make_cells(
        "gdumb",
        [args.stream],
        [args.method],
        [args.memory_size],
        [args.seed],
        train_fraction=args.train_fraction,
    )
    from benchmarks.grid.selection import select
    from benchmarks.report.plots import LABELS
    from benchmarks.streams.opening import open_stream

    stream = open_stream(args.stream, args.data_root, args.train_fraction)
    selected = select([cell], stream, lambda *_: None)[cell.key()]
    memory = selected.memories[selected.steps[-1]]
    images = digit_images(memory.inputs) if "digits" in args.stream else memory.inputs
    name = f"{args.stream}-{args.method}-{args.memory_size}-{args.seed}.png"
    path = args.output or RESULTS / "memories" / name
    residual = "" if memory.residual is None else f"; residual {memory.residual:.3f}"
    seen = sum(map(sum, stream.class_counts()))
    kept = f"{len(memory.labels)} of {seen:,} images"
    title = f"{LABELS[args.method]}: {kept}, {title_of(args.stream)}{residual}"
    names = CLASSES.get(args.stream, " ".join(map(str, range(10)))).split()
    draw(images, memory, names, title, path)
    print(path)
    return 0


def draw(images: Any, memory: Any, names: Sequence[str], title: str, path: Path) -> None:
    """Write the contact sheet.

    :param images: the exemplars, n×C×H×W.
    :param memory: a :class:`benchmarks.grid.training.Memory` with their labels and weights.
    :param names: of the classes.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    weights = memory.weights
    shown = rows_of_classes(memory.labels.tolist(), None if weights is None else weights.tolist())
    columns = max(len(members) for _, members in shown)
    size = (0.62 * columns + 1.2, 0.78 * len(shown) + 0.6)
    figure, axes = plt.subplots(len(shown), columns, figsize=size, squeeze=False)
    for line, (label, members) in zip(axes, shown, strict=True):
        for axis in line:
            axis.axis("off")
        line[0].text(-0.25, 0.5, names[label], ha="right", va="center", transform=line[0].transAxes)
        for axis, index in zip(line, members, strict=False):
            axis.imshow(displayable(images[index]), cmap="gray", interpolation="nearest")
            if weights is not None:
                relative = float(weights[index]) / max(float(weights.mean()), 1e-12)
                axis.set_title(f"{relative:.2g}", y=-0.42, fontsize=7)
    figure.suptitle(title, fontsize=10)
    figure.subplots_adjust(left=1.1 / size[0], right=0.995, bottom=0.03, top=1 - 0.45 / size[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, metadata={"Software": None})
    plt.close(figure)


def rows_of_classes(
    labels: Sequence[int], weights: Sequence[float] | None
) -> list[tuple[int, list[int]]]:
    """Positions of each class's exemplars, heaviest first, wrapped into rows of equal length."""
    rows = []
    for label in sorted(set(labels)):
        members = [i for i, other in enumerate(labels) if other == label]
        if weights is not None:
            members.sort(key=lambda i: -weights[i])
        rows += [
            (label, members[i : i + MOST_COLUMNS]) for i in range(0, len(members), MOST_COLUMNS)
        ]
    return rows


def digit_images(inputs: Any) -> Any:
    """The n×1×8×8 pixels behind the standardised features of digits."""
    import torch

    from benchmarks.data import arrays
    from benchmarks.streams import tabular

    table = arrays.digits()
    train, _ = tabular.split_rows(table, tabular.DIGITS_TEST_SHARE)
    mean, deviation = tabular.statistics(table, train)
    pixels = inputs * torch.from_numpy(deviation) + torch.from_numpy(mean)
    return pixels.reshape(-1, 1, 8, 8)


def displayable(image: Any) -> Any:
    """An image scaled to 0…1, H×W or H×W×3, from a C×H×W tensor on any scale."""
    low, high = float(image.min()), float(image.max())
    scaled = (image - low) / max(high - low, 1e-12)
    return scaled[0].numpy() if len(scaled) == 1 else scaled.permute(1, 2, 0).numpy()
