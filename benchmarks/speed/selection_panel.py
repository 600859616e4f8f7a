"""The dictionaries on which selection is timed.

Letters: N atoms, D dimensions, n picks, S draws.

Large and small, dense and structured, of real gradients and made up: what is fast on one of them
need not be on another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from avalanche_gmc import (
    DenseDictionary,
    Dictionary,
    LastLayerEmbedding,
    RandomProjectionEmbedding,
)
from benchmarks.data.arrays import fashion_mnist, load_table, mnist
from benchmarks.streams.models import cnn, mlp

RANK, NOISE = 40, 0.1


@dataclass(frozen=True)
class Case:
    """One dictionary, and how many of its atoms to pick.

    :param size: n.
    :param make: from the folder of the data sets, or None for the usual one.
    :param is_small: whether the slow methods are timed on it, too.
    """

    size: int
    make: Callable[[str | None], Dictionary]
    is_small: bool = False


def table(name: str, count: int, root: str | None) -> tuple[Tensor, Tensor]:
    """Standardised features (N×F) and labels (N) of random rows of a table."""
    whole = load_table(name, root)
    chosen = np.random.default_rng(0).permutation(len(whole.labels))[:count]
    features = whole.features[chosen].astype(np.float64)
    features = (features - features.mean(axis=0)) / (features.std(axis=0) + 1e-9)
    return torch.from_numpy(features.astype(np.float32)), torch.from_numpy(whole.labels[chosen])


def clothes(count: int, root: str | None) -> tuple[Tensor, Tensor]:
    """The first Fashion-MNIST images (N×1×28×28), standardised, and their labels (N)."""
    pixels, labels = fashion_mnist(root).train
    images = torch.from_numpy(pixels[:count].astype(np.float32) / 255)
    return (images - images.mean()) / images.std(), torch.from_numpy(labels[:count])


def fashion_mlp(root: str | None) -> Dictionary:
    images, labels = clothes(12_000, root)
    embedding = RandomProjectionEmbedding(lambda: mlp(784, 10), draws=4, dim=2000)
    return embedding.embed(images.flatten(1), labels)


def fashion_cnn(count: int) -> Callable[[str | None], Dictionary]:
    return lambda root: LastLayerEmbedding(lambda: cnn(10), draws=4).embed(*clothes(count, root))


def fashion_cnn_projection(root: str | None) -> Dictionary:
    embedding = RandomProjectionEmbedding(lambda: cnn(10), draws=4, dim=1000)
    return embedding.embed(*clothes(5000, root))


def fashion_wide(root: str | None) -> Dictionary:
    images, labels = clothes(4000, root)
    embedding = LastLayerEmbedding(lambda: mlp(784, 10, 1024), draws=4)
    return embedding.embed(images.flatten(1), labels)


def mnist_mlp(root: str | None) -> Dictionary:
    pixels, labels = (torch.from_numpy(array[:8000]) for array in mnist(root).train)
    images = (pixels.flatten(1).float() / 255 - 0.1307) / 0.3081
    return LastLayerEmbedding(lambda: mlp(784, 10), draws=4).embed(images, labels)


def tabular(
    name: str, count: int, classes: int, draws: int, dim: int | None = None
) -> Callable[[str | None], Dictionary]:
    """Gradients of the MLP on a table: of the last layer, or projected to ``dim`` per draw."""

    def make(root: str | None) -> Dictionary:
        features, labels = table(name, count, root)
        width = features.shape[1]
        if dim is None:
            last = LastLayerEmbedding(lambda: mlp(width, classes), draws=draws)
            return last.embed(features, labels)
        projection = RandomProjectionEmbedding(lambda: mlp(width, classes), draws=draws, dim=dim)
        return projection.embed(features, labels)

    return make


def low_rank(count: int, dim: int, clusters: int = 1) -> Callable[[str | None], Dictionary]:
    """Low rank plus noise, around the centres of clusters (around the origin if there is one)."""

    def make(_: str | None) -> Dictionary:
        draw = torch.Generator().manual_seed(0)
        atoms = torch.randn(count, RANK, generator=draw) @ torch.randn(RANK, dim, generator=draw)
        atoms = atoms / RANK**0.5 + NOISE * torch.randn(count, dim, generator=draw)
        if clusters > 1:
            members = torch.randint(clusters, (count,), generator=draw)
            atoms += 2 * torch.randn(clusters, dim, generator=draw)[members]
        return DenseDictionary(atoms)

    return make


def gaussian(count: int, dim: int) -> Callable[[str | None], Dictionary]:
    """Independent Gaussian numbers around a common mean."""

    def make(_: str | None) -> Dictionary:
        draw = torch.Generator().manual_seed(3)
        mean = 0.3 * torch.randn(1, dim, generator=draw)
        return DenseDictionary(torch.randn(count, dim, generator=draw) + mean)

    return make


CASES = {
    "fashion-mlp-projection": Case(1000, fashion_mlp),
    "fashion-cnn-last-layer": Case(1000, fashion_cnn(12_000)),
    "covertype-last-layer": Case(1000, tabular("covertype", 6000, 7, draws=16)),
    "electricity-projection": Case(500, tabular("electricity", 4100, 2, draws=4, dim=2000)),
    "low-rank-clusters": Case(500, low_rank(8000, 4000, clusters=7)),
    "electricity-last-layer": Case(500, tabular("electricity", 4100, 2, draws=4)),
    "low-rank-small": Case(150, low_rank(1500, 700), is_small=True),
    "digits-last-layer": Case(200, tabular("digits", 1257, 10, draws=4), is_small=True),
    "gaussian": Case(300, gaussian(5000, 2000)),
    "mnist-last-layer": Case(500, mnist_mlp),
    "covertype-projection": Case(400, tabular("covertype", 6000, 7, draws=2, dim=2000)),
    "fashion-cnn-projection": Case(400, fashion_cnn_projection),
    "fashion-wide-last-layer": Case(400, fashion_wide),
    "online-projection": Case(50, tabular("digits", 250, 10, draws=4, dim=250)),
    "online-last-layer": Case(100, fashion_cnn(500), is_small=True),
}
"""By name."""
