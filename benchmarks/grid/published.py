"""GDumb's own training (Prabhu et al., ECCV 2020), for its authors' figures on MNIST and CIFAR-10.

SGD with momentum, the rate falling by cosine annealing with warm restarts (first period one pass,
then doubling), clipped gradients, images shifted at random; those of CIFAR-10 also mirrored, and
mixed by :mod:`.cutmix`. The authors report the best test accuracy over 128 (256) passes, whose last
one begins a new period at the full rate; the experiment ends with the 127th (255th), where a period
ends, and reports that.

Shapes: B images of a minibatch, C channels, height×width pixels.
"""

from __future__ import annotations

from typing import Any

import torch
from avalanche.training.plugins import LRSchedulerPlugin, SupervisedPlugin
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.grid.cutmix import CutMix
from benchmarks.streams.images import CIFAR10_PIXELS, black

SHIFT = 4
LARGEST_NORM = 10.0
LAST_RATE = 0.01
"""At the end of a period, as a part of the first rate."""


def gdumb_training(model: nn.Module, learning_rate: float, data: str = "mnist") -> dict[str, Any]:
    """Optimizer and plugins for a strategy.

    :param data: ``mnist`` or ``cifar10``.
    """
    optimizer = torch.optim.SGD(
        model.parameters(), lr=learning_rate, momentum=0.9, weight_decay=1e-6
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(
        optimizer, T_0=1, T_mult=2, eta_min=LAST_RATE * learning_rate
    )
    augmented: dict[str, list[SupervisedPlugin]] = {
        "mnist": [ShiftedImages()],
        "cifar10": [ShiftedImages(black(CIFAR10_PIXELS)), MirroredImages(), CutMix()],
    }
    return {
        "optimizer": optimizer,
        "plugins": [LRSchedulerPlugin(schedule), *augmented[data], ClippedGradients()],
    }


class ShiftedImages(SupervisedPlugin):
    """Moves each image by up to 4 pixels in both directions, in a frame of black around it.

    :param frame: black in each channel, C; None is the smallest number of the minibatch.
    """

    def __init__(self, frame: Tensor | None = None) -> None:
        super().__init__()
        self._frame = frame

    def before_forward(self, strategy: Any, **kwargs: Any) -> None:
        """Replace the inputs of the minibatch."""
        images = strategy.mb_x
        if self._frame is None:
            strategy.mbatch[0] = shifted(images)
        else:
            frame = self._frame[:, None, None]
            strategy.mbatch[0] = shifted(images - frame, 0.0) + frame


class MirroredImages(SupervisedPlugin):
    """Swaps left and right of every image with probability one half."""

    def before_forward(self, strategy: Any, **kwargs: Any) -> None:
        """Replace the inputs of the minibatch."""
        strategy.mbatch[0] = mirrored(strategy.mb_x)


class ClippedGradients(SupervisedPlugin):
    """Scales gradients to a norm of at most 10."""

    def before_update(self, strategy: Any, **kwargs: Any) -> None:
        """Scale what the backward pass left."""
        nn.utils.clip_grad_norm_(strategy.model.parameters(), LARGEST_NORM)


def mirrored(images: Tensor) -> Tensor:
    """Images of which each is mirrored or not: B×C×height×width."""
    swapped = torch.rand(len(images)) < 0.5
    return torch.where(swapped[:, None, None, None], images.flip(3), images)


def shifted(images: Tensor, frame: float | None = None) -> Tensor:
    """A random crop of each image after padding by 4: B×C×height×width.

    :param frame: what it is padded with; None is the smallest number there is, black.
    """
    count, _, height, width = images.shape
    value = float(images.min()) if frame is None else frame
    padded = functional.pad(images, (SHIFT,) * 4, value=value)
    down, right = torch.randint(2 * SHIFT + 1, (2, count, 1))
    rows, columns = down + torch.arange(height), right + torch.arange(width)
    whose = torch.arange(count)[:, None, None]
    crops: Tensor = padded[whose, :, rows[:, :, None], columns[:, None, :]]
    return crops.permute(0, 3, 1, 2)
