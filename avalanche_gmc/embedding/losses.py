"""The loss of each example alone, for classes, regression and several labels per example.

Letters: N examples, K outputs.

Scaling: values are added up over examples, never averaged, so that gradients add up. Over the K
outputs of one example, losses that compare output by output (squared or absolute error, binary
cross entropy) are averaged as ``reduction="mean"`` does, or added up if that is the criterion's
``reduction="sum"``. Class weights multiply the loss of an example; torch's mean also divides by
their sum over the batch, which is not a property of an example.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Loss = Callable[[Tensor, Tensor], Tensor]

CLASSIFYING = (nn.CrossEntropyLoss, nn.NLLLoss, F.cross_entropy, F.nll_loss)
"""Criteria whose targets are class labels."""

ELEMENTWISE = (
    *(nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss, nn.BCEWithLogitsLoss, nn.BCELoss),
    *(F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss),
    *(F.binary_cross_entropy_with_logits, F.binary_cross_entropy),
)
"""Criteria that have one target for every output."""

IGNORED = -100
"""The class label that torch's criteria ignore by default."""


class ExampleLoss:
    """One loss value per example, and its gradient with respect to the outputs.

    :param loss: None means cross entropy; a torch criterion such as ``nn.MSELoss()`` or function
        such as ``F.cross_entropy`` is used with ``reduction="none"``; anything else must return
        one value per example, N×K and N → N.
    """

    def __init__(self, loss: Loss | None = None) -> None:
        self._is_cross_entropy = loss is None or loss is F.cross_entropy
        chosen: Any = F.cross_entropy if loss is None else loss
        self._classifies = _is_one_of(chosen, CLASSIFYING)
        self._elementwise = _is_one_of(chosen, ELEMENTWISE)
        self.ignored = int(_option(chosen, "ignore_index", IGNORED))
        self._adds_up = _option(chosen, "reduction", "mean") == "sum"
        self._loss = _unreduced(chosen)

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """N×K, N or N×K → N."""
        values: Tensor = self._loss(outputs, self._aligned(outputs, targets))
        if self._elementwise and values.ndim > 1:
            values = values.flatten(1).sum(1) if self._adds_up else values.flatten(1).mean(1)
        if values.shape != outputs.shape[:1]:
            raise ValueError(
                f"the loss must return one value per example, shape {tuple(outputs.shape[:1])}, "
                f"but it returned shape {tuple(values.shape)}; use reduction='none' and sum over "
                "everything but the examples."
            )
        return values

    def output_gradient(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The gradient of each example's loss with respect to its outputs: N×K, N → N×K."""
        targets = self._aligned(outputs, targets)
        if self._is_cross_entropy and targets.ndim == 1:
            return self._softmax_gradient(outputs, targets)
        leaf = outputs.detach().requires_grad_()
        with torch.enable_grad():
            total = self(leaf, targets).sum()
        return torch.autograd.grad(total, leaf)[0]

    def _softmax_gradient(self, outputs: Tensor, targets: Tensor) -> Tensor:
        # For few outputs several times faster than torch's softmax, and the same numbers.
        powers = (outputs - outputs.amax(dim=1, keepdim=True)).exp_()
        probabilities = powers.div_(powers.sum(dim=1, keepdim=True))
        minus_one = outputs.new_full((len(targets), 1), -1.0)
        ignored = (targets == self.ignored)[:, None]
        gradient = probabilities.scatter_add_(1, targets.clamp_min(0)[:, None], minus_one)
        return gradient.masked_fill_(ignored, 0.0)

    def _aligned(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Targets in the shape and type that the criterion wants: without it, N×1 and N broadcast
        to N×N."""
        if self._classifies and targets.shape[1:] == (1,) and not targets.is_floating_point():
            return targets.squeeze(1)
        if not self._elementwise:
            return targets
        if targets.numel() != outputs.numel():
            raise ValueError(
                "the loss wants one target per output, but an example has outputs of the shape "
                f"{tuple(outputs.shape[1:])} and targets of the shape {tuple(targets.shape[1:])}; "
                "give every example as many target numbers as the model has outputs, or use cross "
                "entropy for class labels."
            )
        return targets.to(outputs.dtype).reshape(outputs.shape)

    def check_targets(self, targets: Tensor, num_outputs: int, first: int) -> None:
        """Name the first class label that has no output; ``ignore_index`` is none.

        :param targets: N class labels; anything else than classes is left to the loss.
        :param num_outputs: K.
        :param first: position of the first of these examples in the data.
        """
        if not self._classifies or targets.shape[1:] not in ((), (1,)):
            return
        if targets.is_floating_point():
            raise ValueError(
                f"class labels must be integers, got targets of type {targets.dtype}; convert them "
                "with .long(), or give the loss of a regression, such as loss=nn.MSELoss()."
            )
        labels = targets.flatten()
        wrong = (((labels < 0) | (labels >= num_outputs)) & (labels != self.ignored)).nonzero()
        if len(wrong):
            example = int(wrong[0])
            raise ValueError(
                f"the target {int(labels[example])} of example {first + example} is out of range "
                f"for a model with {num_outputs} outputs (0 to {num_outputs - 1}); give the model "
                "an output for every class of the stream from the start."
            )


def _is_one_of(loss: Any, criteria: tuple[Any, ...]) -> bool:
    while isinstance(loss, partial):
        loss = loss.func
    return any(loss is c or (isinstance(c, type) and isinstance(loss, c)) for c in criteria)


def _option(loss: Any, name: str, default: Any) -> Any:
    """An option of a criterion, or of a function whose options ``partial`` has set."""
    keywords = loss.keywords if isinstance(loss, partial) else {}
    return keywords.get(name, getattr(loss, name, default))


def _unreduced(loss: Any) -> Any:
    if isinstance(loss, nn.Module):
        loss = copy.deepcopy(loss)
        if hasattr(loss, "reduction"):
            loss.reduction = "none"
    elif "reduction" in inspect.signature(loss).parameters:
        return partial(loss, reduction="none")
    return loss
