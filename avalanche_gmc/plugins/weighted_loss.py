"""The weighted training loss, defined once for all plugins.

**Definition.** A memory of N examples with weights w has the loss ``sum(w·loss)/sum(w)``.
A minibatch of B of them contributes ``sum((w/mean(w))·loss)/B``, where the mean of the weights is
that of the *whole memory*. Reasons:

- It is an unbiased estimate of the memory's loss. Dividing by the minibatch's own sum of weights is
  not (the sum varies with the draw), and it is undefined for a minibatch of zero weights, which
  non-negative refits produce.
- Equal weights become exactly 1. Such a memory is trained without weights.

Weights multiply the terms of the criterion; the criterion's own denominator stays as it is: the
number of elements, or for cross entropy the class weights of the targets that are not ignored.
With ``reduction="sum"`` there is none.

In distributed training each rank's minibatch counts by this definition, with the mean of the whole
memory, and the average of the ranks' gradients is that of one minibatch with the rows of all ranks.

A negative weight would make the cross entropy unbounded below. It is refused.

How the weights enter training is in :mod:`.base`.

Letters: N examples in memory, B rows of a minibatch.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


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

    :param criterion: a criterion, or a function, with a ``reduction`` of "mean", "sum" or
        "batchmean".
    :param output: the model's output for B rows.
    :param target: the B targets.
    :param weights: B weights.
    """
    terms = _terms(criterion, output, target)
    if terms.dim() == 0 or len(terms) != len(weights):
        raise ValueError(
            f"{_name(criterion)} gave losses of shape {tuple(terms.shape)} for "
            f"{len(weights)} weights; it must give one loss per example with reduction='none'"
        )
    weights = weights.to(terms.dtype)
    if _option(criterion, "reduction") != "sum":
        weights = weights / _denominator(criterion, terms, target)
    if terms.dim() == 1:  # one operation instead of two: they count in a small model's step
        return torch.dot(terms, weights)
    return torch.einsum("b...,b->", terms, weights)


def check_criterion(criterion: Any) -> None:
    """Refuse a criterion that cannot give one loss per example."""
    reduction = _option(criterion, "reduction")
    if reduction not in ("mean", "sum", "batchmean"):
        raise ValueError(
            f"weights need one loss per example, which the criterion {_name(criterion)} (reduction "
            f"{reduction!r}) does not give; use one with a `reduction` of 'mean' or 'sum', such as "
            "CrossEntropyLoss() or torch.nn.functional.cross_entropy, or train without weights"
        )


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


def _terms(criterion: Any, output: Any, target: Tensor) -> Tensor:
    """One loss per example, or per element of the output."""
    if not hasattr(criterion, "reduction"):
        return torch.as_tensor(criterion(output, target, reduction="none"))
    reduction = criterion.reduction
    criterion.reduction = "none"
    try:
        return torch.as_tensor(criterion(output, target))
    finally:
        criterion.reduction = reduction


def _denominator(criterion: Any, terms: Tensor, target: Tensor) -> Tensor | int:
    """What the criterion divides the sum of its terms by."""
    if _option(criterion, "reduction") == "batchmean":
        return len(terms)
    function = getattr(criterion, "func", criterion)
    of_classes = isinstance(criterion, (nn.CrossEntropyLoss, nn.NLLLoss)) or (
        function in (F.cross_entropy, F.nll_loss)
    )
    if not of_classes or target.is_floating_point():
        return terms.numel()
    counted: Tensor = target != _option(criterion, "ignore_index")
    class_weights: Tensor | None = _option(criterion, "weight")
    if class_weights is None:
        return counted.sum()
    return class_weights[target.where(counted, 0)].where(counted, 0).sum()


def _option(criterion: Any, name: str) -> Any:
    """An attribute of a criterion, or the default of a function's argument."""
    if isinstance(criterion, nn.Module) or hasattr(criterion, name):
        return getattr(criterion, name, None)
    try:
        return _defaults(criterion).get(name)
    except (TypeError, ValueError):  # not every callable knows its arguments
        return None


@functools.lru_cache(maxsize=8)
def _defaults(function: Any) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def _name(criterion: Any) -> str:
    return str(getattr(criterion, "__name__", type(criterion).__name__))
