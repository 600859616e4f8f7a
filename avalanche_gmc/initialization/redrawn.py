"""A factory made of a module: what is drawn anew, and what is kept.

A draw from the initialisation distribution of a model that starts from pretrained weights is these
weights with a fresh head, not a random network. ``Redrawn(model, only="fc")`` says so.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from avalanche_gmc.initialization.headless import Headless
from avalanche_gmc.initialization.modules import unwrap_children, unwrapped


class Redrawn:
    """Returns a new copy of a module at each call, freshly initialised by its own layers.

    Frozen parameters (``requires_grad=False``) and the buffers of frozen layers keep the values
    that they have when this is made. Nothing else is stored, here or in pickles: no values of
    parameters that are drawn.

    :param model: a module whose layers have ``reset_parameters()``; it is never changed.
    :param only: names of the submodules to draw anew, such as ``"fc"``; everything else keeps its
        values too, as for a model that was pretrained. None draws all that is not frozen.
    """

    def __init__(self, model: nn.Module, *, only: str | Sequence[str] | None = None) -> None:
        model = unwrapped(model)
        self._only = [only] if isinstance(only, str) else only
        chosen = [model] if self._only is None else [_submodule(model, n) for n in self._only]
        drawn = {p for module in chosen for p in module.parameters() if p.requires_grad}
        if self._only is not None and not drawn:
            raise ValueError(
                f"only={only!r} has no trainable parameters, so all draws would be the same; name "
                "the layers to be drawn anew, such as the head."
            )
        memo = {id(p): nn.Parameter(torch.empty_like(p, device="meta")) for p in drawn}
        self._device = next((t.device for t in _tensors(model)), torch.device("cpu"))
        # Parameters to be drawn have shapes here, and no values.
        self._template = copy.deepcopy(model, memo)
        unwrap_children(self._template)

    def __call__(self) -> nn.Module:
        """A draw by torch's global generator, on the device of the model.

        All numbers are drawn on the CPU, so that one seed gives the same ones for every device.
        """
        return self._draw(shared=False)

    def sharing(self) -> nn.Module:
        """The same draw, for reading only: what is kept is not copied."""
        return self._draw(shared=True)

    def headless(self) -> Redrawn:
        """The same for the model without its growing head."""
        if isinstance(self._template, Headless):
            return self
        twin = copy.copy(self)
        twin._template = Headless(self._template)
        if self._only is not None:
            twin._only = [f"model.{name}" for name in self._only]
        return twin

    def _draw(self, *, shared: bool) -> nn.Module:
        fresh = set(_fresh_modules(self._template, self._only))
        written = {p for module in fresh if _initialiser(module) for p in module.parameters()}
        memo: dict[int, Tensor] = {}
        for parameter in self._template.parameters():
            if parameter.is_meta:
                empty = torch.full_like(parameter, torch.nan, device="cpu")
                memo[id(parameter)] = nn.Parameter(empty)
            elif shared and parameter not in written:
                memo[id(parameter)] = parameter
        draw = copy.deepcopy(self._template, memo)
        with torch.no_grad():
            # Children first: a container that initialises its children decides.
            for old, new in reversed(list(_pairs(self._template, draw))):
                initialise = _initialiser(new) if old in fresh else None
                if initialise is not None:
                    initialise()
            self._put_kept_back(draw, fresh)
        self._require_complete(draw)
        return draw.to(self._device)

    def _put_kept_back(self, draw: nn.Module, fresh: set[nn.Module]) -> None:
        for old, new in _pairs(self._template, draw):
            for kept, parameter in _own_pairs(old._parameters, new._parameters):
                if not kept.is_meta and kept is not parameter:
                    parameter.copy_(kept)
            own = list(old.parameters(recurse=False))
            if old not in fresh or (own and not any(p.is_meta for p in own)):
                for kept, buffer in _own_pairs(old._buffers, new._buffers):
                    buffer.copy_(kept)

    def _require_complete(self, draw: nn.Module) -> None:
        # NaN shows which parameters no reset_parameters() writes, whoever owns them.
        pairs = zip(self._template.parameters(), draw.named_parameters(), strict=True)
        missing = [name for old, (name, new) in pairs if old.is_meta and _has_nan(new)]
        if missing:
            raise ValueError(
                f"no reset_parameters() covers the parameter(s) {', '.join(missing)} of "
                f"{type(draw).__name__}; pass a callable that returns a freshly initialised model, "
                "such as `lambda: MyModel()`: to an embedding in place of the model, elsewhere as "
                "factory=..."
            )


def _fresh_modules(model: nn.Module, only: Sequence[str] | None) -> Iterator[nn.Module]:
    """Modules to be initialised: those with parameters to draw somewhere inside, and those without
    any parameters (such as batch norm without weights) among them."""

    def visit(module: nn.Module, path: str, parent_is_fresh: bool) -> Iterator[nn.Module]:
        parameters = list(module.parameters())
        inside = only is None or parent_is_fresh or path in only
        fresh = any(p.is_meta for p in parameters) if parameters else parent_is_fresh
        if fresh:
            yield module
        for name, child in module.named_children():
            yield from visit(child, f"{path}.{name}" if path else name, fresh and inside)

    return visit(model, "", only is None)


def _initialiser(module: nn.Module) -> Callable[[], None] | None:
    # nn.MultiheadAttention and nn.Transformer keep theirs private.
    for name in ("reset_parameters", "_reset_parameters"):
        found = getattr(module, name, None)
        if callable(found):
            return cast("Callable[[], None]", found)
    return None


def _submodule(model: nn.Module, name: str) -> nn.Module:
    try:
        return model.get_submodule(name)
    except AttributeError as error:
        names = [child for child, _ in model.named_children()]
        raise ValueError(
            f"only={name!r} is no submodule of {type(model).__name__}; it has {names}."
        ) from error


def _pairs(one: nn.Module, other: nn.Module) -> Iterator[tuple[nn.Module, nn.Module]]:
    return zip(one.modules(), other.modules(), strict=True)


def _own_pairs(
    one: Mapping[str, Tensor | None], other: Mapping[str, Tensor | None]
) -> Iterator[tuple[Tensor, Tensor]]:
    for name, kept in one.items():
        new = other.get(name)
        if kept is not None and new is not None:
            yield kept, new


def _has_nan(values: Tensor) -> bool:
    # In parts: the answers for all numbers at once would take a quarter of their room.
    return any(bool(part.isnan().any()) for part in torch.split(values.detach().flatten(), 2**20))


def _tensors(model: nn.Module) -> list[Tensor]:
    return [*model.parameters(), *model.buffers()]
