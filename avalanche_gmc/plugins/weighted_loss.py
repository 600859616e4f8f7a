"""The weighted training loss, defined once for all plugins.

**Definition.** A memory of N examples with weights w stands for the loss ``sum(w·loss)/sum(w)``.
A minibatch of B of them contributes ``sum((w/mean(w))·loss)/B``, where the mean of the weights is
that of the *whole memory*. Reasons:

- It is an unbiased estimate of the memory's loss. Dividing by the minibatch's own sum of weights is
  not (the sum varies with the draw), and it is undefined for a minibatch of zero weights, which
  non-negative refits produce.
- Equal weights become exactly 1. They say nothing, so such a memory is trained without weights.

Weights multiply the terms of the criterion; the criterion's own denominator stays as it is: the
number of elements, or for cross entropy the class weights of the targets that are not ignored.
With ``reduction="sum"`` there is none.

In distributed training each rank's minibatch counts by this definition, with the mean of the whole
memory, and the average of the ranks' gradients is that of one minibatch R times as large.

A negative weight would make the cross entropy unbounded below. It is refused.

**How it enters training.** Avalanche computes ``loss += criterion(output, target)`` and lets
plugins add to the loss just before and after. Right after the forward pass the strategy's criterion
is replaced for *exactly one call*: the criterion is evaluated once, penalties (LwF, EWC) keep their
place whatever the order of the plugins, and who uses the criterion elsewhere gets the plain one.

Letters: N examples in memory, B rows of a minibatch.
"""

from __future__ import annotations

from typing import Any

import torch
from avalanche.benchmarks.utils import AvalancheDataset
from avalanche.training.plugins import SupervisedPlugin
from torch import Tensor, nn

from avalanche_gmc.exemplars import WEIGHTS


def memory_weights(storage_policy: Any) -> Tensor | None:
    """The weights of a policy's memory, divided by their mean.

    :param storage_policy: any ``ExemplarsBuffer``, with or without ``weights``.
    :return: N weights of mean 1, float32; None for a policy without weights or with equal ones.
    """
    weights = getattr(storage_policy, "weights", None)
    if weights is None:
        return None
    weights = torch.as_tensor(weights, dtype=torch.float64, device="cpu")
    _check_weights(weights, len(storage_policy.buffer), type(storage_policy).__name__)
    # In float64 the mean of equal weights is off by rounding, which float32 takes back to 1.
    relative = (weights / weights.mean()).float()
    return None if bool((relative == 1).all()) else relative


def joint_weights(num_current: int, weights: Tensor, share: float | None) -> Tensor:
    """One weight per row of a minibatch of current rows followed by memory rows.

    The mean over the rows then is ``(1-share)·mean(current) + share·mean(w·memory)``.

    :param num_current: how many rows are of the current experience.
    :param weights: the weights of the memory rows, of mean 1 over the whole memory.
    :param share: the memory's part of the loss; None lets every row count for itself.
    :return: B weights, the current rows first.
    """
    if num_current == 0:
        return weights
    rows = num_current + len(weights)
    current, memory = 1.0, 1.0
    if share is not None and len(weights):
        current, memory = (1 - share) * rows / num_current, share * rows / len(weights)
    return torch.cat([weights.new_full((num_current,), current), weights * memory])


def weighted_loss(criterion: Any, output: Any, target: Tensor, weights: Tensor) -> Tensor:
    """``sum(w·terms)`` over the criterion's own denominator, differentiable in the output.

    :param criterion: a criterion with a ``reduction`` of "mean", "sum" or "batchmean".
    :param output: the model's output for B rows.
    :param target: the B targets.
    :param weights: B weights.
    """
    reduction = criterion.reduction
    criterion.reduction = "none"
    try:
        terms = criterion(output, target)
    finally:
        criterion.reduction = reduction
    if terms.dim() == 0 or len(terms) != len(weights):
        raise ValueError(
            f"{type(criterion).__name__} gave losses of shape {tuple(terms.shape)} for "
            f"{len(weights)} weights; it must give one loss per example with reduction='none'"
        )
    weights = weights.to(terms.dtype)
    if reduction != "sum":
        weights = weights / _denominator(criterion, terms, target)
    if terms.dim() == 1:  # one operation instead of two: they count in a small model's step
        return torch.dot(terms, weights)
    return torch.einsum("b...,b->", terms, weights)


def check_criterion(criterion: Any) -> None:
    """Refuse a criterion that cannot give one loss per example."""
    reduction = getattr(criterion, "reduction", None)
    if reduction not in ("mean", "sum", "batchmean"):
        name = getattr(criterion, "__name__", type(criterion).__name__)
        raise ValueError(
            f"weights need one loss per example, which the criterion {name} (reduction "
            f"{reduction!r}) does not give; use one with a `reduction` of 'mean' or 'sum', such as "
            "CrossEntropyLoss(), or train without weights"
        )


def weights_column(dataset: AvalancheDataset) -> int:
    """The place of the weights in a minibatch ``[x, y, ..., weights, task labels]``."""
    names = [name for name, a in dataset._data_attributes.items() if a.use_in_getitem]
    names = [name for name in names if name != WEIGHTS]
    return -2 if names[-1:] == ["targets_task_labels"] else -1


class WeightedLossPlugin(SupervisedPlugin, supports_distributed=True):  # type: ignore[call-arg]
    """Lets the weights in a minibatch enter the loss; base of the plugins of this package."""

    def __init__(self) -> None:
        super().__init__()
        self._column: int | None = None
        self._weights: Tensor | None = None

    def expect_weights(self, strategy: Any, dataset: AvalancheDataset) -> None:
        """From here on the minibatches are those of `dataset`, with weights."""
        check_criterion(strategy._criterion)
        self._column = weights_column(dataset)

    def expect_no_weights(self) -> None:
        """From here on the minibatches are as Avalanche makes them."""
        self._column = None

    def before_training_iteration(self, strategy: Any, **kwargs: Any) -> None:
        """Take the weights out of the minibatch: everybody else sees the stock layout."""
        if self._column is not None:
            minibatch = list(strategy.mbatch)  # a loader may hand the same list out again
            self._weights = minibatch.pop(self._column)
            strategy.mbatch = minibatch

    def after_forward(self, strategy: Any, **kwargs: Any) -> None:
        """Weight the next call of the criterion."""
        if self._weights is not None:
            strategy._criterion = _OneCall(strategy, self._weights)
            self._weights = None

    def before_backward(self, strategy: Any, **kwargs: Any) -> None:
        """Make sure that the weights were used."""
        if isinstance(strategy._criterion, _OneCall):
            strategy._criterion = strategy._criterion.criterion
            raise ValueError(
                f"{type(strategy).__name__} computes its loss without its criterion, so the "
                "memory's weights cannot enter; use a storage policy without weights"
            )


class _OneCall:
    """A weighted criterion that puts the plain one back as soon as it is called."""

    def __init__(self, strategy: Any, weights: Tensor) -> None:
        plain = strategy._criterion
        # Left over when the last iteration was interrupted before its loss.
        self.criterion: Any = plain.criterion if isinstance(plain, _OneCall) else plain
        self._strategy = strategy
        self._weights = weights

    def __call__(self, output: Any, target: Tensor) -> Tensor:
        self._strategy._criterion = self.criterion
        return weighted_loss(self.criterion, output, target, self._weights)


def _check_weights(weights: Tensor, size: int, policy: str) -> None:
    if weights.shape != (size,):
        raise ValueError(
            f"{policy} has weights of shape {tuple(weights.shape)} for {size} exemplars; "
            "`weights` must hold one number for each exemplar in `buffer`"
        )
    if not bool(weights.isfinite().all()):
        raise ValueError(f"{policy} has weights that are not finite; all must be finite")
    if bool((weights < 0).any()):
        raise ValueError(
            f"{policy} has {int((weights < 0).sum())} negative weights of {size}, which make a "
            "loss unbounded below; select with nonnegative=True or clamp them to 0"
        )
    if size and not bool((weights > 0).any()):
        raise ValueError(f"all weights of {policy} are 0; at least one must be positive")


def _denominator(criterion: Any, terms: Tensor, target: Tensor) -> Tensor | int:
    """What the criterion divides the sum of its terms by."""
    if criterion.reduction == "batchmean":
        return len(terms)
    if not isinstance(criterion, (nn.CrossEntropyLoss, nn.NLLLoss)) or target.is_floating_point():
        return terms.numel()
    counted = target != criterion.ignore_index
    if criterion.weight is None:
        return counted.sum()
    return criterion.weight[target.where(counted, 0)].where(counted, 0).sum()
