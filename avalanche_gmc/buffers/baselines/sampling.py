"""The memories that the paper compares with and Avalanche does not have.

Uniform samples and class-balanced reservoirs are Avalanche's own: ``ReservoirSamplingBuffer`` and
``ClassBalancedBuffer``.
"""

from __future__ import annotations

import copy
import random
from typing import Any

from avalanche.benchmarks.utils import AvalancheDataset

from avalanche_gmc.buffers.base import OwningBuffer, checked, class_labels
from avalanche_gmc.exemplars import Exemplars


class SlidingWindowBuffer(OwningBuffer):
    """The most recent examples, oldest first.

    :param max_size: how many.
    """

    def __init__(self, max_size: int) -> None:
        super().__init__(max_size)
        self._exemplars = Exemplars()

    def _take_in(self, data: AvalancheDataset, strategy: Any) -> None:
        first = max(0, len(data) - self.max_size)
        new = Exemplars.copy_of(data, range(first, len(data)))
        self._exemplars = _last(self._exemplars.concat(new), self.max_size)

    def resize(self, strategy: Any, new_size: int) -> None:
        """Change the number of exemplars; the oldest leave first.

        :param strategy: not used.
        :param new_size: the new ``max_size``.
        """
        self.max_size = checked("the size of a memory", new_size, least=0)
        self._exemplars = _last(self._exemplars, new_size)

    def _shown(self) -> Exemplars:
        return self._exemplars


class GreedyClassBalancedBuffer(OwningBuffer):
    """GDumb's greedy class-balancing sampler (Prabhu et al., 2020).

    A new example enters while the memory is not full, or if its class has fewer exemplars than an
    equal share, ``max_size`` divided by the number of classes seen so far; a random exemplar of the
    largest class then leaves. So the memory is full as soon as enough examples were seen, and is
    not smaller because a class is rare.

    :param max_size: the number of exemplars.
    :param seed: decides which exemplars leave.
    """

    def __init__(self, max_size: int, seed: int = 0) -> None:
        super().__init__(max_size)
        self._exemplars = Exemplars()
        self._random = random.Random(seed)
        self._seen_classes: set[int] = set()

    def _take_in(self, data: AvalancheDataset, strategy: Any) -> None:
        stored = len(self._exemplars)
        seen = set(self._seen_classes)
        slots = _Slots(self._members(), copy.copy(self._random))
        for index, label in enumerate(class_labels(data)):
            seen.add(label)
            if len(slots) < self.max_size:
                slots.add(stored + index, label)
            elif slots.size_of(label) < self.max_size / len(seen):
                slots.evict()
                slots.add(stored + index, label)
        kept = sorted(slots.positions())
        entered = Exemplars.copy_of(data, (p - stored for p in kept if p >= stored))
        exemplars = self._exemplars.take(p for p in kept if p < stored).concat(entered)
        self._exemplars, self._random, self._seen_classes = exemplars, slots.generator, seen

    def resize(self, strategy: Any, new_size: int) -> None:
        """Change the number of exemplars; random ones of the largest class leave first.

        :param strategy: not used.
        :param new_size: the new ``max_size``.
        """
        self.max_size = checked("the size of a memory", new_size, least=0)
        if len(self._exemplars) <= new_size:
            return
        slots = _Slots(self._members(), self._random)
        while len(slots) > new_size:
            slots.evict()
        self._exemplars = self._exemplars.take(sorted(slots.positions()))

    def _shown(self) -> Exemplars:
        return self._exemplars

    def _members(self) -> list[int]:
        return class_labels(self.buffer) if len(self._exemplars) else []


class _Slots:
    """Which positions of [memory, new examples] are in, class by class."""

    def __init__(self, labels: list[int], generator: random.Random) -> None:
        self.generator = generator
        self._by_class: dict[int, list[int]] = {}
        self._size = 0
        for position, label in enumerate(labels):
            self.add(position, label)

    def __len__(self) -> int:
        return self._size

    def size_of(self, label: int) -> int:
        return len(self._by_class.get(label, ()))

    def add(self, position: int, label: int) -> None:
        self._by_class.setdefault(label, []).append(position)
        self._size += 1

    def evict(self) -> None:
        """Drop a random member of the largest class, of the smallest label if there are several."""
        largest = max(sorted(self._by_class), key=self.size_of)
        members = self._by_class[largest]
        members.pop(self.generator.randrange(len(members)))
        self._size -= 1

    def positions(self) -> list[int]:
        return [position for members in self._by_class.values() for position in members]


def _last(exemplars: Exemplars, size: int) -> Exemplars:
    excess = len(exemplars) - size
    return exemplars if excess <= 0 else exemplars.take(range(excess, len(exemplars)))
