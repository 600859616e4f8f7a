"""What a memory held after each experience, recorded while it learns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from avalanche.benchmarks.utils import AvalancheDataset
from avalanche.evaluation import PluginMetric

from avalanche_gmc.buffers.base import class_label
from avalanche_gmc.buffers.gradient_matching import effective_size
from avalanche_gmc.exemplars.transform_levels import locate
from avalanche_gmc.exemplars.values import digest
from avalanche_gmc.reporting.pictures import Picture, picture
from avalanche_gmc.reporting.policies import residual_of, the_policy, weights_of

if TYPE_CHECKING:
    from avalanche.training.templates import SupervisedTemplate

MOST_SNAPSHOTS = 100
MOST_PICTURES = 4000
MOST_VALUES = 8
"""How many numbers of a row are shown."""

MOST_LETTERS = 120


@dataclass(frozen=True)
class Exemplar:
    """What is shown of one exemplar."""

    label: int | None
    """Its class, or None if its target is no class label."""
    target: str
    """Its target as text; empty if it has none."""
    picture: Picture | None
    values: list[str]
    """The first numbers of a row or, for other inputs that are no image, one text."""


@dataclass(frozen=True)
class Snapshot:
    """A memory at one moment."""

    name: str
    ids: list[str]
    """Of the exemplars: equal for equal content."""
    weights: list[float] | None
    residual: float | None
    effective_size: float
    num_seen: int | None


class MemoryHistory(PluginMetric[list[Snapshot]]):
    """Records what a memory holds after each training experience, for :func:`report`.

    Give it to the strategy's ``EvaluationPlugin``, like a metric; it logs nothing. Without a
    strategy, call :meth:`record` after each update.

    Exemplars are recognised by their content before Avalanche's transforms. If the data has a
    random transform of its own, below Avalanche, a stock buffer's exemplars look new each time.

    Its size does not grow with the stream: it holds 100 snapshots at most, evenly spread, and 4,000
    pictures besides those of the exemplars that are in the memory now.

    :param memory: the storage policy to follow, or a plugin that has it. None is the strategy's
        only one.
    :param display: a function from an exemplar's input, before Avalanche's transforms, to what is
        shown of it: an image, a row of numbers, or any text. None shows the input.
    """

    def __init__(self, memory: Any = None, *, display: Callable[[Any], Any] | None = None) -> None:
        super().__init__()
        self._memory = memory
        self._display = display
        self._updates = 0
        self._spacing = 1
        self.snapshots: list[Snapshot] = []
        self.exemplars: dict[str, Exemplar] = {}

    def result(self) -> list[Snapshot]:
        """The snapshots in their order."""
        return self.snapshots

    def reset(self) -> None:
        self._updates, self._spacing = 0, 1
        self.snapshots, self.exemplars = [], {}

    def after_training_exp(self, strategy: SupervisedTemplate) -> None:
        self.record(strategy if self._memory is None else self._memory)

    def record(self, memory: Any, name: str | None = None) -> None:
        """Take a snapshot.

        :param memory: a storage policy, or a plugin or strategy that has one.
        :param name: of this moment; None is "experience 1" and so on.
        """
        policy = the_policy(memory)
        self._updates += 1
        if self._updates % self._spacing == 0:
            self._append(policy, name or f"experience {self._updates}")
        if len(self.snapshots) > MOST_SNAPSHOTS:
            self.snapshots = self.snapshots[1::2]
            self._spacing *= 2
        self._forget()

    def with_now(self, policy: Any) -> MemoryHistory:
        """This history, ending with the memory as it is now."""
        ended = MemoryHistory(display=self._display)
        ended.snapshots, ended.exemplars = list(self.snapshots), dict(self.exemplars)
        ended._append(policy, f"experience {self._updates}" if self._updates else "now")
        *earlier, now = ended.snapshots
        if earlier and earlier[-1].ids == now.ids and earlier[-1].weights == now.weights:
            ended.snapshots.pop()
        elif earlier and earlier[-1].name == now.name:
            ended.snapshots[-1] = replace(now, name="now")
        return ended

    def _append(self, policy: Any, name: str) -> None:
        data, weights = policy.buffer, weights_of(policy)
        size = float(len(data)) if weights is None else effective_size(torch.tensor(weights))
        seen = getattr(policy, "num_seen", None)
        seen = None if seen is None else int(seen)
        taken = Snapshot(name, self._ids(data), weights, residual_of(policy), size, seen)
        self.snapshots.append(taken)

    def _ids(self, data: AvalancheDataset) -> list[str]:
        """Of all exemplars; new ones are looked at."""
        targets = data._data_attributes.get("targets") if len(data) else None
        copies: Counter[str] = Counter()
        ids = []
        for index in range(len(data)):
            leaf, position, _ = locate(data, index)
            sample = leaf[position]
            target = targets[index] if targets is not None else None
            key = digest([sample, target])
            copies[key] += 1
            if copies[key] > 1:
                key = f"{key}-{copies[key]}"
            ids.append(key)
            if key not in self.exemplars:
                self.exemplars[key] = _exemplar(sample, target, self._display)
        return ids

    def _forget(self) -> None:
        """Drop what no snapshot shows, and the oldest pictures if there are too many."""
        shown = {key for snapshot in self.snapshots for key in snapshot.ids}
        self.exemplars = {key: one for key, one in self.exemplars.items() if key in shown}
        present = self.snapshots[-1].ids if self.snapshots else []
        pictured = {key for key, one in self.exemplars.items() if one.picture is not None}
        pictured -= set(present)
        gone = [key for key in self.exemplars if key in pictured]
        for key in gone[: max(0, len(gone) - MOST_PICTURES)]:
            self.exemplars[key] = replace(self.exemplars[key], picture=None)

    def __str__(self) -> str:
        return "MemoryHistory"


def _exemplar(sample: Any, target: Any, display: Callable[[Any], Any] | None) -> Exemplar:
    value = sample[0] if isinstance(sample, (tuple, list)) and len(sample) else sample
    shown = value if display is None else display(value)
    try:
        label = None if target is None else class_label(target)
    except ValueError:
        label = None
    image = picture(shown)
    values = [] if image is not None else _values(shown)
    return Exemplar(label, _target_text(target), image, values)


def _values(value: Any) -> list[str]:
    if isinstance(value, (torch.Tensor, np.ndarray)) and value.ndim == 1 and len(value):
        return [_number(item) for item in value[:MOST_VALUES].tolist()]
    return [_short(value if isinstance(value, str) else repr(value))]


def _target_text(target: Any) -> str:
    if target is None:
        return ""
    if isinstance(target, (torch.Tensor, np.ndarray)):
        target = target.tolist()
    return _number(target) if isinstance(target, float) else _short(str(target))


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _short(text: str) -> str:
    return text if len(text) <= MOST_LETTERS else text[: MOST_LETTERS - 1] + "…"
