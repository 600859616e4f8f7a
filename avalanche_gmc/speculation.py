"""Picks on trial, inside a pool of promising atoms.

Letters: M atoms of the pool, b picks.

Everything a pursuit needs to know of the pool is the M×M matrix of inner products of its atoms'
components outside the picked span, so b picks cost O(b²·M), whatever the dimension.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def picks_on_trial(
    gram: Array,
    correlations: Array,
    *,
    rule: str,
    limit: int,
    floor: float,
    dependent: float,
    tie: float,
) -> list[int]:
    """Positions in the pool, in picking order.

    Stops at ``limit`` picks, when no atom is left outside the span, or after the first pick when
    the best score in the pool falls below ``floor``: an atom outside the pool may then be better.

    :param gram: M×M, of the components of the pool's atoms (at unit length) outside the span.
    :param correlations: M, inner products of the atoms with the residual.
    :param rule: "omp" or "ols".
    :param limit: the largest b.
    :param floor: the best score outside the pool.
    :param dependent: atoms closer than this to the span are skipped.
    :param tie: of scores this close, the first wins.
    """
    correlations = correlations.copy()
    distances = gram.diagonal().copy()
    blocked = distances <= dependent**2
    columns = np.empty((limit, len(gram)))
    picks: list[int] = []
    while len(picks) < limit and not blocked.all():
        scores = np.where(blocked, -np.inf, correlations)
        if rule == "ols":
            scores[~blocked] /= np.sqrt(distances[~blocked])
        best = scores.max()
        if picks and best < floor:
            break
        pick = int(np.argmax(scores >= best - tie))
        length = np.sqrt(distances[pick])
        done = columns[: len(picks)]
        column = (gram[pick] - done[:, pick] @ done) / length
        correlations -= correlations[pick] / length * column
        distances -= column**2
        columns[len(picks)] = column
        blocked |= distances <= dependent**2
        picks.append(pick)
    return picks
