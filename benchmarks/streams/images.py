"""Streams of images: two new classes at a time.

Every function returns a benchmark with a ``train_stream`` and a ``test_stream``; the test stream
as a whole is the full, untouched test set.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from avalanche.benchmarks import CLScenario
from torchvision import transforms

from benchmarks.data import arrays
from benchmarks.data.arrays import Images
from benchmarks.streams.assembly import assemble, by_class, subsample

# Mean and deviation of the training pixels, the numbers Avalanche's own benchmarks use.
FASHION_MNIST_PIXELS = ((0.2860,), (0.3530,))
CIFAR10_PIXELS = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
CLASS_PAIRS = ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))


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
