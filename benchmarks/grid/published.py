"""GDumb's own training (Prabhu et al., ECCV 2020), as far as the MNIST figures of its authors go.

SGD with momentum, the rate falling by cosine annealing with warm restarts (first period one pass,
then doubling), clipped gradients, images shifted at random. The authors report the best test
accuracy over 128 passes, whose last one begins a new period at the full rate; the experiment ends
with the 127th, where a period ends, and reports that.

Shapes: B images of a minibatch, C channels, height×width pixels.
"""

from __future__ import annotations

from typing import Any

import torch
from avalanche.training.plugins import LRSchedulerPlugin, SupervisedPlugin
from torch import Tensor, nn
from torch.nn import functional

SHIFT = 4
LARGEST_NORM = 10.0
LAST_RATE = 0.01
"""At the end of a period, as a part of the first rate."""


def gdumb_training(model: nn.Module, learning_rate: float) -> dict[str, Any]:
    """Optimizer and plugins for a strategy."""
    optimizer = torch.optim.SGD(
        model.parameters(), lr=learning_rate, momentum=0.9, weight_decay=1e-6
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(
        optimizer, T_0=1, T_mult=2, eta_min=LAST_RATE * learning_rate
    )
    return {
        "optimizer": optimizer,
        "plugins": [LRSchedulerPlugin(schedule), ShiftedImages(), ClippedGradients()],
    }


class ShiftedImages(SupervisedPlugin):
    """Moves each image by up to 4 pixels in both directions, in a frame of black around it."""

    def before_forward(self, strategy: Any, **kwargs: Any) -> None:
        """Replace the inputs of the minibatch."""
        strategy.mbatch[0] = shifted(strategy.mb_x)


class ClippedGradients(SupervisedPlugin):
    """Scales gradients to a norm of at most 10."""

    def before_update(self, strategy: Any, **kwargs: Any) -> None:
        """Scale what the backward pass left."""
        nn.utils.clip_grad_norm_(strategy.model.parameters(), LARGEST_NORM)


def shifted(images: Tensor) -> Tensor:
    """A random crop of each image after padding by 4, with black: B×C×height×width."""
    count, _, height, width = images.shape
    padded = functional.pad(images, (SHIFT,) * 4, value=float(images.min()))
    down, right = torch.randint(2 * SHIFT + 1, (2, count, 1))
    rows, columns = down + torch.arange(height), right + torch.arange(width)
    whose = torch.arange(count)[:, None, None]
    crops: Tensor = padded[whose, :, rows[:, :, None], columns[:, None, :]]
    return crops.permute(0, 3, 1, 2)
