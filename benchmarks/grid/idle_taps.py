"""Convolutions without the weights that never meet a pixel.

A 3×3 kernel that slides over a map of 1×1 meets the pixel with its middle only; the other eight
weights meet the zeros of the padding. Of torchvision's ResNet-18 on images of 32×32 that is true of
seven million weights of eleven. They change no output and get no gradient, but each step would
multiply by them.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor, nn

from avalanche_gmc.embedding.layers import met_taps


def drop_idle_taps(model: nn.Module, inputs: Tensor) -> None:
    """Shrink the kernels of a model in place.

    For inputs of this size its outputs stay the same, and so does its training by an optimizer that
    treats each weight by itself.

    :param inputs: an example of what the model will get, with a batch axis.
    """
    for layer, size in _single_sizes(model, inputs).items():
        padding, dilation = layer.padding, layer.dilation
        if layer.padding_mode != "zeros" or isinstance(padding, str):
            continue
        axes = zip(size, layer.kernel_size, layer.stride, padding, dilation, strict=True)
        rows, columns = (_met(*axis) for axis in axes)
        kept = layer.weight.detach()[:, :, rows, columns]
        if kept.shape != layer.weight.shape:
            layer.weight = nn.Parameter(kept.clone(memory_format=torch.channels_last))
            layer.kernel_size = (kept.shape[2], kept.shape[3])
            layer.padding = (
                padding[0] - rows.start * dilation[0],
                padding[1] - columns.start * dilation[1],
            )


def _single_sizes(model: nn.Module, inputs: Tensor) -> dict[nn.Conv2d, tuple[int, int]]:
    """Height and width of the maps of each convolution that always has the same."""
    sizes: dict[nn.Conv2d, set[tuple[int, int]]] = defaultdict(set)

    def note(layer: Any, arguments: tuple[Tensor, ...]) -> None:
        sizes[layer].add((arguments[0].shape[-2], arguments[0].shape[-1]))

    layers = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d)]
    if not layers:
        return {}
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


def _met(size: int, kernel: int, stride: int, padding: int, dilation: int) -> slice:
    """The taps of a kernel that meet a pixel, along one axis.

    All of them if none does, or if the kernel would need other zeros before than after the pixels.
    """
    outputs = (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    met = met_taps(size, kernel, stride, dilation, padding, padding)
    first, last = (met[0], met[-1]) if met else (0, kernel - 1)
    zeros = padding - first * dilation
    kept = (size + 2 * zeros - dilation * (last - first) - 1) // stride + 1
    return slice(first, last + 1) if zeros >= 0 and kept == outputs else slice(0, kernel)
