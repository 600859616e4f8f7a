"""Models whose heads grow, without their heads.

Avalanche's ``IncrementalClassifier`` gets new outputs when new classes come, and its
``MultiHeadClassifier`` a new head when a new task comes. What does not grow is the rest of the
model. Classes are told by their names: this package's embeddings know nothing of Avalanche.
"""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor, nn

from avalanche_gmc.initialization.modules import is_dynamic, unwrapped

ONE_HEAD, HEAD_PER_TASK = "IncrementalClassifier", "MultiHeadClassifier"


def growing_head(model: nn.Module) -> str | None:
    """The name of the submodule that is a growing head; None if there is none.

    :raises ValueError: if there are several.
    """
    heads: list[str] = []
    for name, module in model.named_modules():
        is_part_of_another = any(name.startswith(f"{head}.") for head in heads)
        if _head_class(module) is not None and not is_part_of_another:
            heads.append(name)
    if len(heads) > 1:
        raise ValueError(
            f"{type(model).__name__} has several heads that grow ({', '.join(heads)}), and a "
            "last-layer gradient is that of one; keep one of them, which may be a "
            "MultiHeadClassifier."
        )
    return heads[0] if heads else None


class Headless(nn.Module):
    """A copy of a model that returns what its growing head would receive: N×... → N×in_features.

    :param model: has a growing head, whose outputs it returns as they are.
    """

    never_grows = True
    """Tells :func:`refuse_dynamic` that what is left of the model keeps its shape."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        model = unwrapped(model)
        name = growing_head(model)
        if not name:
            raise ValueError(
                f"{type(model).__name__} has no {ONE_HEAD} and no {HEAD_PER_TASK} as a part of it, "
                "so there is no head that grows; use LastLayerEmbedding."
            )
        head: Any = model.get_submodule(name)
        _refuse_other_dynamics(model, name)
        self.head_per_task = _head_class(head) == HEAD_PER_TASK
        first: Any = head.classifiers["0"].classifier if self.head_per_task else head.classifier
        self.in_features = int(first.in_features)
        # The head may have been all that has parameters.
        device = "cpu" if first.weight.is_meta else first.weight.device
        self.register_buffer("_like", first.weight.new_empty(0, device=device))
        self._takes_tasks = _derives(model, "MultiTaskModule")
        self._place = _Place()
        # Whoever holds the head in the copy holds its place instead.
        self.model = copy.deepcopy(model, {id(head): self._place})

    def forward(self, inputs: Tensor) -> Tensor:
        """What the head receives; features do not depend on the task."""
        features: Tensor = self.model(inputs, 0) if self._takes_tasks else self.model(inputs)
        received, self._place.received = self._place.received, None
        if features is not received:
            raise ValueError(
                f"the outputs of {type(self.model).__name__} are not those of its growing head "
                "alone; let the model return what its head returns."
            )
        return features


class _Place(nn.Module):
    """Stands where the head was."""

    def __init__(self) -> None:
        super().__init__()
        self.received: Tensor | None = None

    def forward(self, features: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        self.received = features
        return features


def _refuse_other_dynamics(model: nn.Module, head: str) -> None:
    """Refuse what grows besides the head; a module that only passes task labels on does not."""
    for name, module in model.named_modules():
        if name == head or name.startswith(f"{head}.") or not is_dynamic(module):
            continue
        if _owner(module, "adaptation") not in ("MultiTaskModule", "DynamicModule"):
            raise ValueError(
                f"the model's {type(module).__name__} changes with the stream, and not only the "
                "head, so gradients seen earlier and later cannot be compared; only heads may grow."
            )


def _head_class(module: nn.Module) -> str | None:
    """Which kind of head this is; a subclass that computes something else is none."""
    method = {ONE_HEAD: "forward", HEAD_PER_TASK: "forward_single_task"}
    found = (k for k in method if _derives(module, k) and _owner(module, method[k]) == k)
    return next(found, None)


def _owner(module: nn.Module, method: str) -> str | None:
    """The name of the class that defines a method of the module."""
    return next((c.__name__ for c in type(module).__mro__ if method in vars(c)), None)


def _derives(module: nn.Module, class_name: str) -> bool:
    return any(base.__name__ == class_name for base in type(module).__mro__)
