"""What memories share that decide example by example, by the class alone."""

from __future__ import annotations

import copy
import random
from abc import ABC, abstractmethod
from typing import Any

from avalanche.benchmarks.utils import AvalancheDataset

from avalanche_gmc.buffers.base import OwningBuffer, checked, class_labels
from avalanche_gmc.exemplars import Exemplars


class Classes(ABC):
    """The positions of the exemplars of each class, and the rule by which new examples enter.

    :param seed: of what the rule draws.
    """

    def __init__(self, seed: int) -> None:
        self.generator = random.Random(seed)
        self.members: dict[int, list[int]] = {}
        self.size = 0

    @abstractmethod
    def offer(self, position: int, label: int, max_size: int) -> None:
        """Take a new example, or leave it."""

    def add(self, position: int, label: int) -> None:
        """Take a new example."""
        self.members.setdefault(label, []).append(position)
        self.size += 1

    def shrink(self, size: int) -> None:
        """Drop random members of the largest classes."""
        while self.size > size:
            self.drop_from_largest()

    def drop_from_largest(self) -> None:
        """Drop a random member of the largest class, of the smallest label if there are several."""
        largest = max(sorted(self.members), key=lambda label: len(self.members[label]))
        members = self.members[largest]
        members.pop(self.generator.randrange(len(members)))
        self.size -= 1

    def number_anew(self) -> list[int]:
        """The positions kept, ascending; from now on they are 0, 1, 2, ..."""
        kept = sorted(position for members in self.members.values() for position in members)
        place = {position: rank for rank, position in enumerate(kept)}
        self.members = {c: [place[p] for p in own] for c, own in self.members.items()}
        return kept


class ClassRuleBuffer(OwningBuffer):
    """A memory by such a rule.

    :param max_size: the number of exemplars.
    :param classes: the rule.
    """

    def __init__(self, max_size: int, classes: Classes) -> None:
        super().__init__(max_size)
        self._exemplars = Exemplars()
        self._classes = classes

    def _take_in(self, data: AvalancheDataset, strategy: Any) -> None:
        stored = len(self._exemplars)
        classes = copy.deepcopy(self._classes)
        for position, label in enumerate(class_labels(data), start=stored):
            classes.offer(position, label, self.max_size)
        kept = classes.number_anew()
        entered = Exemplars.copy_of(data, (p - stored for p in kept if p >= stored))
        exemplars = self._exemplars.take(p for p in kept if p < stored).concat(entered)
        self._exemplars, self._classes = exemplars, classes

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
