"""Per-example weight gradients of single layers, from what goes in and the error that comes back.

Letters: N examples, C input channels, O output channels, T positions (pixels, tokens), p
parameters of a tensor. Gradients are of the loss of each example alone, N×p, with the weights of
convolutions flattened channels-last (O, height, width, C): that is the order in which the
windows of an image lie in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LayerRule = Callable[[Any, Tensor, Tensor], Tensor]


def flatten_gradient(gradient: Tensor) -> Tensor:
    """The gradients of one parameter as a matrix, channels last: N×(its shape) → N×p."""
    return gradient.movedim(2, -1).flatten(1) if gradient.ndim > 3 else gradient.flatten(1)


def linear_weight(layer: nn.Linear, inputs: Tensor, errors: Tensor) -> Tensor:
    """N×...×C and N×...×O → N×(O·C)."""
    inputs, errors = _positions_last(inputs), _positions_last(errors)
    return torch.einsum("nto,ntc->noc", errors, inputs).flatten(1)


def conv2d_weight(layer: nn.Conv2d, inputs: Tensor, errors: Tensor) -> Tensor:
    """N×C×height×width and N×O×height'×width' → N×p."""
    windows = _windows(layer, inputs)
    errors = errors.movedim(1, -1).flatten(1, 2)
    grouped = errors.reshape(*errors.shape[:2], layer.groups, -1)
    return torch.einsum("ntgo,ntkgc->ngokc", grouped, windows).flatten(1)


def norm_weight(layer: Any, inputs: Tensor, errors: Tensor) -> Tensor:
    """Batch norm by running statistics: N×C×... and N×C×... → N×C."""
    products = channel_sums(layer, inputs, inputs * errors)
    centred = products - layer.running_mean * channel_sums(layer, inputs, errors)
    scaled: Tensor = centred * torch.rsqrt(layer.running_var + layer.eps)
    return scaled


def channel_sums(layer: nn.Module, inputs: Tensor, errors: Tensor) -> Tensor:
    """The bias of convolutions and batch norms: N×O×... → N×O."""
    return errors.sum(dim=tuple(range(2, errors.ndim))) if errors.ndim > 2 else errors


def position_sums(layer: nn.Linear, inputs: Tensor, errors: Tensor) -> Tensor:
    """The bias of linear layers: N×...×O → N×O."""
    return _positions_last(errors).sum(dim=1)


RULES: dict[type[nn.Module], dict[str, LayerRule]] = {
    nn.Linear: {"weight": linear_weight, "bias": position_sums},
    nn.Conv2d: {"weight": conv2d_weight, "bias": channel_sums},
    nn.BatchNorm1d: {"weight": norm_weight, "bias": channel_sums},
    nn.BatchNorm2d: {"weight": norm_weight, "bias": channel_sums},
}
"""Exact types only: a subclass may compute something else in its forward."""


def _positions_last(values: Tensor) -> Tensor:
    """N×...×C → N×T×C."""
    return values.reshape(len(values), -1, values.shape[-1])


def _windows(layer: nn.Conv2d, inputs: Tensor) -> Tensor:
    """What each output pixel sees: N×C×height×width → N×T×(kernel pixels)×groups×(C/groups)."""
    channels_last = F.pad(inputs, _padding(layer), mode=_PAD_MODES[layer.padding_mode])
    windows = channels_last.movedim(1, -1)
    for dim in (0, 1):
        span = layer.dilation[dim] * (layer.kernel_size[dim] - 1) + 1
        windows = windows.unfold(1 + dim, span, layer.stride[dim])
        windows = windows[..., :: layer.dilation[dim]]
    # N×height'×width'×C×(kernel height)×(kernel width), and C must lie innermost.
    windows = windows.movedim(3, -1).flatten(3, 4).flatten(1, 2)
    return windows.reshape(*windows.shape[:3], layer.groups, -1)


def _padding(layer: nn.Conv2d) -> list[int]:
    """Left, right, top, bottom."""
    # Derived by PyTorch for every padding argument, "same" included.
    return layer._reversed_padding_repeated_twice


_PAD_MODES = {
    "zeros": "constant",
    "reflect": "reflect",
    "replicate": "replicate",
    "circular": "circular",
}
