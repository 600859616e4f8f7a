"""Ready-made strategies: siblings of Avalanche's ``GDumb`` and ``Replay``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from avalanche.core import BasePlugin
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.plugins.evaluation import default_evaluator
from avalanche.training.templates import SupervisedTemplate
from torch import nn

from avalanche_gmc.plugins import CoresetGDumbPlugin, CoresetReplayPlugin


class CoresetGDumb(SupervisedTemplate):
    """Train from scratch on a curated memory at each experience.

    See :class:`~avalanche_gmc.plugins.CoresetGDumbPlugin`.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        criterion: Any,
        mem_size: int = 200,
        storage_policy: Any = None,
        init: str = "fresh",
        train_on: str = "every",
        seed: int = 0,
        train_mb_size: int = 1,
        train_epochs: int = 1,
        eval_mb_size: int | None = None,
        device: str | torch.device = "cpu",
        plugins: Sequence[BasePlugin] | None = None,
        evaluator: EvaluationPlugin | Callable[[], EvaluationPlugin] | None = default_evaluator,
        eval_every: int = -1,
        **base_kwargs: Any,
    ) -> None:
        """Init.

        :param model: the model, trained in place.
        :param optimizer: the optimizer of its parameters.
        :param criterion: the loss; with a ``reduction`` if the policy has weights.
        :param mem_size: the number of exemplars.
        :param storage_policy: any ``ExemplarsBuffer`` of that size.
        :param init: "fresh" or "same" initial parameters for each training.
        :param train_on: train at "every" experience or at the "last" one only.
        :param seed: the seed of the default policy and of the fresh draws.
        :param train_mb_size: the training minibatch size.
        :param train_epochs: the number of epochs of each training.
        :param eval_mb_size: the evaluation minibatch size; that of training by default.
        :param device: where the model is trained.
        :param plugins: further plugins; they run before this strategy's own.
        :param evaluator: metrics and loggers.
        :param eval_every: evaluate every so many epochs; -1 never, 0 after each experience.
        :param base_kwargs: further arguments of ``SupervisedTemplate``.
        """
        own = CoresetGDumbPlugin(mem_size, storage_policy, init=init, train_on=train_on, seed=seed)
        super().__init__(
            model=model,
            optimizer=optimizer,
            criterion=criterion,
            train_mb_size=train_mb_size,
            train_epochs=train_epochs,
            eval_mb_size=eval_mb_size,
            device=device,
            plugins=[*(plugins or ()), own],
            evaluator=evaluator,
            eval_every=eval_every,
            **base_kwargs,
        )


class CoresetReplay(SupervisedTemplate):
    """Train on each experience together with a curated memory.

    See :class:`~avalanche_gmc.plugins.CoresetReplayPlugin`.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        criterion: Any,
        mem_size: int = 200,
        storage_policy: Any = None,
        memory_share: str | float = "stream",
        batch_size_mem: int | None = None,
        task_balanced_dataloader: bool = False,
        train_mb_size: int = 1,
        train_epochs: int = 1,
        eval_mb_size: int | None = None,
        device: str | torch.device = "cpu",
        plugins: Sequence[BasePlugin] | None = None,
        evaluator: EvaluationPlugin | Callable[[], EvaluationPlugin] | None = default_evaluator,
        eval_every: int = -1,
        **base_kwargs: Any,
    ) -> None:
        """Init.

        :param model: the model.
        :param optimizer: the optimizer of its parameters.
        :param criterion: the loss; with a ``reduction`` unless nothing is weighted.
        :param mem_size: the number of exemplars.
        :param storage_policy: any ``ExemplarsBuffer`` of that size.
        :param memory_share: the memory's part of the loss: "stream", "batch" or a number.
        :param batch_size_mem: memory rows per minibatch; `train_mb_size` by default.
        :param task_balanced_dataloader: draw the same number of memory rows for each task.
        :param train_mb_size: current rows per minibatch.
        :param train_epochs: the number of epochs of each training.
        :param eval_mb_size: the evaluation minibatch size; that of training by default.
        :param device: where the model is trained.
        :param plugins: further plugins; they run before this strategy's own.
        :param evaluator: metrics and loggers.
        :param eval_every: evaluate every so many epochs; -1 never, 0 after each experience.
        :param base_kwargs: further arguments of ``SupervisedTemplate``.
        """
        own = CoresetReplayPlugin(
            mem_size,
            batch_size_mem=batch_size_mem,
            task_balanced_dataloader=task_balanced_dataloader,
            storage_policy=storage_policy,
            memory_share=memory_share,
        )
        super().__init__(
            model=model,
            optimizer=optimizer,
            criterion=criterion,
            train_mb_size=train_mb_size,
            train_epochs=train_epochs,
            eval_mb_size=eval_mb_size,
            device=device,
            plugins=[*(plugins or ()), own],
            evaluator=evaluator,
            eval_every=eval_every,
            **base_kwargs,
        )
