"""Telling weights that were trained from weights that were just drawn.

A fresh weight matrix has independent entries, whatever its distribution, so its rows have about the
same norm, and so have its columns; training ends that. Layers for normalisation start from equal
weights and count the batches that they saw.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

FEW_BATCHES = 10
"""Batches that a model may see without being trained, such as one to find shapes."""

UNEVEN = 4.0
"""How many times more than for independent normal entries norms must vary. Freshly initialised
models of torchvision reach 1.9, an MLP on scikit-learn's digits 5 to 30 after ten epochs."""


def looks_trained(model: nn.Module) -> bool:
    """Whether the trainable part of a model seems to have been trained already."""
    trainable = [m for m in model.modules() if any(p.requires_grad for p in _own(m))]
    if any(int(getattr(m, "num_batches_tracked", None) or 0) > FEW_BATCHES for m in trainable):
        return True
    weights = [p.detach() for m in trainable for p in _own(m) if p.requires_grad]
    matrices = [w.flatten(1) for w in weights if w.ndim > 1 and w.numel()]
    judged = [_is_uneven(w) for w in matrices if max(w.shape) >= 16 and min(w.shape) >= 8]
    scales = [getattr(m, "weight", None) for m in trainable if "Norm" in type(m).__name__]
    judged += [bool((s != s.flatten()[0]).any()) for s in scales if isinstance(s, Tensor)]
    return 2 * sum(judged) > len(judged)


def warn_if_trained(model: nn.Module) -> None:
    """Warn that a model which looks trained is about to be drawn anew, and say what to do."""
    if looks_trained(model):
        warnings.warn(
            f"{type(model).__name__} looks trained, but all its weights that are not frozen will "
            "be drawn anew; for a pretrained model pass Redrawn(model, only='fc') (the name of its "
            "head), which keeps the other weights, or Redrawn(model) if this is what you want.",
            stacklevel=3,
        )


def _is_uneven(matrix: Tensor) -> bool:
    return any(
        _variation(matrix, dim) * matrix.shape[dim] / 2 > UNEVEN
        for dim in (0, 1)
        if matrix.shape[dim] >= 16 and matrix.shape[1 - dim] >= 8
    )


def _variation(matrix: Tensor, dim: int) -> float:
    """How much squared norms along a dimension vary: 2/length for independent normal numbers."""
    squares = torch.linalg.vector_norm(matrix, dim=dim).double().square()
    return float(squares.var() / squares.mean().square()) if squares.any() else 0.0


def _own(module: nn.Module) -> list[nn.Parameter]:
    return list(module.parameters(recurse=False))
