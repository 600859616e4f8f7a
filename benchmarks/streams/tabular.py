"""Streams of tables: sorted by a feature, in random order, or class by class.

Every function returns a benchmark with a ``train_stream`` and a ``test_stream``; the test stream
as a whole is the full, untouched test set.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from avalanche.benchmarks import CLScenario
from torch import Tensor

from benchmarks import UsageError
from benchmarks.data import arrays
from benchmarks.data.arrays import Doubles, Labels, Table
from benchmarks.streams.assembly import SPLIT_SEED, assemble, by_class, subsample, task_free

TEST_SHARE = 0.2
# The most informative pixel of the digits: the largest mutual information with the class.
DIGITS_FEATURE = 26
DIGITS_TEST_SHARE = 0.3


def digits(n_experiences: int = 5, *, train_fraction: float = 1.0) -> CLScenario:
    """Class-incremental digits (bundled with scikit-learn): {0,1}, {2,3}, … {8,9}."""
    if not 1 <= n_experiences <= 10:
        raise UsageError(f"10 classes do not fill {n_experiences} experiences: choose 1 to 10")
    classes = [tuple(part.tolist()) for part in np.array_split(np.arange(10), n_experiences)]
    (train, train_y), (test, test_y) = standardized(
        arrays.digits(), DIGITS_TEST_SHARE, train_fraction
    )[:2]
    return assemble(train=by_class(train, train_y, classes), test=by_class(test, test_y, classes))


def sorted_tabular(
    dataset: str | Table,
    feature: int | str = 0,
    n_experiences: int = 10,
    *,
    root: str | Path | None = None,
    train_fraction: float = 1.0,
) -> CLScenario:
    """The paper's task-free stream: training rows sorted by one feature, cut into equal parts.

    :param dataset: ``covertype``, ``electricity``, ``digits`` or a table of the user's own
        (:func:`benchmarks.arrays.table_from_csv`).
    :param feature: position or name of the feature to sort by; ties stay in the source's order.
    """
    table = arrays.load_table(dataset, root) if isinstance(dataset, str) else dataset
    return tabular(table, n_experiences, train_fraction, order=table.column(feature))


def iid_tabular(
    dataset: str | Table,
    n_experiences: int = 10,
    *,
    root: str | Path | None = None,
    train_fraction: float = 1.0,
) -> CLScenario:
    """The paper's sanity check: every experience is a uniform subsample of the training rows."""
    table = arrays.load_table(dataset, root) if isinstance(dataset, str) else dataset
    return tabular(table, n_experiences, train_fraction, order="random")


def tabular(
    table: Table, n_experiences: int, train_fraction: float, *, order: int | str
) -> CLScenario:
    """Cut the training rows into experiences; one test set.

    :param order: a column to sort by, ``random``, or ``source`` to keep the rows as they come.
    """
    share = DIGITS_TEST_SHARE if table.name == "digits" else TEST_SHARE
    (train, train_y), (test, test_y), rows = standardized(table, share, train_fraction)
    if not 1 <= n_experiences <= len(train_y):
        raise UsageError(
            f"{len(train_y)} training rows of {table.name} cannot be cut into {n_experiences} "
            "experiences: take a larger --train-fraction or a longer table"
        )
    if isinstance(order, int):
        positions = np.argsort(table.features[rows, order], kind="stable")
    elif order == "random":
        positions = np.random.default_rng(SPLIT_SEED + 1).permutation(len(train_y))
    else:
        positions = np.arange(len(train_y))
    parts = np.array_split(positions, n_experiences)
    train_sets = [task_free(train[part], train_y[part]) for part in parts]
    return assemble(train=train_sets, test=[task_free(test, test_y)])


def standardized(
    table: Table, test_share: float, train_fraction: float = 1.0
) -> tuple[tuple[Tensor, Labels], tuple[Tensor, Labels], Labels]:
    """Split a table and standardise both parts by the mean and deviation of the training part.

    The statistics are those of the whole training part, whatever ``train_fraction`` keeps of it.

    :returns: train inputs and labels, test inputs and labels, and the table's rows in train.
    """
    train, test = split_rows(table, test_share)
    mean, deviation = statistics(table, train)
    train = train[subsample(len(train), train_fraction)]
    scaled = [
        torch.from_numpy(((table.features[rows] - mean) / deviation).astype(np.float32))
        for rows in (train, test)
    ]
    return (scaled[0], table.labels[train]), (scaled[1], table.labels[test]), train


def split_rows(table: Table, test_share: float) -> tuple[Labels, Labels]:
    """Sorted positions of the training rows and of the test rows, the same in every run."""
    order = np.random.default_rng(SPLIT_SEED).permutation(len(table.labels))
    num_test = round(test_share * len(order))
    if not 0 < num_test < len(order):
        raise UsageError(f"{table.name} has too few rows ({len(order)}) to set a test set aside")
    return np.sort(order[num_test:]), np.sort(order[:num_test])


def statistics(table: Table, rows: Labels) -> tuple[Doubles, Doubles]:
    """Mean and deviation of each feature over some rows; 0 and 1 for what is not to be scaled.

    Indicators (0 or 1) are left as they are: divided by its deviation, a rare one would reach
    hundreds, and a few examples would outweigh all others in every gradient.
    """
    features = table.features[rows]
    mean = features.mean(axis=0, dtype=np.float64)
    deviation = features.std(axis=0, dtype=np.float64)
    deviation[deviation == 0] = 1.0
    indicators = ((features == 0) | (features == 1)).all(axis=0)
    mean[indicators], deviation[indicators] = 0.0, 1.0
    return mean, deviation
