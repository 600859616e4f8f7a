"""Per-example weight gradients of single layers, from what goes in and the error that comes back.

Letters: N examples, C input channels, O output channels, L positions (pixels, tokens).

Gradients are of the loss of each example alone. A rule yields a tensor's gradient in blocks of
``step`` output channels, N×(step·C·...), so that the N gradients of a large layer never exist at
once. The weights of convolutions are flattened channels last (O, height, width, C): that is the
order in which the windows of an image are stored.

A tap of a kernel that meets nothing but the zeros around a map has no gradient. On small maps most
taps are such: seven of the eleven million weights of torchvision's ResNet-18 on images of 32×32.
They are left out of the blocks of wide layers, and :class:`Columns` says what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

PRODUCT_NUMBERS = 2**22
"""Blocks are made together, up to this many numbers: one large product beats several small."""

FEWEST_CHANNELS = 256
"""Taps are left out if what is left comes in runs of at least as many numbers; shorter runs take
longer to handle than zeros."""


class Columns(NamedTuple):
    """Which of a block's p columns are there, side by side; the others are zero."""

    size: int  # p
    kept: tuple[slice, ...]

    def spread(self, gradients: Tensor) -> Tensor:
        """All columns: N×(those that are there) → N×p."""
        whole = gradients.new_zeros(len(gradients), self.size)
        parts = torch.split(gradients, [some.stop - some.start for some in self.kept], dim=1)
        for some, part in zip(self.kept, parts, strict=True):
            whole[:, some] = part
        return whole


class Block(NamedTuple):
    """The gradients of a block of a tensor: N×p, or fewer columns if most are zero."""

    gradients: Tensor
    columns: Columns | None = None

    def whole(self) -> Tensor:
        """N×p."""
        return self.gradients if self.columns is None else self.columns.spread(self.gradients)


LayerRule = Callable[[Any, Tensor, Tensor, int], Iterator[Block]]


def split_gradient(gradient: Tensor, step: int) -> Iterator[Block]:
    """A materialised gradient, N×O×..., in blocks of ``step`` along O, channels last."""
    ordered = gradient.movedim(2, -1) if gradient.ndim > 3 else gradient
    for first in range(0, gradient.shape[1], step):
        yield Block(ordered[:, first : first + step].flatten(1))


def linear_weight(layer: nn.Linear, inputs: Tensor, errors: Tensor, step: int) -> Iterator[Block]:
    """N×...×C and N×...×O → blocks of N×(O·C)."""
    inputs, errors = _as_positions(inputs), _as_positions(errors)
    yield from _products(errors, inputs, step)


def conv2d_weight(layer: nn.Conv2d, inputs: Tensor, errors: Tensor, step: int) -> Iterator[Block]:
    """N×C×height×width and N×O×height'×width' → blocks of N×(O·C/groups·kernel pixels)."""
    windows = _windows(layer, inputs)
    errors = errors.movedim(1, -1).flatten(1, 2)
    if layer.groups == 1:
        met = _met_taps(layer, inputs) if layer.in_channels >= FEWEST_CHANNELS else None
        some = windows[:, :, 0] if met is None else windows[:, :, 0, met]
        for block in _products(errors, some.flatten(2), step):
            yield block if met is None else _of_taps(block, met, *windows.shape[3:])
    else:
        grouped = errors.reshape(*errors.shape[:2], layer.groups, -1)
        whole = torch.einsum("ntgo,ntgkc->ngokc", grouped, windows).flatten(1, 2)
        for some in torch.split(whole, step, dim=1):
            yield Block(some.flatten(1))


def norm_weight(layer: Any, inputs: Tensor, errors: Tensor, step: int) -> Iterator[Block]:
    """Batch norm by running statistics: N×C×... and N×C×... → blocks of N×C."""
    products, sums = _sum_positions(inputs * errors), _sum_positions(errors)
    scale = torch.rsqrt(layer.running_var + layer.eps)
    yield from split_gradient((products - layer.running_mean * sums) * scale, step)


def channels_first_bias(layer: Any, inputs: Tensor, errors: Tensor, step: int) -> Iterator[Block]:
    """Convolutions and batch norms: N×O×... → blocks of N×O."""
    yield from split_gradient(_sum_positions(errors), step)


def channels_last_bias(layer: Any, inputs: Tensor, errors: Tensor, step: int) -> Iterator[Block]:
    """Linear layers: N×...×O → blocks of N×O."""
    yield from split_gradient(_as_positions(errors).sum(dim=1), step)


RULES: dict[type[nn.Module], dict[str, LayerRule]] = {
    nn.Linear: {"weight": linear_weight, "bias": channels_last_bias},
    nn.Conv2d: {"weight": conv2d_weight, "bias": channels_first_bias},
    nn.BatchNorm1d: {"weight": norm_weight, "bias": channels_first_bias},
    nn.BatchNorm2d: {"weight": norm_weight, "bias": channels_first_bias},
}
"""Exact types only: a subclass may compute something else in its forward."""


def _products(errors: Tensor, inputs: Tensor, step: int) -> Iterator[Block]:
    """Outer products summed over positions: N×L×O and N×L×C → blocks of N×(step·C)."""
    block = len(inputs) * step * inputs.shape[2]
    for some in torch.split(errors, step * max(1, PRODUCT_NUMBERS // block), dim=2):
        product = torch.einsum("nto,ntc->noc", some, inputs)
        for part in torch.split(product, step, dim=1):
            yield Block(part.flatten(1))


def _of_taps(block: Block, met: list[int], taps: int, channels: int) -> Block:
    """A block of some taps only, whose columns are known."""
    outputs = block.gradients.shape[1] // (len(met) * channels)
    starts = [(output * taps + tap) * channels for output in range(outputs) for tap in met]
    kept = tuple(slice(start, start + channels) for start in starts)
    return Block(block.gradients, Columns(outputs * taps * channels, kept))


def met_taps(
    size: int, kernel: int, stride: int, dilation: int, before: int, after: int
) -> list[int]:
    """The taps of a kernel that meet a pixel, along one axis.

    :param size: pixels of the map.
    :param before: zeros before them; ``after`` zeros follow.
    """
    starts = range(-before, size + after - dilation * (kernel - 1), stride)
    return [tap for tap in range(kernel) if any(0 <= a + tap * dilation < size for a in starts)]


def _met_taps(layer: nn.Conv2d, inputs: Tensor) -> list[int] | None:
    """The taps of both axes, row by row; None if all of them or none meet a pixel."""
    if layer.padding_mode != "zeros":
        return None
    zeros = layer._reversed_padding_repeated_twice
    axes = zip(
        inputs.shape[2:],
        layer.kernel_size,
        layer.stride,
        layer.dilation,
        zeros[-2::-2],
        zeros[-1::-2],
        strict=True,
    )
    rows, columns = (met_taps(*axis) for axis in axes)
    height, width = layer.kernel_size
    met = [row * width + column for row in rows for column in columns]
    return met if 0 < len(met) < height * width else None


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
