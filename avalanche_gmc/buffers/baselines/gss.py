"""GSS: exemplars whose gradients point in different directions.

Letters: N candidates, n exemplars, D dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from avalanche_gmc.buffers.base import checked
from avalanche_gmc.buffers.baselines.geometry import BLOCK
from avalanche_gmc.buffers.baselines.selection import (
    Candidates,
    Embedding,
    Selection,
    SelectionBuffer,
)
from avalanche_gmc.buffers.embedding_choice import LOCAL
from avalanche_gmc.dictionary import Dictionary
from avalanche_gmc.initialization import derive_seed


class GSSBuffer(SelectionBuffer):
    """Gradient-based sample selection, greedy version (Aljundi et al., NeurIPS 2019, algorithm 2).

    The score of a new example is one plus the largest cosine of its gradient and those of a few
    random exemplars. It enters while there is room. Later it competes if its score is below 1,
    that is, if all these cosines are negative: an exemplar is drawn with a probability in
    proportion to the scores, and is replaced with the probability score / (score + new score).

    What enters depends on the weights. If the model has just learnt the exemplars and nothing
    else, as with GDumb, their gradients come in opposite directions (those of two classes raise and
    lower the same two outputs). A new example then has a positive cosine with some of them, and
    hardly anything enters. With replay the model has learnt the new examples, too, and more do. At
    random draws (``embedding="last-layer"``) only examples of one class have positive cosines, and
    new classes enter until they have their part.

    Where this departs from the paper:

    1. Gradients are of the last layer, at the weights the model has when the buffer is updated:
       once per experience, where the paper takes the weights at each minibatch.
    2. The first example of all has no exemplars to be compared with; its score is 1.
    3. If the memory shrinks, exemplars leave with a probability in proportion to their scores.

    :param max_size: the number of exemplars.
    :param embedding: see :class:`SelectionBuffer`. None is ``"local"``, the paper's: it needs a
        strategy, whose model it takes as it is.
    :param num_compared: how many random exemplars a new example is compared with.
    :param seed: of the sampling (and of draws).
    """

    default_embedding = LOCAL
    always_selects = True

    def __init__(
        self, max_size: int, embedding: Embedding = None, *, num_compared: int = 10, seed: int = 0
    ) -> None:
        super().__init__(max_size, embedding, seed=seed)
        self._num_compared = checked("num_compared", num_compared, least=1)

    def _select(self, candidates: Candidates, size: int) -> Selection:
        generator = np.random.default_rng(
            derive_seed(self._seed, candidates.num_seen, candidates.stored)
        )
        scores = [] if candidates.summary is None else list(candidates.summary)
        members = list(range(candidates.stored))
        while len(members) > size:
            leaving = _draw(scores, generator)
            del members[leaving], scores[leaving]
        directions = np.zeros((size, candidates.atoms.dim))
        _fill(directions, candidates.atoms, members)
        new = range(candidates.stored, len(candidates)) if size else range(0)
        for candidate, direction in _directions(candidates.atoms, new):
            count = len(members)
            compared = generator.choice(count, min(self._num_compared, count), replace=False)
            score = _score(directions[compared], direction)
            place = count
            if count == size:
                if score >= 1:
                    continue
                place = _draw(scores, generator)
                if generator.random() * (scores[place] + score) >= scores[place]:
                    continue
            directions[place] = direction
            members[place : place + 1], scores[place : place + 1] = [candidate], [score]
        return Selection(torch.tensor(members, dtype=torch.long), summary=scores)


def _score(directions: NDArray[Any], direction: NDArray[Any]) -> float:
    """One plus the largest cosine, 1 if there is nothing to compare with."""
    return max(0.0, 1.0 + float((directions @ direction).max())) if len(directions) else 1.0


def _draw(scores: list[float], generator: np.random.Generator) -> int:
    """A place with a probability in proportion to its score."""
    totals = np.cumsum(scores) if sum(scores) > 0 else np.arange(1.0, len(scores) + 1)
    place = np.searchsorted(totals, generator.random() * totals[-1], side="right")
    return min(int(place), len(scores) - 1)


def _directions(atoms: Dictionary, places: range) -> Iterator[tuple[int, NDArray[Any]]]:
    """Atoms at unit length, one after the other; zero atoms stay zero."""
    for first in range(places.start, places.stop, BLOCK):
        block = range(first, min(first + BLOCK, places.stop))
        rows = atoms.rows(torch.tensor(block, device=atoms.device))
        units = torch.nn.functional.normalize(rows).cpu().double().numpy()
        yield from zip(block, units, strict=True)


def _fill(directions: NDArray[Any], atoms: Dictionary, members: list[int]) -> None:
    for place, member in enumerate(members):
        directions[place] = next(_directions(atoms, range(member, member + 1)))[1]
