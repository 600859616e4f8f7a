"""Training from scratch, in place: the model object, its optimizer and its schedulers stay.

What a restart puts back: every parameter and buffer of the model, the optimizer's state (momenta,
step counts), and, if the strategy has an ``LRSchedulerPlugin``, its scheduler with the learning
rates it governs, exactly as they were before the first training. ``LRSchedulerPlugin`` alone resets
``last_epoch`` and the rates only, which is not enough for warm-ups and chained schedulers.

What it leaves: bookkeeping of Avalanche's dynamic modules (which classes and tasks were seen).
"""

from __future__ import annotations

import copy
import warnings
from typing import TYPE_CHECKING, Any

import torch
from avalanche.distributed import DistributedHelper
from avalanche.training.plugins import LRSchedulerPlugin
from torch import Tensor, nn

from avalanche_gmc.initialization import Factory, derive_seed, looks_trained, seeded
from avalanche_gmc.plugins.redraw import plain_tensors, redraw

if TYPE_CHECKING:
    from avalanche.training.templates import SupervisedTemplate

INITS = ("fresh", "same")


class Restart:
    """Puts a strategy back to the start of its training.

    :param init: "fresh" draws new initial parameters each time; "same" returns to the first ones.
    :param seed: the source of the fresh draws.
    :param model_factory: returns a new model with freshly drawn parameters; None lets the model's
        modules draw their own.
    """

    def __init__(self, init: str, seed: int, model_factory: Factory | None = None) -> None:
        if init not in INITS:
            raise ValueError(f"init must be one of {INITS}, got {init!r}")
        if model_factory is not None and (
            isinstance(model_factory, nn.Module) or not callable(model_factory)
        ):
            raise ValueError(
                "model_factory must be a callable that returns a new model, such as "
                f"`lambda: MyModel()`, got {type(model_factory).__name__}"
            )
        self.init = init
        self.seed = seed
        self.model_factory = model_factory
        self._first: dict[str, Tensor] | None = None
        # As before the first training: schedulers, and options of the optimizer's parameter groups.
        self._schedules: list[dict[str, Any]] | None = None
        self._groups: list[dict[str, Any]] = []

    def begin(self, strategy: SupervisedTemplate, index: int) -> None:
        """Restart before a training.

        With "fresh", all randomness of the training (draw, shuffling, dropout) comes from the seed
        and the index, and the global generators are put back when the training ends, also by an
        exception: what one training draws cannot change the next one.

        :param strategy: the strategy whose model is adapted to the experience already.
        :param index: the number of experiences before this one.
        """
        model = DistributedHelper.unwrap_model(strategy.model)
        if self.init == "fresh":
            if self._schedules is None and self.model_factory is None:
                _warn_if_trained(model)
            draw, training = (derive_seed(self.seed, index, use) for use in range(2))
            self._redraw(model, draw)
            strategy._train_exp = _SeededTraining(strategy, training)
        else:
            self._first = _put_back(model, self._first or {})
        strategy.make_optimizer(reset_optimizer_state=True)
        self._put_schedules_back(strategy)

    def _redraw(self, model: nn.Module, seed: int) -> None:
        try:
            redraw(model, seed, self.model_factory)
        except ValueError as error:
            if self.model_factory is not None:
                raise
            raise ValueError(
                f"{error} Here: model_factory=lambda: MyModel() of the GDumb plugin or strategy, "
                "or init='same', which returns to the first parameters"
            ) from error

    def _put_schedules_back(self, strategy: SupervisedTemplate) -> None:
        schedulers = [p.scheduler for p in strategy.plugins if isinstance(p, LRSchedulerPlugin)]
        if self._schedules is None:
            self._schedules = copy.deepcopy([s.state_dict() for s in schedulers])
        if len(schedulers) != len(self._schedules):
            raise ValueError(
                f"the strategy had {len(self._schedules)} LRSchedulerPlugin(s) at its first "
                f"training and has {len(schedulers)} now; the plugins must stay the same"
            )
        for scheduler, state in zip(schedulers, copy.deepcopy(self._schedules), strict=True):
            scheduler.load_state_dict(state)
        groups = strategy.optimizer.param_groups
        for group in groups[len(self._groups) :]:  # at the first training, and when some are added
            options = {key: value for key, value in group.items() if key != "params"}
            self._groups.append(copy.deepcopy(options))
        if schedulers:  # without one, the rates are the user's to change
            for group, options in zip(groups, copy.deepcopy(self._groups), strict=False):
                group.update(options)


def _warn_if_trained(model: nn.Module) -> None:
    if looks_trained(model):
        warnings.warn(
            f"{type(model).__name__} looks trained, but init='fresh' draws all its weights that "
            "are not frozen anew before each training; for a pretrained model use init='same', or "
            "model_factory=Redrawn(model, only='fc') (the name of its head), which keeps the other "
            "weights",
            stacklevel=2,
        )


class _SeededTraining:
    """Takes the place of a strategy's ``_train_exp`` for one call, and runs it under a seed.

    After an exception or Ctrl-C Avalanche calls no hook, so no hook could put the global generators
    back. A ``with`` block around the loop does, whether it ends or fails.
    """

    def __init__(self, strategy: SupervisedTemplate, seed: int) -> None:
        before = vars(strategy).get("_train_exp")  # None: the one of its class
        # Left over when another plugin failed between the restart and the training.
        self.before: Any = before.before if isinstance(before, _SeededTraining) else before
        self._strategy = strategy
        self._seed = seed

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        del self._strategy._train_exp
        if self.before is not None:
            self._strategy._train_exp = self.before
        with seeded(self._seed):
            self._strategy._train_exp(*args, **kwargs)


def _put_back(model: nn.Module, first: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return to the first values; what a dynamic module added since then is new and stays.

    :return: the values to return to next time, those of added parameters included.
    """
    tensors = plain_tensors(model)
    with torch.no_grad():
        for name, tensor in tensors.items():
            if name in first:
                tensor[tuple(slice(size) for size in first[name].shape)] = first[name]
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}
