"""A stream of any length that occupies no memory: examples are drawn again whenever they are read.

Letters: N examples, F features, K classes.

An example's features and label follow from its index alone, a block of neighbours at a time. The
features are a prototype of the class plus Gaussian noise, whose standard deviations fall as the
inverse square root of the position, as those of natural data do.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import torch
from avalanche.benchmarks.utils import AvalancheDataset, DataAttribute
from avalanche.benchmarks.utils.classification_dataset import ClassificationDataset
from torch import Tensor
from torch.utils.data import Dataset

BLOCK = 256
FEATURES = 64
CLASSES = 10
DEVIATIONS = (3 * np.arange(1, FEATURES + 1) ** -0.5).astype(np.float32)
# A seed that no block has: their seeds are their numbers.
PROTOTYPES = np.random.default_rng(2**40).standard_normal((CLASSES, FEATURES), dtype=np.float32)
PROTOTYPES *= DEVIATIONS


class BlockDataset(Dataset[tuple[Tensor, int]]):
    """The examples ``first`` to ``first + count`` of the endless stream."""

    def __init__(self, first: int, count: int) -> None:
        self._first = first
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        number, position = divmod(self._first + index, BLOCK)
        features, labels = _block(number)
        return features[position], int(labels[position])


def experiences(examples: int, count: int) -> Iterator[AvalancheDataset]:
    """The first examples of the stream as ``count`` data sets of about equal size."""
    bounds = [examples * k // count for k in range(count + 1)]
    for first, last in itertools.pairwise(bounds):
        labels = _labels(first, last)
        yield ClassificationDataset(
            [BlockDataset(first, last - first)], data_attributes=[DataAttribute(labels, "targets")]
        )


def examples(count: int) -> tuple[Tensor, Tensor]:
    """The first examples as tensors: N×F and N."""
    blocks = [_block(number) for number in range(-(-count // BLOCK))]
    features, labels = (torch.cat(parts)[:count] for parts in zip(*blocks, strict=True))
    return features, labels


def _labels(first: int, last: int) -> list[int]:
    blocks = range(first // BLOCK, -(-last // BLOCK))
    labels = torch.cat([_block(number)[1] for number in blocks])
    return labels[first - blocks.start * BLOCK :][: last - first].tolist()


@lru_cache(maxsize=64)
def _block(number: int) -> tuple[Tensor, Tensor]:
    """Features (256×F) and labels (256)."""
    draw = np.random.default_rng(number)
    labels = draw.integers(CLASSES, size=BLOCK)
    noise = draw.standard_normal((BLOCK, FEATURES), dtype=np.float32) * DEVIATIONS
    return torch.from_numpy(PROTOTYPES[labels] + noise), torch.from_numpy(labels)
