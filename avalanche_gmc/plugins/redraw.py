"""New initial parameters for a model, in place, also if heads of it have grown."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import torch
from avalanche.models import DynamicModule
from torch import Tensor, nn

from avalanche_gmc.initialization import Factory, Redrawn, reset_in_place


def redraw(model: nn.Module, seed: int, factory: Factory | None = None) -> None:
    """Draw all parameters anew; dynamic modules keep what they know of classes and tasks.

    :param model: changed in place; every parameter must belong to a ``reset_parameters()``, or be
        in the models that the factory makes.
    :param seed: any integer; the global generators are left as they were.
    :param factory: returns a new model of the same kind, before any head of it grew.
    """
    if any(isinstance(module, DynamicModule) for module in model.modules()):
        factory = partial(_grown, model, factory)
    reset_in_place(model, seed, factory)


@torch.no_grad()
def _grown(model: nn.Module, factory: Factory | None) -> Any:
    """A draw with the heads of `model`: what fits is the factory's, the rest its modules draw."""
    fresh = nn.Module() if factory is None else factory()
    if not isinstance(fresh, nn.Module):
        raise ValueError(
            f"the factory must return a torch.nn.Module, but it returned {type(fresh).__name__}"
        )
    made, twin = plain_tensors(fresh), copy.deepcopy(model)
    for name, tensor in plain_tensors(twin).items():
        if name in made and made[name].shape == tensor.shape:
            tensor.copy_(made[name])
            if isinstance(tensor, nn.Parameter):
                tensor.requires_grad_(False)  # to be kept
    drawn: Any = Redrawn(twin)()
    drawn.never_grows = True  # a draw for this experience, whatever the model does later
    return drawn


def plain_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name, but for the bookkeeping of dynamic modules."""
    tensors: dict[str, Tensor] = dict(model.named_parameters())
    for path, module in model.named_modules():
        if not isinstance(module, DynamicModule):
            for name, buffer in module.named_buffers(prefix=path, recurse=False):
                tensors[name] = buffer
    return tensors
