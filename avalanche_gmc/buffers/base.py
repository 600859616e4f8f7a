"""The base of our memories: they own their exemplars and fit every caller of a storage policy."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections import Counter
from typing import Any

import numpy as np
import torch
from avalanche.benchmarks.utils import AvalancheDataset
from avalanche.training.storage_policy import ExemplarsBuffer
from torch import Tensor

from avalanche_gmc.exemplars import Exemplars, check_dataset


class OwningBuffer(ExemplarsBuffer):
    """A storage policy whose ``buffer`` holds copies of its exemplars and nothing else.

    :param max_size: the largest number of exemplars.
    """

    max_size: int
    _warned_of_weights = False

    def __init__(self, max_size: int) -> None:
        super().__init__(checked("the size of a memory", max_size, least=0))

    @property
    def buffer(self) -> AvalancheDataset:
        """The exemplars, at most ``max_size``."""
        return self._shown().dataset()

    @buffer.setter
    def buffer(self, new_buffer: AvalancheDataset) -> None:
        raise AttributeError(
            f"the exemplars of a {type(self).__name__} cannot be set; "
            "feed it with update_from_dataset(data)"
        )

    def post_adapt(self, agent: Any, exp: Any) -> None:
        """Take the examples of an experience into account.

        :param agent: the strategy, or None.
        :param exp: an experience with a ``dataset``.
        """
        if not self._warned_of_weights and hasattr(type(self), "weights"):
            self._warned_of_weights = warn_of_unread_weights(self, agent)
        self.update_from_dataset(exp.dataset, agent)

    def update(self, strategy: Any, **kwargs: Any) -> None:
        """Take the examples of the strategy's current experience into account."""
        self.post_adapt(strategy, strategy.experience)

    def update_from_dataset(self, data: AvalancheDataset, strategy: Any = None) -> None:
        """Take the examples of a dataset into account, in their order.

        If anything fails, the memory is left as it was.

        :param data: the new examples.
        :param strategy: whose model is learning, or None.
        """
        check_dataset(data)
        if len(data) > 0:
            self._take_in(data, strategy)

    @abstractmethod
    def _take_in(self, data: AvalancheDataset, strategy: Any) -> None:
        """Take the examples of a dataset, at least one, into account."""

    @abstractmethod
    def _shown(self) -> Exemplars:
        """What ``buffer`` shows; the same object until something changes."""

    @property
    def class_counts(self) -> dict[int, int]:
        """How many exemplars each class has; empty if targets are not class labels."""
        return class_counts(self.buffer)

    def __repr__(self) -> str:
        size = f"{len(self.buffer)} of {self.max_size} exemplars"
        return f"{type(self).__name__}({', '.join([size, *self._details()])})"

    def _details(self) -> list[str]:
        counts = self.class_counts
        if not counts:
            return []
        if len(counts) <= 10:
            return [f"classes {counts}"]
        least, most = min(counts.values()), max(counts.values())
        return [f"{len(counts)} classes of {least} to {most}"]


def checked(name: str, value: Any, *, least: int) -> int:
    """Refuse what is not an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    return value


def warn_of_unread_weights(buffer: Any, strategy: Any) -> bool:
    """Warn if the strategy, or its plugin that uses the memory, trains without the weights.

    Who reads them says so by an attribute ``reads_weights``.

    :return: whether it warned.
    """
    size = buffer.max_size
    for owner in (strategy, *getattr(strategy, "plugins", ())):
        if getattr(owner, "storage_policy", None) is buffer and not hasattr(owner, "reads_weights"):
            name = type(owner).__name__
            better = "CoresetGDumbPlugin" if "GDumb" in name else "CoresetReplayPlugin"
            warnings.warn(
                f"{name} ignores the weights of the {type(buffer).__name__}: every exemplar counts "
                "alike, however many examples it represents; to use the weights, put "
                f"avalanche_gmc.{better}(mem_size={size}, storage_policy=...) in its place",
                stacklevel=2,
            )
            return True
    return False


def class_counts(data: AvalancheDataset) -> dict[int, int]:
    """How many examples each class has, in the order of the classes.

    Empty if the dataset has no ``targets``, or if they are not class labels.
    """
    try:
        return dict(sorted(Counter(class_labels(data)).items())) if len(data) else {}
    except ValueError:
        return {}


def class_labels(data: AvalancheDataset) -> list[int]:
    """The ``targets`` of a dataset, one integer per example.

    :raises ValueError: if there are none, or if they are not class labels.
    """
    if "targets" not in data._data_attributes:
        raise ValueError(
            "the dataset has no `targets`; make it with "
            "avalanche.benchmarks.utils.as_classification_dataset"
        )
    return [class_label(target) for target in data._data_attributes["targets"]]


def check_targets(data: AvalancheDataset) -> None:
    """Refuse a dataset in which a target is not a number or several numbers.

    Looks at all ``targets`` or, if there are none, at the first example.
    """
    attributes = data._data_attributes
    for index, target in enumerate(attributes.get("targets", ()) or [data[0][1]]):
        if not isinstance(target, (int, float, Tensor, np.ndarray, np.number, list, tuple)):
            raise ValueError(
                f"the target of example {index} is {target!r}; a target must be a number (a class "
                "label counts from 0) or a tensor of numbers"
            )


def class_label(target: Any) -> int:
    """A target as an integer.

    :raises ValueError: for regression targets and several targets per example.
    """
    if isinstance(target, int):
        return target
    if isinstance(target, (Tensor, np.ndarray, np.integer)):
        value = torch.as_tensor(target)
        if value.numel() == 1 and not value.is_floating_point() and not value.is_complex():
            return int(value)
    raise ValueError(
        f"a memory that looks at classes needs one integer class label per example, got {target!r}"
        "; number the classes 0, 1, 2, ..., or use GradientMatchingBuffer with target='stream'"
    )
