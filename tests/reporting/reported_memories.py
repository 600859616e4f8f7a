"""Small memories of images to report on, without training."""

from __future__ import annotations

from typing import Any

import torch
from avalanche.benchmarks.utils import _make_taskaware_classification_dataset
from small_streams import FirstComeBuffer
from torch import Tensor
from torch.utils.data import TensorDataset

from avalanche_gmc import MemoryHistory, SlidingWindowBuffer


def images(labels: list[int], *, seed: int = 0, channels: int = 1, side: int = 8) -> Any:
    """Random images, bytes, one for each label."""
    generator = torch.Generator().manual_seed(seed)
    shape = (len(labels), channels, side, side)
    pixels = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    return dataset(pixels, labels)


def dataset(inputs: Tensor, labels: list[int]) -> Any:
    return _make_taskaware_classification_dataset(
        TensorDataset(inputs, torch.tensor(labels)), targets=labels
    )


class WeightedWindow(SlidingWindowBuffer):
    """The latest examples, weighted 1, 2, 3, ... in their order."""

    residual_norm = 0.25

    @property
    def weights(self) -> Tensor:
        return torch.arange(1.0, 1 + len(self.buffer))


def window_history() -> tuple[WeightedWindow, MemoryHistory]:
    """A memory of 6 after three experiences: 4 images of classes 0 and 1, of 2 and 3, 4 of 4."""
    memory, history = WeightedWindow(6), MemoryHistory()
    for step, labels in enumerate(([0, 0, 1, 1], [2, 2, 3, 3], [4, 4, 4, 4])):
        memory.update_from_dataset(images(labels, seed=step))
        history.record(memory)
    return memory, history


def first_come(data: Any, size: int) -> FirstComeBuffer:
    """A memory of the first examples, without weights."""
    memory = FirstComeBuffer(size)
    memory.buffer = data.subset(list(range(size)))
    return memory
