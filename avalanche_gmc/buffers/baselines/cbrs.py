"""CBRS: a reservoir that keeps all of the rare classes."""

from __future__ import annotations

from collections import Counter

from avalanche_gmc.buffers.baselines.by_class import Classes, ClassRuleBuffer


class CBRSBuffer(ClassRuleBuffer):
    """Class-balancing reservoir sampling (Chrysakis and Moens, ICML 2020, algorithm 1).

    A class is *full* from the moment when no class has more exemplars, in a memory without room.
    A new example of a class that is not full replaces a random exemplar of the largest class. One
    of a full class replaces a random exemplar of its class, with the probability that makes these a
    uniform sample of the class: the number of its exemplars divided by the number seen of it.

    Where this departs from the paper: if several classes are largest, the one of the smallest label
    gives way; and if the memory shrinks, random exemplars of the largest class leave first.

    :param max_size: the number of exemplars.
    :param seed: of the sampling.
    """

    def __init__(self, max_size: int, seed: int = 0) -> None:
        super().__init__(max_size, _Reservoirs(seed))


class _Reservoirs(Classes):
    """The rule, with what was seen of each class."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._seen: Counter[int] = Counter()
        self._full: set[int] = set()

    def offer(self, position: int, label: int, max_size: int) -> None:
        self._seen[label] += 1
        if self.size < max_size:
            self.add(position, label)
            if self.size == max_size:
                self._mark_full()
        elif label not in self._full and max_size > 0:
            self.drop_from_largest()
            self.add(position, label)
            self._mark_full()
        else:
            own = self.members.get(label, [])
            if self.generator.random() * self._seen[label] < len(own):
                own[self.generator.randrange(len(own))] = position

    def shrink(self, size: int) -> None:
        super().shrink(size)
        self._mark_full()

    def _mark_full(self) -> None:
        most = max(len(members) for members in self.members.values())
        self._full |= {label for label, own in self.members.items() if len(own) == most}
