"""Columns of the Gram matrix, fetched for the atoms that are likely to be picked next.

Letters: N atoms, k picks so far, m columns fetched at once, M candidates.

A column is of the parts of the atoms outside the picked span: ``G[:, p] − L L[p]ᵀ``. Many columns
at once are matrix–matrix products, several times as fast as one after the other. A trial among the
best atoms says which. A wrong guess costs time only, and a column that is not picked soon is kept:
nine of ten were picked in the end where this was counted (Fashion-MNIST, MLP).
"""

from __future__ import annotations

import numpy as np

from avalanche_gmc.dictionary.gram import Array, Gram, Ids
from avalanche_gmc.pursuit.candidates import picks_on_trial

CANDIDATES = ((8192, 192), (2048, 128), (0, 64))
"""M: a trial is made among so many of the best of at least so many atoms."""
FEWEST_COLUMNS, MOST_COLUMNS = 4, 32
"""m: twice as many as were picked of the last ones, within these limits."""
WHOLE = 640
"""Of so few atoms all columns are fetched at the start, which takes less time than guessing."""
MOST_KEPT = 256
"""Columns kept beyond those of the last trial."""


class GramColumns:
    """Fetches columns and keeps them until they are picked.

    :param gram: the Gram matrix of the atoms at unit length.
    :param number: N.
    """

    def __init__(self, gram: Gram, number: int) -> None:
        self._gram = gram
        self._whole = gram.block(np.arange(number)) if number <= WHOLE else None
        self._columns: dict[int, tuple[int, Array]] = {}
        self._fetched_at = -MOST_COLUMNS // 2

    def take(self, pick: int, factor: Array, scores: Array) -> Array:
        """The column of a pick, which is forgotten: N.

        :param factor: L transposed, k×N.
        :param scores: N, −inf for atoms that cannot be picked.
        """
        if self._whole is not None:
            return np.asarray(self._whole[pick] - factor[:, pick] @ factor)
        if pick not in self._columns:
            self._fetch(pick, factor, scores)
        stage, column = self._columns.pop(pick)
        if stage < len(factor):
            recent = factor[stage:]
            column = column - recent[:, pick] @ recent
        return column

    def __contains__(self, pick: int) -> bool:
        return self._whole is not None or pick in self._columns

    def _fetch(self, pick: int, factor: Array, scores: Array) -> None:
        """Get the column of a pick, and of those that are likely to be picked after it."""
        count = len(factor)
        ids = self._guess(pick, factor, scores, count - self._fetched_at)
        self._fetched_at = count
        known = [id_ for id_ in ids.tolist() if id_ in self._columns]
        for stage in {self._columns[id_][0] for id_ in known}:
            same = [id_ for id_ in known if self._columns[id_][0] == stage]
            if stage < count and len(same) > 1:
                columns = np.stack([self._columns[id_][1] for id_ in same])
                self._keep(same, outside(columns, factor[stage:], same, slice(None)), count)
        new = [id_ for id_ in ids.tolist() if id_ not in self._columns]
        columns = outside(self._gram.columns(np.array(new)), factor, new, slice(None))
        self._keep(new, columns, count)
        excess = len(self._columns) - len(ids) - MOST_KEPT
        if excess > 0:
            self._forget(excess, set(ids.tolist()), scores)

    def _keep(self, ids: list[int], columns: Array, stage: int) -> None:
        # Copies, each of which can be freed without the others.
        for id_, column in zip(ids, columns, strict=True):
            self._columns[id_] = stage, column.copy()

    def _forget(self, count: int, needed: set[int], scores: Array) -> None:
        """Drop the columns with the lowest scores."""
        others = np.array([id_ for id_ in self._columns if id_ not in needed])
        for id_ in others[np.argsort(scores[others])[:count]].tolist():
            del self._columns[id_]

    def _guess(self, pick: int, factor: Array, scores: Array, lately: int) -> Ids:
        """The next picks among the best atoms, if only these mattered; the first is known.

        :param lately: how many picks were made of the last columns.
        """
        count = len(scores)
        number = min(count, next(most for least, most in CANDIDATES if count >= least))
        best = np.argpartition(scores, -number)[-number:]
        if pick not in best:
            best[0] = pick
        gram = outside(self._gram.block(best), factor, best, best)
        limit = min(max(2 * lately, FEWEST_COLUMNS), MOST_COLUMNS)
        never = scores[best] == -np.inf
        correlations = np.where(never, 0.0, scores[best])
        picks, _ = picks_on_trial(
            gram, correlations, never, best, limit=limit, floor=-np.inf, tie=0.0, known=pick
        )
        return best[picks]


def outside(columns: Array, factor: Array, ids: Ids | list[int], others: slice | Ids) -> Array:
    """Inner products of the parts of atoms outside the span, from those of the whole atoms.

    :param columns: m×M, of some atoms with others; overwritten.
    :param factor: L transposed, k×N.
    :param ids: m.
    :param others: M.
    """
    if len(factor):
        columns -= factor[:, ids].T @ factor[:, others]
    return columns
