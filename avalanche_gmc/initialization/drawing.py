"""Draws of whole models: a factory, run with a seed.

Letters: S draws.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from avalanche_gmc.initialization.isolation import derive_seed, plain_arithmetic, seeded
from avalanche_gmc.initialization.modules import (
    frozen_tensors,
    named_tensors,
    refuse_dynamic,
    unwrapped,
)
from avalanche_gmc.initialization.redrawn import Redrawn
from avalanche_gmc.initialization.trained import warn_if_trained

Factory = Callable[[], nn.Module]
ModelOrFactory = nn.Module | Factory


def as_factory(model: ModelOrFactory) -> Factory:
    """A callable that returns a fresh model: the given one, or one made of a module.

    Warns if a module looks trained: :class:`Redrawn` says what of it is drawn and what is kept.
    """
    if isinstance(model, nn.Module):
        warn_if_trained(model)
        return Redrawn(model)
    if not callable(model):
        raise ValueError(
            "the model must be a torch.nn.Module or a callable that returns one, got "
            f"{type(model).__name__}."
        )
    return model


def draw_from(factory: Factory, seed: int) -> nn.Module:
    """What the factory returns under this seed; the global generators are left as they were."""
    with seeded(seed), plain_arithmetic():
        draw = factory()
    if not isinstance(draw, nn.Module):
        raise ValueError(
            f"the callable must return a torch.nn.Module, but it returned {type(draw).__name__}."
        )
    refuse_dynamic(draw)
    return unwrapped(draw)


def fresh_draws(model: ModelOrFactory, count: int, seed: int) -> list[nn.Module]:
    """S freshly initialised models, the same ones for the same seed.

    :param model: a callable that returns a new model, or a module whose layers have
        ``reset_parameters()``; a module is only ever copied, never changed.
    :param count: S.
    :param seed: any integer; the global generators are left as they were.
    """
    check_count(count)
    factory = as_factory(model)
    return [draw_from(factory, derive_seed(seed, draw)) for draw in range(count)]


def check_count(count: int) -> None:
    """Refuse anything but a positive number of draws."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ValueError(f"the number of draws must be an integer of at least 1, got {count!r}.")


def reset_in_place(model: nn.Module, seed: int, factory: Factory | None = None) -> None:
    """Draw this very module's parameters anew and reset its buffers, on its own device.

    Parameters stay the same objects, so an optimizer that holds them keeps working. Frozen
    parameters (``requires_grad=False``) keep their values: training would not change them either.

    :param model: changed in place; compiled or not.
    :param seed: any integer; the global generators are left as they were.
    :param factory: returns a fresh model of the same shapes; None lets the module's own layers
        draw, by ``reset_parameters()``. To go back to pretrained weights with a fresh head, give
        ``Redrawn(model, only="fc")``, made before training.
    """
    ours = named_tensors(model)
    fresh = draw_from(factory or Redrawn(model), seed)
    theirs = named_tensors(fresh)
    for name in ours | theirs:
        shapes = [tuple(ts[name].shape) if name in ts else None for ts in (ours, theirs)]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"{name} has the shape {shapes[0]} in the model and {shapes[1]} in what the "
                "factory returns; the factory must return a model of the same shapes."
            )
    kept = {id(tensor) for tensor in frozen_tensors(model)}
    with torch.no_grad():
        for name, tensor in ours.items():
            if id(tensor) not in kept:
                tensor.copy_(theirs[name])
