"""Per-example losses: the sum over the batch, never the mean, so that gradients add up.

Letters: N examples, K outputs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Loss = Callable[[Tensor, Tensor], Tensor]


class ExampleLoss:
    """One loss value per example, and its gradient with respect to the outputs.

    :param loss: ``loss(outputs, targets)`` with one value per example, N×K and N → N; None means
        cross entropy. A torch criterion such as ``nn.CrossEntropyLoss()`` is used on a copy with
        ``reduction="none"``.
    """

    def __init__(self, loss: Loss | None = None) -> None:
        self._classifies = loss is None or isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss)
        self._is_cross_entropy = loss is None
        self._loss = _cross_entropy if loss is None else _unreduced(loss)

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """N×K, N → N."""
        values = self._loss(outputs, targets)
        if values.shape != outputs.shape[:1]:
            raise ValueError(
                f"the loss must return one value per example, shape {tuple(outputs.shape[:1])}, "
                f"but it returned shape {tuple(values.shape)}; use reduction='none' and sum over "
                "everything but the examples."
            )
        return values

    def output_gradient(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The gradient of each example's loss with respect to its outputs: N×K, N → N×K."""
        if self._is_cross_entropy:
            # For few outputs several times faster than torch's softmax, and the same numbers.
            powers = (outputs - outputs.amax(dim=1, keepdim=True)).exp_()
            probabilities = powers.div_(powers.sum(dim=1, keepdim=True))
            minus_one = outputs.new_full((len(targets), 1), -1.0)
            return probabilities.scatter_add_(1, targets[:, None], minus_one)
        leaf = outputs.detach().requires_grad_()
        with torch.enable_grad():
            total = self(leaf, targets).sum()
        return torch.autograd.grad(total, leaf)[0]

    def check_targets(self, targets: Tensor, num_outputs: int, first: int) -> None:
        """Name the first class label that has no output.

        :param targets: N class labels; anything else than classes is left to the loss.
        :param num_outputs: K.
        :param first: position of the first of these examples in the data.
        """
        if not self._classifies or targets.ndim != 1 or targets.is_floating_point():
            return
        wrong = ((targets < 0) | (targets >= num_outputs)).nonzero()
        if len(wrong):
            example = int(wrong[0])
            raise ValueError(
                f"the target {int(targets[example])} of example {first + example} is out of range "
                f"for a model with {num_outputs} outputs (0 to {num_outputs - 1}); give the model "
                "an output for every class of the stream from the start."
            )


def _cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


def _unreduced(loss: Loss) -> Loss:
    if getattr(loss, "reduction", "none") == "none":
        return loss
    loss = copy.deepcopy(loss)
    loss.reduction = "none"  # type: ignore[attr-defined]
    return loss
