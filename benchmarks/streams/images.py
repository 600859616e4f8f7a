"""Streams of images: two new classes at a time.

Every function returns a benchmark with a ``train_stream`` and a ``test_stream``; the test stream
as a whole is the full, untouched test set.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from avalanche.benchmarks import CLScenario, SplitCIFAR10, SplitFMNIST
from torchvision import transforms

from benchmarks.data import arrays
from benchmarks.data.arrays import Images
from benchmarks.data.datasets import CIFAR10_PICKLED, data_root, ensure
from benchmarks.streams.assembly import assemble, by_class, subsample

# Mean and deviation of the training pixels, the numbers Avalanche's own benchmarks use.
FASHION_MNIST_PIXELS = ((0.2860,), (0.3530,))
CIFAR10_PIXELS = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
CLASS_PAIRS = ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))


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
    if not in_memory and train_fraction == 1.0 and layout == CIFAR10_PICKLED:
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
