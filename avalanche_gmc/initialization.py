"""Draws from a model's initialisation distribution, without touching the global random state.

Every draw is made on the CPU and moved to the model's device afterwards, so that one seed gives
the same numbers on every device. Letters: S draws.
"""

from __future__ import annotations

import copy
import hashlib
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

ModelOrFactory = nn.Module | Callable[[], nn.Module]


def derive_seed(*keys: int) -> int:
    """A 63-bit seed that depends on all keys: neighbouring seeds must not share their draws."""
    digest = hashlib.sha256(repr(keys).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def fresh_draws(model: ModelOrFactory, count: int, seed: int) -> list[nn.Module]:
    """S freshly initialised models, the same ones for the same seed.

    :param model: a callable that returns a new model, or a module whose submodules have
        ``reset_parameters()``; a module is only ever copied, never changed.
    :param count: S.
    :param seed: any integer; the global generators are left as they were.
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ValueError(f"the number of draws must be an integer of at least 1, got {count!r}.")
    return [_fresh_draw(model, derive_seed(seed, draw)) for draw in range(count)]


def reset_in_place(
    model: nn.Module, seed: int, factory: Callable[[], nn.Module] | None = None
) -> None:
    """Draw this very module's parameters anew and reset its buffers, on its own device.

    Parameters stay the same objects, so an optimizer that holds them keeps working. Frozen
    parameters (``requires_grad=False``) keep their values: training would not change them either.

    :param model: a module whose submodules have ``reset_parameters()``, or any module if there is
        a factory.
    :param seed: any integer; the global generators are left as they were.
    :param factory: returns a new model with the same parameters and buffers.
    """
    fresh = _reset_copy(model, seed) if factory is None else _fresh_draw(factory, seed)
    shapes, made = (
        {name: tuple(t.shape) for name, t in (*m.named_parameters(), *m.named_buffers())}
        for m in (model, fresh)
    )
    if shapes != made:
        differing = sorted(dict(shapes.items() ^ made.items()))
        raise ValueError(
            f"the model that the factory returned differs from the {type(model).__name__} to reset "
            f"in {', '.join(differing)}; return a new model of the same kind."
        )
    frozen = {id(tensor) for tensor in _frozen_tensors(model)}
    with torch.no_grad():
        for old, new in zip(_tensors(model), _tensors(fresh), strict=True):
            if id(old) not in frozen:
                old.copy_(new)


def refuse_dynamic(model: nn.Module) -> None:
    """Refuse Avalanche's dynamic modules: their outputs, hence their gradients, change shape."""
    for name, module in model.named_modules():
        if any(base.__name__ == "DynamicModule" for base in type(module).__mro__):
            where = f"'{name}' ({type(module).__name__})" if name else type(module).__name__
            raise ValueError(
                f"the model contains the dynamic module {where}, whose outputs grow or depend on "
                "the task, so that gradients seen earlier and later cannot be compared; fix the "
                "number of outputs (an nn.Linear for all classes), or pass a callable that returns "
                "a model with fixed outputs."
            )


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the generators of torch, NumPy and Python inside the block; restore them after it."""
    python_state, numpy_state = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)


def _fresh_draw(model: ModelOrFactory, seed: int) -> nn.Module:
    if isinstance(model, nn.Module):
        refuse_dynamic(model)
        return _reset_copy(model, seed)
    if not callable(model):
        raise ValueError(
            "the model must be a torch.nn.Module or a callable that returns one, got "
            f"{type(model).__name__}."
        )
    with seeded(seed):
        draw = model()
    if not isinstance(draw, nn.Module):
        raise ValueError(
            f"the callable must return a torch.nn.Module, but it returned {type(draw).__name__}."
        )
    refuse_dynamic(draw)
    return draw


def _reset_copy(model: nn.Module, seed: int) -> nn.Module:
    """A copy with everything drawn anew except what is frozen, such as a pretrained backbone."""
    fresh = copy.deepcopy(model)
    fresh.zero_grad(set_to_none=True)
    devices = [tensor.device for tensor in _tensors(fresh)]
    fresh.cpu()
    frozen = [(tensor, tensor.detach().clone()) for tensor in _frozen_tensors(fresh)]
    with seeded(seed), torch.no_grad():
        _reset_everything(fresh)
        for tensor, kept in frozen:
            tensor.copy_(kept)
    return fresh.to(devices[0]) if devices else fresh


def _reset_everything(model: nn.Module) -> None:
    # NaN shows which parameters no reset_parameters() writes, whoever owns them.
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.fill_(torch.nan)
    # Children first: a container that initialises its children has the last word.
    for module in reversed(list(model.modules())):
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            reset()
    missing = [name for name, parameter in model.named_parameters() if parameter.isnan().any()]
    if missing:
        raise ValueError(
            f"no reset_parameters() covers the parameter(s) {', '.join(missing)} of "
            f"{type(model).__name__}; pass a callable that returns a freshly initialised model, "
            "such as `lambda: MyModel()`, instead of the module."
        )


def _frozen_tensors(model: nn.Module) -> Iterator[Tensor]:
    for module in model.modules():
        own = list(module.parameters(recurse=False))
        frozen = [parameter for parameter in own if not parameter.requires_grad]
        yield from frozen
        if own and len(frozen) == len(own):
            yield from module.buffers(recurse=False)


def _tensors(module: nn.Module) -> list[Tensor]:
    return [*module.parameters(), *module.buffers()]
