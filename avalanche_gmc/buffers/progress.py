"""How far an embedding is: the examples that were read."""

from __future__ import annotations

from typing import Any

from avalanche.benchmarks.utils import AvalancheDataset
from tqdm import tqdm


class Counted:
    """A dataset that moves a bar when its items are read in order.

    Items that an embedding reads out of order, to calibrate itself, do not count.
    """

    def __init__(self, data: AvalancheDataset, bar: tqdm[None]) -> None:
        self._data = data
        self._bar = bar

    def __len__(self) -> int:
        return len(self._data)

    def __getattr__(self, name: str) -> Any:
        # Such as the dataset's targets and task labels.
        return getattr(self._data, name)

    def __getitem__(self, index: int) -> Any:
        if index == self._bar.n:
            self._bar.update()
        return self._data[index]
