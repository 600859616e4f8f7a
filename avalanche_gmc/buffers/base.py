"""What our memories share: they own their exemplars and fit every caller of a storage policy."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections import Counter
from typing import Any

import torch
from avalanche.benchmarks.utils import AvalancheDataset
from avalanche.training.storage_policy import ExemplarsBuffer

from avalanche_gmc.exemplars import Exemplars, check_dataset


class OwningBuffer(ExemplarsBuffer):
    """A storage policy whose ``buffer`` holds copies of its exemplars and nothing else.

    :param max_size: the largest number of exemplars.
    """

    max_size: int
    _warned_of_weights = False

    def __init__(self, max_size: int) -> None:
        super().__init__(checked_size(max_size))

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
        """How many exemplars each class has."""
        return class_counts(self.buffer)

    def __repr__(self) -> str:
        size = f"{len(self.buffer)} of {self.max_size} exemplars"
        return f"{type(self).__name__}({', '.join([size, *self._details()])})"

    def _details(self) -> list[str]:
        if "targets" not in self.buffer._data_attributes:
            return []
        counts = self.class_counts
        if len(counts) <= 10:
            return [f"classes {counts}"]
        least, most = min(counts.values()), max(counts.values())
        return [f"{len(counts)} classes of {least} to {most}"]


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


def checked_size(size: int) -> int:
    """Refuse what is not a number of exemplars."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise ValueError(f"the size of a memory must be an integer of at least 0, got {size!r}")
    return size


def class_counts(data: AvalancheDataset) -> dict[int, int]:
    """How many examples each class has, in the order of the classes."""
    return dict(sorted(Counter(class_labels(data)).items())) if len(data) else {}


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


def check_class_label(data: AvalancheDataset) -> None:
    """Refuse a dataset whose first example has another target than one class label."""
    attributes = data._data_attributes
    class_label(attributes["targets"][0] if "targets" in attributes else data[0][1])


def class_label(target: Any) -> int:
    """A target as an integer.

    :raises ValueError: for regression targets and several targets per example.
    """
    if isinstance(target, int):
        return target
    value = torch.as_tensor(target)
    if value.numel() != 1 or value.is_floating_point() or value.is_complex():
        raise ValueError(
            f"the target of an example must be one integer class label, got {target!r}; "
            "regression and several targets per example are not supported"
        )
    return int(value)
