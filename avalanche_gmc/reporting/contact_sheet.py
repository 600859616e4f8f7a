"""The exemplars of a memory as one picture for Avalanche's image loggers."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from avalanche.evaluation.metric_results import TensorImage

from avalanche_gmc.reporting.history import MemoryHistory
from avalanche_gmc.reporting.pictures import Picture, grid
from avalanche_gmc.reporting.policies import weights_of

COLUMNS = 24


class ContactSheet(TensorImage):
    """A picture of C×H×W bytes, as TensorBoard wants it.

    W&B asks for an array and takes it for H×W×C bytes.
    """

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.asarray(self.image.permute(1, 2, 0).numpy(), dtype=dtype)


def contact_sheet(policy: Any) -> ContactSheet | None:
    """Each class begins a row, heaviest exemplars first; None if no exemplar is an image.

    :param policy: a storage policy.
    """
    history = MemoryHistory()
    history.record(policy)
    (snapshot,) = history.snapshots
    weights = weights_of(policy) or [0.0] * len(snapshot.ids)
    by_class: dict[int, list[tuple[float, Picture]]] = defaultdict(list)
    for key, weight in zip(snapshot.ids, weights, strict=True):
        exemplar = history.exemplars[key]
        if exemplar.picture is not None:
            label = -1 if exemplar.label is None else exemplar.label
            by_class[label].append((weight, exemplar.picture))
    if not by_class:
        return None
    places: list[Picture | None] = []
    for _, members in sorted(by_class.items()):
        members.sort(key=lambda member: -member[0])
        places += [one for _, one in members] + [None] * (-len(members) % COLUMNS)
    pixels = np.asarray(grid(places, COLUMNS).convert("RGB"))
    return ContactSheet(torch.from_numpy(pixels.copy()).permute(2, 0, 1))
