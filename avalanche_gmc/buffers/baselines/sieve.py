"""Sieve streaming (Badanidiyuru et al., 2014) for facility location, all thresholds at once.

Letters: W witnesses, T sieves, n elements to choose.

The value of a set of elements is the mean, over the witnesses, of the similarity to the closest
element. Each sieve guesses a value v for the best set of n elements, and lets an element in if it
gains at least ``(v/2 − value) / (n − size)``. The guesses are the powers of 1 + ε between the best
value m of a single element and 2·n·m; one of them is good enough to come within 1/2 − ε of the
optimum.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Sieves:
    """Sets of at most `size` elements, one for each guess. Elements are known by their ids.

    :param size: n, at least 1.
    :param epsilon: ε, how far apart the guesses are.
    """

    def __init__(self, size: int, epsilon: float) -> None:
        self.size = size
        self.epsilon = epsilon
        self.members: list[list[int]] = []
        self._best_single = 0.0
        self._powers = range(0)
        self._guesses = np.zeros(0)  # T
        self._counts = np.zeros(0)  # T
        self._values = np.zeros((0, 0))  # T×W, the similarity to the closest element
        self._totals = np.zeros(0)  # T, the values' means

    def __len__(self) -> int:
        return len(self.members)

    def offer(self, element: int, similarities: Array) -> None:
        """Let an element into the sieves that want it.

        :param element: its id.
        :param similarities: to the witnesses: W, at least 0.
        """
        single = float(similarities.mean())
        if single > self._best_single:
            self._best_single = single
            self._move_guesses(len(similarities))
        # No gain is larger than the element's value on its own.
        needed = self._needed()
        wanting = np.flatnonzero(needed <= single)
        values = np.maximum(self._values[wanting], similarities)
        totals = values.mean(axis=1)
        enough = totals - self._totals[wanting] >= needed[wanting]
        entered = wanting[enough]
        self._values[entered] = values[enough]
        self._totals[entered] = totals[enough]
        self._counts[entered] += 1
        for sieve in entered:
            self.members[sieve].append(element)

    def change_witnesses(self, columns: list[int], similarities: Array) -> None:
        """Judge the sieves by other, or more, witnesses.

        :param columns: which witnesses are new: r.
        :param similarities: of all elements, by id, to those: elements×r.
        """
        if not columns:
            return
        more = max(0, max(columns) + 1 - self._values.shape[1])
        self._values = np.pad(self._values, ((0, 0), (0, more)))
        for sieve, members in enumerate(self.members):
            best = similarities[members].max(axis=0) if members else 0.0
            self._values[sieve, columns] = best
        self._totals = self._values.mean(axis=1)

    def grow(self, size: int) -> None:
        """Make room for more elements."""
        self.size = size
        self._move_guesses(self._values.shape[1])

    def rename(self, ids: dict[int, int]) -> None:
        """Give the elements other ids."""
        self.members = [[ids[element] for element in members] for members in self.members]

    def best(self) -> list[int]:
        """The elements of the best sieve, filled up to n from the next best ones."""
        order = np.argsort(-self._totals, kind="stable")
        chosen = dict.fromkeys(element for sieve in order for element in self.members[sieve])
        return list(chosen)[: self.size]

    def _needed(self) -> Array:
        """The gain that each sieve asks for: T, infinite for a full one."""
        room = self.size - self._counts
        missing = self._guesses / 2 - self._totals
        return np.where(room > 0, missing / np.maximum(room, 1), np.inf)

    def _move_guesses(self, witnesses: int) -> None:
        """Sieves for the powers of 1 + ε in [m, 2·n·m]; those below have nothing to add."""
        if self._best_single == 0.0:
            return
        step = math.log1p(self.epsilon)
        lowest = math.ceil(math.log(self._best_single) / step)
        highest = math.floor(math.log(2 * self.size * self._best_single) / step)
        powers = range(lowest, max(highest, lowest) + 1)
        old = dict(zip(self._powers, zip(self.members, self._values, strict=True), strict=True))
        kept = [old.get(power, ([], np.zeros(witnesses))) for power in powers]
        self._powers = powers
        self._guesses = (1 + self.epsilon) ** np.array(powers, dtype=np.float64)
        self.members = [members for members, _ in kept]
        self._counts = np.array([float(len(members)) for members in self.members])
        self._values = np.stack([values for _, values in kept])
        self._totals = self._values.mean(axis=1)
