"""How the weights of a memory enter a strategy's loss.

Avalanche computes ``loss += criterion(output, target)`` and lets plugins add to the loss just
before and after. Right after the forward pass the strategy's criterion is replaced for *exactly one
call*: the criterion is evaluated once, penalties (LwF, EWC) keep their place whatever the order of
the plugins, and who uses the criterion elsewhere gets the plain one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from avalanche.training.plugins import GDumbPlugin, ReplayPlugin, SupervisedPlugin
from torch import Tensor

from avalanche_gmc.plugins.weighted_loss import weighted_loss

if TYPE_CHECKING:
    from avalanche.training.templates import SupervisedTemplate


class WeightedLossPlugin(SupervisedPlugin, supports_distributed=True):  # type: ignore[call-arg]
    """Lets the weights of a minibatch enter the loss; base of the plugins of this package."""

    reads_weights = True
    """Tells a memory with weights that they are used."""

    def __init__(self) -> None:
        super().__init__()
        self._weighted = False
        self._weights: Tensor | None = None

    def before_training(self, strategy: SupervisedTemplate, **kwargs: Any) -> None:
        """Refuse a second plugin that chooses the data to train on."""
        for other in strategy.plugins:
            if other is not self and isinstance(
                other, (WeightedLossPlugin, ReplayPlugin, GDumbPlugin)
            ):
                raise ValueError(
                    f"the strategy has a {type(self).__name__} and a {type(other).__name__}, and "
                    "each would replace the data that the other one chose; keep one of the two"
                )

    def before_training_iteration(self, strategy: SupervisedTemplate, **kwargs: Any) -> None:
        """Ask the loader for the weights of the minibatch."""
        self._weights = None
        if self._weighted:
            weights = getattr(strategy.dataloader, "weights", None)
            if weights is None:
                raise ValueError(
                    f"the minibatches come from a {type(strategy.dataloader).__name__} that was "
                    f"put in the place of the loader of {type(self).__name__}, so the memory's "
                    "weights cannot enter the loss; remove the plugin that replaces the loader, or "
                    "use a storage policy without weights"
                )
            self._weights = weights.to(strategy.device, non_blocking=True)

    def after_forward(self, strategy: SupervisedTemplate, **kwargs: Any) -> None:
        """Weight the next call of the criterion."""
        if self._weights is not None:
            strategy._criterion = _OneCall(strategy, self._weights)
            self._weights = None

    def before_backward(self, strategy: SupervisedTemplate, **kwargs: Any) -> None:
        """Make sure that the weights were used."""
        if _put_plain_back(strategy):
            raise ValueError(
                f"{type(strategy).__name__} computes its loss without its criterion, so the "
                "memory's weights cannot enter; use a storage policy without weights"
            )

    def before_eval(self, strategy: SupervisedTemplate, **kwargs: Any) -> None:
        """Evaluate with the plain criterion, also after a training that was interrupted."""
        _put_plain_back(strategy)


def _put_plain_back(strategy: SupervisedTemplate) -> bool:
    """Undo a replacement of the criterion that was not called; whether there was one."""
    replaced = isinstance(strategy._criterion, _OneCall)
    if replaced:
        strategy._criterion = strategy._criterion.criterion
    return replaced


class _OneCall:
    """A weighted criterion that puts the plain one back as soon as it is called."""

    def __init__(self, strategy: SupervisedTemplate, weights: Tensor) -> None:
        _put_plain_back(strategy)  # if the last iteration was interrupted before its loss
        self.criterion: Any = strategy._criterion
        self._strategy = strategy
        self._weights = weights

    def __call__(self, output: Any, target: Tensor) -> Tensor:
        self._strategy._criterion = self.criterion
        return weighted_loss(self.criterion, output, target, self._weights)
