"""The memories that the paper compares with and Avalanche does not have.

Uniform samples and class-balanced reservoirs are Avalanche's own: ``ReservoirSamplingBuffer`` and
``ClassBalancedBuffer``.
"""

from __future__ import annotations

from typing import Any

from avalanche.benchmarks.utils import AvalancheDataset

from avalanche_gmc.buffers.base import OwningBuffer, checked
from avalanche_gmc.buffers.baselines.by_class import Classes, ClassRuleBuffer
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


class GreedyClassBalancedBuffer(ClassRuleBuffer):
    """GDumb's greedy class-balancing sampler (Prabhu et al., 2020).

    A new example enters while the memory is not full, or if its class has fewer exemplars than an
    equal share, ``max_size`` divided by the number of classes seen so far; a random exemplar of the
    largest class then leaves. So the memory is full as soon as enough examples were seen, and is
    not smaller because a class is rare.

    :param max_size: the number of exemplars.
    :param seed: decides which exemplars leave.
    """

    def __init__(self, max_size: int, seed: int = 0) -> None:
        super().__init__(max_size, _EqualShares(seed))


class _EqualShares(Classes):
    """The rule, with the classes seen."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._seen: set[int] = set()

    def offer(self, position: int, label: int, max_size: int) -> None:
        self._seen.add(label)
        if self.size < max_size:
            self.add(position, label)
        elif len(self.members.get(label, ())) < max_size / len(self._seen):
            self.drop_from_largest()
            self.add(position, label)


def _last(exemplars: Exemplars, size: int) -> Exemplars:
    excess = len(exemplars) - size
    return exemplars if excess <= 0 else exemplars.take(range(excess, len(exemplars)))
