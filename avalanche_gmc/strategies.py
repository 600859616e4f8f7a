"""Ready-made strategies: siblings of Avalanche's ``GDumb`` and ``Replay``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import torch
from avalanche.core import BasePlugin
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.storage_policy import ExemplarsBuffer
from avalanche.training.templates import SupervisedTemplate
from torch import nn

from avalanche_gmc.plugins import CoresetGDumbPlugin, CoresetReplayPlugin

if TYPE_CHECKING:
    from typing_extensions import Required, Unpack


class TemplateOptions(TypedDict, total=False):
    """The options of Avalanche's ``SupervisedTemplate``, which both strategies take.

    :param model: the model, trained in place.
    :param optimizer: the optimizer of its parameters.
    :param criterion: the loss; with a ``reduction`` unless nothing is weighted.
    :param train_mb_size: the training minibatch size, 1 by default; in replay the current rows.
    :param train_epochs: the number of epochs of each training, 1 by default.
    :param eval_mb_size: the evaluation minibatch size; that of training by default.
    :param device: where the model is trained, "cpu" by default.
    :param plugins: further plugins; they run before the strategy's own.
    :param evaluator: metrics and loggers; Avalanche's ``default_evaluator`` by default.
    :param eval_every: evaluate every so many epochs; -1 (the default) never, 0 after each
        experience.
    :param peval_mode: whether `eval_every` counts in an "epoch" (the default) or an "iteration".
    """

    model: Required[nn.Module]
    optimizer: Required[torch.optim.Optimizer]
    criterion: Required[Any]
    train_mb_size: int
    train_epochs: int
    eval_mb_size: int | None
    device: str | torch.device
    plugins: Sequence[BasePlugin] | None
    evaluator: EvaluationPlugin | Callable[[], EvaluationPlugin] | None
    eval_every: int
    peval_mode: str


class CoresetGDumb(SupervisedTemplate):
    """Train from scratch on a curated memory at each experience.

    Options from `mem_size` to `model_factory` are those of
    :class:`~avalanche_gmc.plugins.CoresetGDumbPlugin`, the others those of
    :class:`TemplateOptions`.
    """

    def __init__(
        self,
        *,
        mem_size: int = 200,
        storage_policy: ExemplarsBuffer | None = None,
        init: str = "fresh",
        train_on: str = "every",
        seed: int = 0,
        model_factory: Callable[[], nn.Module] | None = None,
        **options: Unpack[TemplateOptions],
    ) -> None:
        own = CoresetGDumbPlugin(
            mem_size,
            storage_policy,
            init=init,
            train_on=train_on,
            seed=seed,
            model_factory=model_factory,
        )
        super().__init__(**_with_plugin(own, options))


class CoresetReplay(SupervisedTemplate):
    """Train on each experience together with a curated memory.

    Options from `mem_size` to `seed` are those of
    :class:`~avalanche_gmc.plugins.CoresetReplayPlugin`, the others those of
    :class:`TemplateOptions`.
    """

    def __init__(
        self,
        *,
        mem_size: int = 200,
        storage_policy: ExemplarsBuffer | None = None,
        memory_share: str | float = "stream",
        batch_size_mem: int | None = None,
        task_balanced_dataloader: bool = False,
        seed: int = 0,
        **options: Unpack[TemplateOptions],
    ) -> None:
        own = CoresetReplayPlugin(
            mem_size,
            batch_size_mem=batch_size_mem,
            task_balanced_dataloader=task_balanced_dataloader,
            storage_policy=storage_policy,
            memory_share=memory_share,
            seed=seed,
        )
        super().__init__(**_with_plugin(own, options))


def _with_plugin(own: BasePlugin, options: TemplateOptions) -> TemplateOptions:
    plugins = [*(options.get("plugins") or ()), own]
    return {"eval_mb_size": None, **options, "plugins": plugins}
