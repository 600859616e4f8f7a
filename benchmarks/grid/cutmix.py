"""CutMix (Yun et al., ICCV 2019): every image gets a box of another one, and its label.

One box and one order for a whole minibatch, and only with a given probability, as GDumb's authors
do it. With weights each label counts with the weight of the exemplar that it belongs to.

Shapes: B images of a minibatch, C channels, height×width pixels, K classes.
"""

from __future__ import annotations

from typing import Any

import torch
from avalanche.training.plugins import SupervisedPlugin
from torch import Tensor
from torch.nn import functional


class CutMix(SupervisedPlugin):
    """Mixes the images of a minibatch and makes their labels shares of classes.

    :param probability: that a minibatch is mixed at all.
    :param alpha: of the Beta distribution of the part that stays.
    """

    def __init__(self, probability: float = 0.5, alpha: float = 1.0) -> None:
        super().__init__()
        self._probability = probability
        self._part = torch.distributions.Beta(alpha, alpha)

    def before_forward(self, strategy: Any, **kwargs: Any) -> None:
        """Replace inputs and labels of the minibatch, now and then."""
        if float(torch.rand(())) >= self._probability:
            return
        images, labels = strategy.mb_x, strategy.mb_y
        order = torch.randperm(len(images))
        top, bottom, left, right = box(images.shape[2], images.shape[3], float(self._part.sample()))
        mixed = images.clone()
        mixed[:, :, top:bottom, left:right] = images[order, :, top:bottom, left:right]
        pasted = (bottom - top) * (right - left) / images[0, 0].numel()
        weights = getattr(strategy.dataloader, "weights", None)
        classes = output_count(strategy.model)
        strategy.mbatch[0] = mixed
        strategy.mbatch[1] = shares(labels, order, pasted, classes, weights)


def box(height: int, width: int, part: float) -> tuple[int, int, int, int]:
    """Rows and columns of a random box over about 1 − ``part`` of an image, clipped at edges."""
    side = (1 - part) ** 0.5
    bounds = []
    for size in (height, width):
        middle, half = int(torch.randint(size, ())), int(size * side) // 2
        bounds += [max(0, middle - half), min(size, middle + half)]
    return bounds[0], bounds[1], bounds[2], bounds[3]


def shares(
    labels: Tensor, order: Tensor, pasted: float, classes: int, weights: Tensor | None
) -> Tensor:
    """What the cross entropy takes in place of labels: B×K.

    The strategy multiplies a row's loss by the weight of the row, so that the part of another
    exemplar is given in proportion to the two weights. A row of weight 0 has no loss, whatever is
    pasted into it.

    :param order: whose box each row has: B.
    :param pasted: the part of the image that the box takes.
    :param weights: B, or None if all count alike.
    """
    own = functional.one_hot(labels, classes).float()
    other = own[order]
    if weights is not None:
        ratio = weights[order] / weights.where(weights > 0, torch.inf)
        other = other * ratio[:, None]
    return (1 - pasted) * own + pasted * other


def output_count(model: torch.nn.Module) -> int:
    """K of a model that ends in a linear layer."""
    *_, last = (part for part in model.modules() if isinstance(part, torch.nn.Linear))
    return last.out_features
