"""Per-example weight gradients of single layers, from what goes in and the error that comes back.

Letters: N examples, C input channels, O output channels, L positions (pixels, tokens).

Gradients are of the loss of each example alone. A rule yields a tensor's gradient in blocks of
``step`` output channels, N×(step·C·...), so that the N gradients of a large layer never exist at
once. The weights of convolutions are flattened channels last (O, height, width, C): that is the
order in which the windows of an image are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

PRODUCT_NUMBERS = 2**22
"""Blocks are made together, up to this many numbers: one large product beats several small."""

LayerRule = Callable[[Any, Tensor, Tensor, int], Iterator[Tensor]]


def split_gradient(gradient: Tensor, step: int) -> Iterator[Tensor]:
    """A materialised gradient, N×O×..., in blocks of ``step`` along O, channels last."""
    ordered = gradient.movedim(2, -1) if gradient.ndim > 3 else gradient
    for first in range(0, gradient.shape[1], step):
        yield ordered[:, first : first + step].flatten(1)


def linear_weight(layer: nn.Linear, inputs: Tensor, errors: Tensor, step: int) -> Iterator[Tensor]:
    """N×...×C and N×...×O → blocks of N×(O·C)."""
    inputs, errors = _as_positions(inputs), _as_positions(errors)
    yield from _products(errors, inputs, step)


def conv2d_weight(layer: nn.Conv2d, inputs: Tensor, errors: Tensor, step: int) -> Iterator[Tensor]:
    """N×C×height×width and N×O×height'×width' → blocks of N×(O·C/groups·kernel pixels)."""
    windows = _windows(layer, inputs)
    errors = errors.movedim(1, -1).flatten(1, 2)
    if layer.groups == 1:
        yield from _products(errors, windows[:, :, 0].flatten(2), step)
    else:
        grouped = errors.reshape(*errors.shape[:2], layer.groups, -1)
        whole = torch.einsum("ntgo,ntgkc->ngokc", grouped, windows).flatten(1, 2)
        for some in torch.split(whole, step, dim=1):
            yield some.flatten(1)


def norm_weight(layer: Any, inputs: Tensor, errors: Tensor, step: int) -> Iterator[Tensor]:
    """Batch norm by running statistics: N×C×... and N×C×... → blocks of N×C."""
    products, sums = _sum_positions(inputs * errors), _sum_positions(errors)
    scale = torch.rsqrt(layer.running_var + layer.eps)
    yield from split_gradient((products - layer.running_mean * sums) * scale, step)


def channels_first_bias(layer: Any, inputs: Tensor, errors: Tensor, step: int) -> Iterator[Tensor]:
    """Convolutions and batch norms: N×O×... → blocks of N×O."""
    yield from split_gradient(_sum_positions(errors), step)


def channels_last_bias(layer: Any, inputs: Tensor, errors: Tensor, step: int) -> Iterator[Tensor]:
    """Linear layers: N×...×O → blocks of N×O."""
    yield from split_gradient(_as_positions(errors).sum(dim=1), step)


RULES: dict[type[nn.Module], dict[str, LayerRule]] = {
    nn.Linear: {"weight": linear_weight, "bias": channels_last_bias},
    nn.Conv2d: {"weight": conv2d_weight, "bias": channels_first_bias},
    nn.BatchNorm1d: {"weight": norm_weight, "bias": channels_first_bias},
    nn.BatchNorm2d: {"weight": norm_weight, "bias": channels_first_bias},
}
"""Exact types only: a subclass may compute something else in its forward."""


def _products(errors: Tensor, inputs: Tensor, step: int) -> Iterator[Tensor]:
    """Outer products summed over positions: N×L×O and N×L×C → blocks of N×(step·C)."""
    block = len(inputs) * step * inputs.shape[2]
    for some in torch.split(errors, step * max(1, PRODUCT_NUMBERS // block), dim=2):
        product = torch.einsum("nto,ntc->noc", some, inputs)
        for part in torch.split(product, step, dim=1):
            yield part.flatten(1)


def _as_positions(values: Tensor) -> Tensor:
    """N×...×C → N×L×C."""
    return values.reshape(len(values), -1, values.shape[-1])


def _sum_positions(values: Tensor) -> Tensor:
    """N×C×... → N×C."""
    return values.flatten(2).sum(dim=2) if values.ndim > 2 else values


def _windows(layer: nn.Conv2d, inputs: Tensor) -> Tensor:
    """What each output pixel sees: N×C×height×width → N×L×groups×(kernel pixels)×(C/groups)."""
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    # PyTorch derives this list for every kind of padding, "same" included.
    padded = F.pad(inputs, layer._reversed_padding_repeated_twice, mode=mode)
    windows = padded.movedim(1, -1)
    for dim in (0, 1):
        reach = layer.dilation[dim] * (layer.kernel_size[dim] - 1) + 1
        windows = windows.unfold(1 + dim, reach, layer.stride[dim])
        windows = windows[..., :: layer.dilation[dim]]
    # Now N×height'×width'×C×(kernel height)×(kernel width); C lies innermost for fast copies.
    examples, height, width, channels, *kernel = windows.shape
    parts = windows.reshape(examples, height, width, layer.groups, -1, *kernel)
    return parts.movedim(4, -1).reshape(
        examples, height * width, layer.groups, -1, channels // layer.groups
    )
