"""CBRS: a reservoir that keeps all of the rare classes."""

from __future__ import annotations

import copy
import random
from collections import Counter
from typing import Any

from avalanche.benchmarks.utils import AvalancheDataset

from avalanche_gmc.buffers.base import OwningBuffer, checked, class_labels
from avalanche_gmc.exemplars import Exemplars


class CBRSBuffer(OwningBuffer):
    """Class-balancing reservoir sampling (Chrysakis and Moens, ICML 2020, algorithm 1).

    A class is *full* from the moment when no class has more exemplars, in a memory without room.
    A new example of a class that is not full replaces a random exemplar of the largest class. One
    of a full class replaces a random exemplar of its class, with the probability that makes these a
    uniform sample of the class: the number of its exemplars divided by the number seen of it.

    Where this departs from the paper: if several classes are largest, the one of the smallest label
    loses an exemplar; and if the memory shrinks, random exemplars of the largest class leave first.

    :param max_size: the number of exemplars.
    :param seed: of the sampling.
    """

    def __init__(self, max_size: int, seed: int = 0) -> None:
        super().__init__(max_size)
        self._exemplars = Exemplars()
        self._classes = _Classes(random.Random(seed))

    def _take_in(self, data: AvalancheDataset, strategy: Any) -> None:
        stored = len(self._exemplars)
        classes = copy.deepcopy(self._classes)
        for position, label in enumerate(class_labels(data), start=stored):
            classes.offer(position, label, self.max_size)
        kept = classes.number_anew()
        entered = Exemplars.copy_of(data, (p - stored for p in kept if p >= stored))
        self._exemplars = self._exemplars.take(p for p in kept if p < stored).concat(entered)
        self._classes = classes

    def resize(self, strategy: Any, new_size: int) -> None:
        """Change the number of exemplars; random ones of the largest class leave first.

        :param strategy: not used.
        :param new_size: the new ``max_size``.
        """
        self.max_size = checked("the size of a memory", new_size, least=0)
        if len(self._exemplars) > new_size:
            self._classes.shrink(new_size)
            self._exemplars = self._exemplars.take(self._classes.number_anew())

    def _shown(self) -> Exemplars:
        return self._exemplars


class _Classes:
    """The positions of the exemplars of each class, and what was seen of it."""

    def __init__(self, generator: random.Random) -> None:
        self._generator = generator
        self._members: dict[int, list[int]] = {}
        self._seen: Counter[int] = Counter()
        self._full: set[int] = set()
        self._size = 0

    def offer(self, position: int, label: int, max_size: int) -> None:
        """Take a new example, or leave it."""
        self._seen[label] += 1
        own = self._members.setdefault(label, [])
        if self._size < max_size:
            own.append(position)
            self._size += 1
            if self._size == max_size:
                self._mark_full()
        elif label not in self._full and max_size > 0:
            self._remove_from_largest()
            own.append(position)
            self._mark_full()
        elif self._generator.random() * self._seen[label] < len(own):
            own[self._generator.randrange(len(own))] = position

    def shrink(self, size: int) -> None:
        while self._size > size:
            self._remove_from_largest()
            self._size -= 1
        self._mark_full()

    def number_anew(self) -> list[int]:
        """The positions kept, ascending; from now on they are 0, 1, 2, ..."""
        kept = sorted(position for members in self._members.values() for position in members)
        place = {position: rank for rank, position in enumerate(kept)}
        self._members = {c: [place[p] for p in own] for c, own in self._members.items()}
        return kept

    def _largest(self) -> int:
        return max(len(members) for members in self._members.values())

    def _mark_full(self) -> None:
        most = self._largest()
        self._full |= {label for label, own in self._members.items() if len(own) == most}

    def _remove_from_largest(self) -> None:
        most = self._largest()
        members = next(m for _, m in sorted(self._members.items()) if len(m) == most)
        members.pop(self._generator.randrange(len(members)))
