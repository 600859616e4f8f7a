"""New initial parameters for a model, in place, also if heads of it have grown."""

from __future__ import annotations

from typing import Any

import torch
from avalanche.models import DynamicModule
from torch import nn

from avalanche_gmc.initialization import Factory, reset_in_place, seeded


def redraw(model: nn.Module, seed: int, factory: Factory | None = None) -> None:
    """Draw all parameters anew; dynamic modules keep what they know of classes and tasks.

    :param model: changed in place; every parameter must belong to a ``reset_parameters()``, or be
        in the models that the factory makes.
    :param seed: any integer; the global generators are left as they were.
    :param factory: returns a new model of the same kind, before any head of it grew.
    """
    if not any(isinstance(module, DynamicModule) for module in model.modules()):
        reset_in_place(model, seed, factory)
        return
    with seeded(seed):
        fresh = nn.Module() if factory is None else factory()
        if not isinstance(fresh, nn.Module):
            raise ValueError(
                f"the factory must return a torch.nn.Module, but it returned {type(fresh).__name__}"
            )
        _redraw_dynamic(model, dict(fresh.named_parameters()))


@torch.no_grad()
def _redraw_dynamic(model: nn.Module, made: dict[str, nn.Parameter]) -> None:
    """Take parameters from `made` where they fit; the others are drawn by their modules."""
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    fitting = {n: p for n, p in trained.items() if n in made and made[n].shape == p.shape}
    # Children first: a container that initialises its children decides.
    modules = [m for m in reversed(list(model.modules())) if _resetter(m) and _is_trained(m)]
    covered = {id(p) for module in modules for p in module.parameters()}
    missing = [n for n, p in trained.items() if n not in fitting and id(p) not in covered]
    if missing:
        raise ValueError(
            f"no reset_parameters() covers the parameter(s) {', '.join(missing)} of "
            f"{type(model).__name__}; pass a callable that returns a freshly initialised model."
        )
    frozen = [(p, p.clone()) for p in model.parameters() if not p.requires_grad]
    for module in modules:
        _resetter(module)()
    for name, parameter in fitting.items():
        parameter.copy_(made[name])
    for parameter, kept in frozen:
        parameter.copy_(kept)


def _resetter(module: nn.Module) -> Any:
    """The method that initialises a module; nn.MultiheadAttention has a private one."""
    return getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)


def _is_trained(module: nn.Module) -> bool:
    parameters = list(module.parameters())
    return not parameters or any(p.requires_grad for p in parameters)
