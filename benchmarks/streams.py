"""The paper's streams, built with Avalanche's stream API.

Every function returns a benchmark with a ``train_stream`` and a ``test_stream``; the test stream
as a whole is the full, untouched test set. Samples are ``(x, y, task label 0)``: buffers that
balance classes or experiences rely on the label being there.

Shapes: N examples, F features, K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from avalanche.benchmarks import (
    CLScenario,
    SplitCIFAR10,
    SplitFMNIST,
    benchmark_from_datasets,
    with_classes_timeline,
    with_task_labels,
)
from avalanche.benchmarks.utils import AvalancheDataset
from avalanche.benchmarks.utils.classification_dataset import ClassificationDataset
from avalanche.benchmarks.utils.data_attribute import DataAttribute, TaskLabels
from avalanche.benchmarks.utils.flat_data import ConstantSequence
from torch import Tensor
from torch.utils.data import TensorDataset
from torchvision import transforms

from benchmarks import UsageError, arrays
from benchmarks.arrays import Doubles, Images, Labels, Table
from benchmarks.data import CIFAR10_PICKLED, data_root, ensure

# Mean and deviation of the training pixels, the numbers Avalanche's own benchmarks use.
FASHION_MNIST_PIXELS = ((0.2860,), (0.3530,))
CIFAR10_PIXELS = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
CLASS_PAIRS = ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))

# The split and the subsample belong to the benchmark, not to a run: they never follow its seed.
SPLIT_SEED = 0
TEST_SHARE = 0.2
# The most informative pixel of the digits: the largest mutual information with the class.
DIGITS_FEATURE = 26
DIGITS_TEST_SHARE = 0.3


def split_fashion_mnist(
    root: str | Path | None = None, *, in_memory: bool = True, train_fraction: float = 1.0
) -> CLScenario:
    """Split Fashion-MNIST: classes {0,1}, {2,3}, … {8,9}.

    :param root: folder of the data, see `benchmarks.data`.
    :param in_memory: hold normalised float images, which trains several times faster than
        decoding each image each time; ``False`` gives Avalanche's own ``SplitFMNIST``. Both
        deliver the same numbers; Avalanche lists an experience class by class, where the order
        in memory is the published one, as a stream of two mixed classes would arrive.
    :param train_fraction: share of the training images to keep, the same ones in every run.
    """
    if not in_memory and train_fraction == 1.0:
        ensure("fashion-mnist", root)
        pixels = image_transform(*FASHION_MNIST_PIXELS)
        return SplitFMNIST(
            5,
            fixed_class_order=list(range(10)),
            train_transform=pixels,
            eval_transform=pixels,
            dataset_root=data_root(root),
        )
    return split_images(arrays.fashion_mnist(root), FASHION_MNIST_PIXELS, train_fraction)


def split_cifar10(
    root: str | Path | None = None, *, in_memory: bool = True, train_fraction: float = 1.0
) -> CLScenario:
    """Split CIFAR-10: classes {0,1}, {2,3}, … {8,9}, without augmentation as in the paper.

    :param in_memory: as in :func:`split_fashion_mnist`; ``False`` needs the pickled batches that
        torchvision insists on, and falls back to memory where only the binary ones are there.
    """
    _, layout = ensure("cifar10", root)
    if not in_memory and train_fraction == 1.0 and layout is CIFAR10_PICKLED:
        pixels = image_transform(*CIFAR10_PIXELS)
        return SplitCIFAR10(
            5,
            fixed_class_order=list(range(10)),
            train_transform=pixels,
            eval_transform=pixels,
            dataset_root=data_root(root),
        )
    return split_images(arrays.cifar10(root), CIFAR10_PIXELS, train_fraction)


def image_transform(mean: Sequence[float], deviation: Sequence[float]) -> transforms.Compose:
    """From a PIL image to a normalised tensor."""
    return transforms.Compose([transforms.ToTensor(), transforms.Normalize(mean, deviation)])


def split_images(
    images: Images, pixels: tuple[Sequence[float], Sequence[float]], train_fraction: float
) -> CLScenario:
    """A class-incremental benchmark of two classes per experience, held in memory."""
    normalize = transforms.Normalize(*pixels)
    kept = subsample(len(images.train[1]), train_fraction)
    train = images.train[0][kept], images.train[1][kept]
    streams = {}
    for name, (inputs, labels) in {"train": train, "test": images.test}.items():
        floats = normalize(torch.from_numpy(inputs).float() / 255)
        streams[name] = by_class(floats, labels, CLASS_PAIRS)
    return assemble(**streams)


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
            f"{len(train_y)} training rows cannot be cut into {n_experiences} experiences"
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


def subsample(count: int, fraction: float) -> Labels:
    """Sorted positions of a fixed uniform subsample."""
    if not 0 < fraction <= 1:
        raise UsageError(f"the train fraction must lie in (0, 1] but is {fraction}")
    order = np.random.default_rng(SPLIT_SEED + 2).permutation(count)
    return np.sort(order[: max(1, round(fraction * count))])


def by_class(
    inputs: Tensor, labels: Labels, classes: Sequence[Sequence[int]]
) -> list[AvalancheDataset]:
    """One data set per group of classes, in the source's order."""
    groups = [np.flatnonzero(np.isin(labels, group)) for group in classes]
    return [task_free(inputs[rows], labels[rows]) for rows in groups]


def assemble(**streams: Sequence[AvalancheDataset]) -> CLScenario:
    """An Avalanche benchmark with task labels and the timeline of classes attached."""
    return with_task_labels(with_classes_timeline(benchmark_from_datasets(**streams)))


def task_free(inputs: Tensor, labels: Labels) -> AvalancheDataset:
    """An AvalancheDataset in memory, ready for a model, whose samples carry the task label 0.

    :param inputs: N×… float32.
    :param labels: N.
    """
    attributes = [
        DataAttribute(labels.tolist(), "targets"),
        TaskLabels(ConstantSequence(0, len(labels))),
    ]
    samples = TensorDataset(inputs, torch.from_numpy(labels))
    return ClassificationDataset([samples], data_attributes=attributes)


def stacked(stream: Sequence[object]) -> tuple[Tensor, Tensor]:
    """All samples of a stream as tensors: inputs N×… and labels N (int64)."""
    inputs, labels = [], []
    for experience in stream:
        for sample in experience.dataset:  # type: ignore[attr-defined]
            inputs.append(sample[0])
            labels.append(int(sample[1]))
    return torch.stack(inputs), torch.tensor(labels)
