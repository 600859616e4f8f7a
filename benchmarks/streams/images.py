"""Streams of images: pairs of classes, one after the other.

Every function returns a benchmark with a ``train_stream`` and a ``test_stream``; the test stream
as a whole is the full, untouched test set.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from avalanche.benchmarks import CLScenario
from torch import Tensor
from torchvision import transforms

from benchmarks import UsageError
from benchmarks.data import arrays
from benchmarks.data.arrays import Bytes, Images
from benchmarks.streams.assembly import assemble, by_class, subsample, task_free

# Mean and deviation of the training pixels, the numbers Avalanche's own benchmarks use.
FASHION_MNIST_PIXELS = ((0.2860,), (0.3530,))
CIFAR10_PIXELS = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
MNIST_PIXELS = ((0.1307,), (0.3081,))
CLASS_PAIRS = ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))
IMBALANCED_COUNTS, IMBALANCED_BATCH = (200, 200, 200, 200, 2000), 125


def split_fashion_mnist(root: str | Path | None = None, train_fraction: float = 1.0) -> CLScenario:
    """Split Fashion-MNIST: classes {0,1}, {2,3}, … {8,9}.

    The numbers are those of Avalanche's ``SplitFMNIST`` in its normalised form. They are held in
    memory, which trains several times faster than decoding each image each time, and in the
    published order, as a stream of two mixed classes would arrive.

    :param root: folder of the data, see `benchmarks.data.datasets`.
    :param train_fraction: part of the training images to keep, the same ones in every run.
    """
    return split_images(arrays.fashion_mnist(root), FASHION_MNIST_PIXELS, train_fraction)


def split_cifar10(root: str | Path | None = None, train_fraction: float = 1.0) -> CLScenario:
    """Split CIFAR-10: classes {0,1}, {2,3}, … {8,9}, without augmentation as in the paper."""
    return split_images(arrays.cifar10(root), CIFAR10_PIXELS, train_fraction)


def split_mnist(
    root: str | Path | None = None, train_fraction: float = 1.0, seed: int = 0
) -> CLScenario:
    """Split-MNIST: digits {0,1}, {2,3}, … {8,9}, the images of each pair in random order.

    In the published order, class balancing would keep the first images of the last classes, which
    have few writers.

    :param seed: of the order.
    """
    return split_images(shuffled(arrays.mnist(root), seed), MNIST_PIXELS, train_fraction)


def shuffled_cifar10(
    root: str | Path | None = None, train_fraction: float = 1.0, seed: int = 0
) -> CLScenario:
    """Split CIFAR-10 with the images of each pair in random order.

    :param seed: of the order.
    """
    return split_images(shuffled(arrays.cifar10(root), seed), CIFAR10_PIXELS, train_fraction)


def shuffled(images: Images, seed: int) -> Images:
    """The same with the training images in random order."""
    order = np.random.default_rng(seed).permutation(len(images.train[1]))
    inputs, labels = images.train
    return Images((inputs[order], labels[order]), images.test)


def split_images(
    images: Images, pixels: tuple[Sequence[float], Sequence[float]], train_fraction: float
) -> CLScenario:
    """A class-incremental benchmark of two classes per experience, held in memory."""
    kept = subsample(len(images.train[1]), train_fraction)
    train = images.train[0][kept], images.train[1][kept]
    return assemble(
        **{
            name: by_class(normalized(inputs, pixels), labels, CLASS_PAIRS)
            for name, (inputs, labels) in {"train": train, "test": images.test}.items()
        }
    )


def imbalanced_mnist(root: str | Path | None = None, train_fraction: float = 1.0) -> CLScenario:
    """The imbalanced stream of Borsos et al. (2020): Split-MNIST, nearly all of it the last task.

    200 random training images of each of the first four pairs of classes and 2,000 of the last, in
    this order, in experiences of 125; what does not fill one is dropped. The images are those of
    the authors, drawn once: their five runs differ in model and memory only. Other images give
    other accuracies, by as much as two memories differ.
    """
    images, draw = arrays.mnist(root), np.random.RandomState(0)
    inputs, labels = normalized(images.train[0], MNIST_PIXELS), images.train[1]
    parts = []
    for classes, whole in zip(CLASS_PAIRS, IMBALANCED_COUNTS, strict=True):
        count = max(1, round(train_fraction * whole))
        rows = draw.choice(np.flatnonzero(np.isin(labels, classes)), count, replace=False)
        parts.append(rows[np.random.RandomState(0).permutation(count)])
    order = np.concatenate(parts)
    full = len(order) // IMBALANCED_BATCH
    if not full:
        raise UsageError(f"{len(order)} images do not fill an experience: take more of the stream")
    batches = np.split(order[: full * IMBALANCED_BATCH], full)
    return assemble(
        train=[task_free(inputs[rows], labels[rows]) for rows in batches],
        test=by_class(normalized(images.test[0], MNIST_PIXELS), images.test[1], CLASS_PAIRS),
    )


def black(statistics: tuple[Sequence[float], Sequence[float]]) -> Tensor:
    """What :func:`normalized` makes of a black pixel: C."""
    mean, deviation = map(torch.tensor, statistics)
    return -mean / deviation


def normalized(pixels: Bytes, statistics: tuple[Sequence[float], Sequence[float]]) -> Tensor:
    """N×C×H×W bytes as floats of about mean 0 and deviation 1."""
    result: Tensor = transforms.Normalize(*statistics)(torch.from_numpy(pixels).float() / 255)
    return result
