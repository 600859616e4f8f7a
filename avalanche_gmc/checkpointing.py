"""Avalanche's checkpoints on current versions of torch.

``avalanche.checkpointing.save_checkpoint`` pickles the strategy with dill, which looks a class up
by its full name, such as ``torch.optim.sgd.SGD``. Current versions of torch delete the names of
these modules from ``torch.optim``; dill then tries to pickle the optimizer's class by value and
fails. :func:`enable_checkpointing` sets the names again, and the two functions below call it before
they hand over to Avalanche.

Save between two calls of ``strategy.train``. What comes back is a new model and a new optimizer
inside the given strategy: use ``strategy.model`` afterwards. The global random generators are
saved and restored too, so a resumed run goes on as if it had not been interrupted.
"""

from __future__ import annotations

import sys
from typing import Any

import torch


def enable_checkpointing() -> None:
    """Make the modules of ``torch.optim`` attributes of it, where torch removed them."""
    prefix = "torch.optim."
    for name, module in list(sys.modules.items()):
        child = name.removeprefix(prefix)
        if name.startswith(prefix) and "." not in child and not hasattr(torch.optim, child):
            setattr(torch.optim, child, module)


def save_checkpoint(strategy: Any, path: Any, **kwargs: Any) -> None:
    """``avalanche.checkpointing.save_checkpoint``, made to work.

    :param strategy: the strategy, outside of its training and evaluation loops.
    :param path: the file to write.
    :param kwargs: further arguments of Avalanche's function.
    """
    from avalanche.checkpointing import save_checkpoint as save

    enable_checkpointing()
    save(strategy, path, **kwargs)


def maybe_load_checkpoint(strategy: Any, path: Any, **kwargs: Any) -> tuple[Any, int]:
    """``avalanche.checkpointing.maybe_load_checkpoint``, made to work.

    :param strategy: a strategy to load into.
    :param path: the file to read; if there is none, the strategy stays as it is.
    :param kwargs: further arguments of Avalanche's function.
    :return: the strategy and the number of experiences it was trained on.
    """
    from avalanche.checkpointing import maybe_load_checkpoint as load

    enable_checkpointing()
    strategy, num_experiences = load(strategy, path, **kwargs)
    return strategy, int(num_experiences)
