"""The data sets as arrays in memory, read from verified files.

Shapes: N examples, F features, C channels, H×W pixels.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks import UsageError
from benchmarks.data.datasets import ensure

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Images:
    """Train and test images, N×C×H×W of 0…255, with labels N."""

    train: tuple[Bytes, Labels]
    test: tuple[Bytes, Labels]


@dataclass(frozen=True)
class Table:
    """Features N×F as they are in the source, and labels N in 0…K-1."""

    name: str
    features: Floats
    labels: Labels
    feature_names: tuple[str, ...]

    def column(self, feature: int | str) -> int:
        """Position of a feature given by position or name."""
        if isinstance(feature, str) and feature in self.feature_names:
            return self.feature_names.index(feature)
        if isinstance(feature, int) and 0 <= feature < len(self.feature_names):
            return feature
        raise UsageError(
            f"{self.name} has no feature {feature!r}: "
            f"name one of {', '.join(self.feature_names[:10])}… or a position below "
            f"{len(self.feature_names)}"
        )


def fashion_mnist(root: str | Path | None = None) -> Images:
    """70,000 images 1×28×28 of ten kinds of clothes, split as published."""
    return idx_images(ensure("fashion-mnist", root) / "raw")


def mnist(root: str | Path | None = None) -> Images:
    """70,000 images 1×28×28 of handwritten digits, split as published."""
    return idx_images(ensure("mnist", root) / "raw")


def idx_images(folder: Path) -> Images:
    """The images and labels of four IDX files."""
    from torchvision.datasets.mnist import read_image_file, read_label_file

    def split(name: str) -> tuple[Bytes, Labels]:
        images = read_image_file(str(folder / f"{name}-images-idx3-ubyte"))
        labels = read_label_file(str(folder / f"{name}-labels-idx1-ubyte"))
        return images[:, None].numpy(), labels.numpy()

    return Images(train=split("train"), test=split("t10k"))


def cifar10(root: str | Path | None = None) -> Images:
    """60,000 images 3×32×32 of ten kinds of objects, split as published."""
    folder = ensure("cifar10", root)
    train = cifar10_batches(*(folder / f"data_batch_{batch}.bin" for batch in range(1, 6)))
    return Images(train, test=cifar10_batches(folder / "test_batch.bin"))


def cifar10_batches(*files: Path) -> tuple[Bytes, Labels]:
    """Images and labels of binary files, in which a byte with the label precedes each image."""
    rows = np.concatenate([np.fromfile(file, dtype=np.uint8) for file in files])
    rows = rows.reshape(-1, 1 + 3 * 32 * 32)
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0].astype(np.int64)


def covertype(root: str | Path | None = None) -> Table:
    """581,012 patches of forest with 54 features, ten measured and 44 indicators; 7 classes."""
    import pandas as pd
    from sklearn.datasets import _covtype

    path = ensure("covertype", root) / "covtype.data"
    values = pd.read_csv(path, header=None, dtype=np.float32).to_numpy()
    names = tuple(_covtype.FEATURE_NAMES)
    return Table("covertype", values[:, :-1], values[:, -1].astype(np.int64) - 1, names)


def electricity(root: str | Path | None = None) -> Table:
    """45,312 half-hours of the Australian electricity market: 6 features; did the price go up?"""
    path = ensure("electricity", root) / "electricity.csv"
    return table_from_csv(path.read_bytes(), "up", "electricity")


def digits(root: str | Path | None = None) -> Table:
    """scikit-learn's bundled 1,797 digits of 8×8 pixels; nothing to fetch.

    The rows come in a fixed random order: the source lists them writer by writer, and a memory
    that keeps what it sees first would keep a few writers only.
    """
    from sklearn.datasets import load_digits

    bundle = load_digits()
    order = np.random.default_rng(0).permutation(len(bundle.target))
    features, labels = bundle.data[order], bundle.target[order]
    names = tuple(bundle.feature_names)
    return Table("digits", features.astype(np.float32), labels.astype(np.int64), names)


TABLES: dict[str, Callable[[str | Path | None], Table]] = {
    "covertype": covertype,
    "electricity": electricity,
    "digits": digits,
}


def load_table(name: str, root: str | Path | None = None) -> Table:
    """One of the tabular data sets by name."""
    if name not in TABLES:
        raise UsageError(f"unknown table {name!r}: choose one of {', '.join(TABLES)}")
    return TABLES[name](root)


def table_from_csv(content: bytes, target: str, name: str) -> Table:
    """A table from CSV: a header line, numeric or categorical columns, one of them the class.

    Categorical columns become one indicator per value. The classes are numbered in sorted order.

    :param content: of the file.
    :param target: name of the column to predict.
    :param name: of the table, for messages.
    """
    import pandas as pd

    try:
        frame = pd.read_csv(io.BytesIO(content))
    except ValueError as error:
        raise UsageError(f"{name} cannot be read as a CSV file ({error})") from error
    if target not in frame.columns:
        columns = ", ".join(map(str, frame.columns[:10]))
        raise UsageError(f"{name} has no column {target!r} to predict: its columns are {columns}")
    if frame.isna().any(axis=None):
        column = frame.columns[frame.isna().any()][0]
        raise UsageError(f"{name} has missing values in column {column!r}: fill or drop them first")
    classes, labels = np.unique(frame[target].to_numpy(), return_inverse=True)
    problems = {
        "no rows": not len(frame),
        f"no column besides {target!r}: there is nothing to predict it from": frame.shape[1] == 1,
        f"only one class in column {target!r}: there is nothing to tell apart": len(classes) == 1,
    }
    if found := [problem for problem, holds in problems.items() if holds]:
        raise UsageError(f"{name} has {found[0]}")
    features = pd.get_dummies(frame.drop(columns=target), dtype=np.float32)
    values = features.to_numpy(dtype=np.float32)
    if not np.isfinite(values).all():
        raise UsageError(f"{name} has values that are not finite")
    return Table(name, values, labels.astype(np.int64), tuple(map(str, features.columns)))
