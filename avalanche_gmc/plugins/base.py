"""How the weights of a memory enter a strategy's loss.

Avalanche computes ``loss += criterion(output, target)`` and lets plugins add to the loss just
before and after. Right after the forward pass the strategy's criterion is replaced for *exactly one
call*: the criterion is evaluated once, penalties (LwF, EWC) keep their place whatever the order of
the plugins, and any other use of the criterion gets the plain one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from avalanche.training.plugins import GDumbPlugin, ReplayPlugin, SupervisedPlugin
from torch import Tensor

from avalanche_gmc.exemplars import with_weights
from avalanche_gmc.plugins.policy import resolve_policy
from avalanche_gmc.plugins.weighted_loss import check_criterion, memory_weights, weighted_loss

if TYPE_CHECKING:
    from avalanche.training.templates import SupervisedTemplate


class WeightedLossPlugin(SupervisedPlugin, supports_distributed=True):  # type: ignore[call-arg]
    """Lets the weights of a memory enter the loss; base of the plugins of this package.

    :param mem_size: the number of exemplars.
    :param storage_policy: any ``ExemplarsBuffer`` of that size; None for a
        ``GradientMatchingBuffer`` with this seed and model factory.
    """

    reads_weights = True
    """Tells a memory with weights that they are used."""

    def __init__(
        self, mem_size: int, storage_policy: Any, seed: int = 0, model_factory: Any = None
    ) -> None:
        super().__init__()
        self.mem_size = mem_size
        self.storage_policy = resolve_policy(mem_size, storage_policy, seed, model_factory)
        self._weighted = False
        self._weights: Tensor | None = None

    @property
    def _always_weighted(self) -> bool:
        """Whether rows are weighted although the memory has no weights."""
        return False

    def _memory(self) -> Any:
        """The memory as data to train on, with weights unless all rows count alike."""
        weights = memory_weights(self.storage_policy)
        self._weighted = self._always_weighted or weights is not None
        if not self._weighted:
            return self.storage_policy.buffer
        return with_weights(self.storage_policy.buffer, 1.0 if weights is None else weights)

    def before_training(self, strategy: SupervisedTemplate, **kwargs: Any) -> None:
        """Refuse a criterion without weights, and a second plugin that chooses the data."""
        if self._always_weighted or getattr(self.storage_policy, "weights", None) is not None:
            check_criterion(strategy._criterion)
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
