"""Training from scratch, in place: the model object, its optimizer and its schedulers stay.

What a restart puts back: every parameter and buffer of the model, the optimizer's state (momenta,
step counts), and, if the strategy has an ``LRSchedulerPlugin``, its scheduler with the learning
rates it governs, exactly as they were before the first training. ``LRSchedulerPlugin`` alone resets
``last_epoch`` and the rates only, which is not enough for warm-ups and chained schedulers.

What it leaves: bookkeeping of Avalanche's dynamic modules (which classes and tasks were seen).
"""

from __future__ import annotations

import copy
from contextlib import ExitStack
from typing import Any

import torch
from avalanche.distributed import DistributedHelper
from avalanche.models import DynamicModule
from avalanche.training.plugins import LRSchedulerPlugin
from torch import Tensor, nn

from avalanche_gmc.initialization import derive_seed, reset_in_place, seeded

INITS = ("fresh", "same")


class Restart:
    """Puts a strategy back to the start of its training.

    :param init: "fresh" draws new initial parameters each time; "same" returns to the first ones.
    :param seed: the source of the fresh draws.
    """

    def __init__(self, init: str, seed: int) -> None:
        if init not in INITS:
            raise ValueError(f"init must be one of {INITS}, got {init!r}")
        self.init = init
        self.seed = seed
        self._first: dict[str, Tensor] | None = None
        self._schedules: _Schedules | None = None
        self._randomness: ExitStack | None = None

    def begin(self, strategy: Any, index: int) -> None:
        """Restart before a training.

        With "fresh", all randomness of the training (draw, shuffling, dropout) comes from the seed
        and the index, and the global generators are put back by :meth:`end`: what one training
        draws cannot change the next one.

        :param strategy: the strategy whose model is adapted to the experience already.
        :param index: the number of experiences before this one.
        """
        self.end()
        model = DistributedHelper.unwrap_model(strategy.model)
        if self.init == "fresh":
            draw, training = (derive_seed(self.seed, index, use) for use in range(2))
            redraw(model, draw)
            self._randomness = ExitStack()
            self._randomness.enter_context(seeded(training))
        else:
            self._first = _put_back(model, self._first or {})
        strategy.make_optimizer(reset_optimizer_state=True)
        if self._schedules is None:
            self._schedules = _Schedules(strategy)
        self._schedules.put_back(strategy)

    def end(self) -> None:
        """Give the global generators back."""
        if self._randomness is not None:
            self._randomness.close()
            self._randomness = None


def redraw(model: nn.Module, seed: int) -> None:
    """Draw all parameters anew; dynamic modules keep what they know of classes and tasks.

    :param model: changed in place; every parameter must belong to a ``reset_parameters()``.
    """
    if not any(isinstance(module, DynamicModule) for module in model.modules()):
        reset_in_place(model, seed)
        return
    modules: list[Any] = [m for m in model.modules() if hasattr(m, "reset_parameters")]
    covered = {id(parameter) for module in modules for parameter in module.parameters()}
    missing = [name for name, p in model.named_parameters() if id(p) not in covered]
    if missing:
        raise ValueError(
            f"no reset_parameters() covers the parameter(s) {', '.join(missing)} of "
            f"{type(model).__name__}; add one to the module that owns them, or use init='same'"
        )
    with seeded(seed):
        for module in modules:
            module.reset_parameters()


def _put_back(model: nn.Module, first: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return to the first values; what a dynamic module added since then is new and stays.

    :return: the values to return to next time, those of added parameters included.
    """
    tensors: dict[str, Tensor] = {**dict(model.named_parameters()), **_plain_buffers(model)}
    with torch.no_grad():
        for name, tensor in tensors.items():
            if name in first:
                tensor[tuple(slice(size) for size in first[name].shape)] = first[name]
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def _plain_buffers(model: nn.Module) -> dict[str, Tensor]:
    """All buffers but those that are the bookkeeping of dynamic modules."""
    return {
        f"{path}.{name}" if path else name: buffer
        for path, module in model.named_modules()
        if not isinstance(module, DynamicModule)
        for name, buffer in module.named_buffers(recurse=False)
    }


class _Schedules:
    """The learning-rate schedules of a strategy as they are now."""

    def __init__(self, strategy: Any) -> None:
        self._states = [copy.deepcopy(s.state_dict()) for s in _schedulers(strategy)]
        self._groups = [
            {key: copy.deepcopy(value) for key, value in group.items() if key != "params"}
            for group in strategy.optimizer.param_groups
        ]

    def put_back(self, strategy: Any) -> None:
        schedulers = _schedulers(strategy)
        if len(schedulers) != len(self._states):
            raise ValueError(
                f"the strategy had {len(self._states)} LRSchedulerPlugin(s) at its first training "
                f"and has {len(schedulers)} now; the plugins must stay the same"
            )
        for scheduler, state in zip(schedulers, self._states, strict=True):
            scheduler.load_state_dict(copy.deepcopy(state))
        if schedulers:  # without one, the rates are the user's to change
            for group, options in zip(strategy.optimizer.param_groups, self._groups, strict=True):
                group.update(copy.deepcopy(options))


def _schedulers(strategy: Any) -> list[Any]:
    return [p.scheduler for p in strategy.plugins if isinstance(p, LRSchedulerPlugin)]
