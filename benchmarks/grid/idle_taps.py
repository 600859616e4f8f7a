"""Convolutions without the weights that never meet a pixel.

A 3×3 kernel that slides over a map of 1×1 meets the pixel with its middle only; the other eight
weights meet the zeros of the padding. Of torchvision's ResNet-18 on images of 32×32 that is true of
seven million weights of eleven. They stay as they were drawn and change no output, but each step
multiplies by them: without them the same training takes three quarters of the time.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor, nn


def drop_idle_taps(model: nn.Module, inputs: Tensor) -> None:
    """Shrink the kernels of a model in place; its outputs for inputs of this size stay the same.

    Weight decay would see a difference, a loss does not.

    :param inputs: an example of what the model will get, 1×channels×height×width.
    """
    for convolution, size in _single_sizes(model, inputs).items():
        if convolution.padding_mode != "zeros" or isinstance(convolution.padding, str):
            continue
        spans = [
            _met(size[axis], *(option[axis] for option in _options(convolution)))
            for axis in range(2)
        ]
        if None not in spans:
            _cut(convolution, *spans)  # type: ignore[arg-type]


def _single_sizes(model: nn.Module, inputs: Tensor) -> dict[nn.Conv2d, tuple[int, int]]:
    """Height and width of the maps of each convolution that always has the same."""
    sizes: dict[nn.Conv2d, set[tuple[int, int]]] = defaultdict(set)

    def note(layer: Any, arguments: tuple[Tensor, ...]) -> None:
        sizes[layer].add((arguments[0].shape[-2], arguments[0].shape[-1]))

    layers = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d)]
    hooks = [layer.register_forward_pre_hook(note) for layer in layers]
    was_training = model.training
    model.eval()  # batch normalisation must not learn from this
    try:
        with torch.no_grad():
            model(inputs)
    finally:
        model.train(was_training)
        for hook in hooks:
            hook.remove()
    return {layer: found.pop() for layer, found in sizes.items() if len(found) == 1}


def _options(convolution: nn.Conv2d) -> tuple[Any, ...]:
    return (
        convolution.kernel_size,
        convolution.stride,
        convolution.padding,
        convolution.dilation,
    )


def _met(size: int, kernel: int, stride: int, padding: int, dilation: int) -> slice | None:
    """The taps of a kernel that meet a pixel, along one axis.

    None if the kernel cannot be cut to them: it meets no pixel, or it would need other zeros before
    than after them.
    """
    outputs = (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    met = [
        tap
        for tap in range(kernel)
        if any(0 <= o * stride - padding + tap * dilation < size for o in range(outputs))
    ]
    if not met:
        return None
    first, last = met[0], met[-1]
    cut = padding - first * dilation
    kept = (size + 2 * cut - dilation * (last - first) - 1) // stride + 1
    return slice(first, last + 1) if cut >= 0 and kept == outputs else None


def _cut(convolution: nn.Conv2d, rows: slice, columns: slice) -> None:
    kept = convolution.weight.detach()[:, :, rows, columns]
    if kept.shape == convolution.weight.shape:
        return
    kept = kept.clone(memory_format=torch.channels_last)
    convolution.weight = nn.Parameter(kept)
    (height, width), (down, right) = _options(convolution)[2:]
    convolution.kernel_size = (kept.shape[2], kept.shape[3])
    convolution.padding = (height - rows.start * down, width - columns.start * right)
