"""The gradient of the last layer: forward passes only.

Letters: N examples, S draws, K outputs, H features (one more if the layer has a bias).
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from avalanche_gmc.dictionary import Dictionary, LastLayerDictionary
from avalanche_gmc.embedding.base import DrawsEmbedding
from avalanche_gmc.embedding.forward import require_moderate, run_model
from avalanche_gmc.embedding.losses import Loss
from avalanche_gmc.initialization import ModelOrFactory


class _Store(NamedTuple):
    errors: Tensor  # S×N×K; the outputs, until all of them are there
    features: Tensor  # S×N×H
    targets: list[Tensor]
    shapes: set[torch.Size]  # of one example's outputs


class LastLayerEmbedding(DrawsEmbedding[_Store]):
    """Gradients of the final linear layer at S draws, bias included.

    The gradient of a linear layer is the outer product of its error and its input, so one forward
    pass per draw is all it takes, and the dictionary keeps the two factors. The default of the
    memories. Its D = draws · outputs · (features + 1) dimensions should be ten times the size of
    the memory: with fewer, the sum of the gradients is matched before the memory is full, and the
    last picks are of little use.

    :param model: a callable that returns a fresh model, or a module with ``reset_parameters()``.
    :param draws: S; the paper's 4. A memory that makes its embedding itself takes more if it
        is large.
    :param loss: ``loss(outputs, targets)`` with one value per example; None is cross entropy.
    :param layer: name of the final ``nn.Linear``, if it shall not be found.
    :param batch_size: examples per pass; it bounds the bytes in use and changes nothing else. None
        takes up to 1024, so many that no layer returns more than 16 MiB.
    :param save_draws: keep the draws themselves, also in states and pickles. They are normally
        made from the seed when they are needed, and take no room.
    :param bfloat16: run the forward passes in bfloat16: for convolutional networks on processors
        that are fast in it. Other examples are picked then, on Fashion-MNIST as good ones.
    :param seed: of the draws.
    """

    _MEASURED = DrawsEmbedding._MEASURED | {"layer": "_layer"}

    def __init__(
        self,
        model: ModelOrFactory,
        *,
        draws: int = 4,
        loss: Loss | None = None,
        layer: str | None = None,
        batch_size: int | None = None,
        save_draws: bool = False,
        bfloat16: bool = False,
        seed: int = 0,
    ) -> None:
        if not isinstance(bfloat16, bool):
            raise ValueError(f"bfloat16 must be True or False, got {bfloat16!r}.")
        super().__init__(
            model,
            draws=draws,
            loss=loss,
            batch_size=batch_size,
            usual=None,
            save_draws=save_draws,
            seed=seed,
        )
        self._candidates = _linear_layers(self._draws[0], layer)
        self._layer = next(reversed(self._candidates))
        self._bfloat16 = bfloat16

    @property
    def dim(self) -> int:
        outputs, features = self._candidates[self._layer]
        return len(self._draws) * outputs * features

    def _measure(self, draw: int, inputs: Tensor, targets: Tensor) -> None:
        if draw == 0:
            self._layer = _producing_layer(self._draws[0], inputs, list(self._candidates))

    def _allocate(self, examples: int) -> _Store:
        draws, (outputs, width) = len(self._draws), self._candidates[self._layer]
        errors = torch.empty(draws, examples, outputs, device=self._device)
        features = torch.empty(draws, examples, width, device=self._device)
        return _Store(errors, features, [], set())

    def _fill(self, store: _Store, rows: slice, draw: int, inputs: Tensor, targets: Tensor) -> None:
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._bfloat16):
            features, outputs = _run_to_layer(self._draws[draw], self._layer, inputs)
        store.features[draw, rows, : features.shape[1]] = features
        # A bias sees the constant input 1.
        store.features[draw, rows, features.shape[1] :] = 1
        store.errors[draw, rows] = outputs.flatten(1) if outputs.ndim > 1 else outputs[:, None]
        store.shapes.add(outputs.shape[1:])
        if draw == 0:
            store.targets.append(targets)

    def _options(self) -> dict[str, Any]:
        return super()._options() | {"bfloat16": self._bfloat16}

    def _dictionary(self, store: _Store) -> Dictionary:
        # Errors last, for all examples at once: batch by batch they would cost small models more
        # time than the forward passes.
        if store.targets:
            targets = torch.cat(store.targets)
            (shape,) = store.shapes
            for draw, outputs in enumerate(store.errors):
                # Outputs tell about features too: they are sums over all of them.
                require_moderate(outputs, draw)
                errors = self._loss.output_gradient(outputs.view(-1, *shape), targets)
                errors = errors.view_as(outputs)
                require_moderate(errors, draw)
                store.errors[draw] = errors
        return LastLayerDictionary(store.errors, store.features)


def _linear_layers(model: nn.Module, layer: str | None) -> dict[str, tuple[int, int]]:
    """The layers that may produce the outputs, in the order of the model, each with (K, H)."""
    found = {
        name: (module.out_features, module.in_features + int(module.bias is not None))
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear)
    }
    if layer is not None and layer not in found:
        raise ValueError(
            f"layer={layer!r} is not an nn.Linear of {type(model).__name__}; choose one of "
            f"{list(found)}."
        )
    if not found:
        raise ValueError(
            f"{type(model).__name__} has no nn.Linear, so there is no last layer whose gradient a "
            "forward pass could give; use RandomProjectionEmbedding."
        )
    return found if layer is None else {layer: found[layer]}


def _producing_layer(model: nn.Module, inputs: Tensor, names: list[str]) -> str:
    """Which of the layers computes the model's outputs, tried on the first data."""
    for name in reversed(names):
        head = model.get_submodule(name)
        calls: list[Tensor] = []
        with ExitStack() as hooks, torch.no_grad():
            hooks.callback(_catch_inputs(head, calls).remove)
            outputs = run_model(model, inputs)
        if calls and _computes(head, calls[-1], outputs):
            return name
    raise ValueError(
        f"the outputs of {type(model).__name__} do not come straight from a linear layer (tried "
        f"{', '.join(names)}); name the right one with layer=..., let the model return its "
        "unscaled outputs, or use RandomProjectionEmbedding."
    )


def _computes(head: nn.Module, features: Tensor, outputs: Tensor) -> bool:
    if not isinstance(head, nn.Linear) or features.ndim != 2 or len(features) != len(outputs):
        return False
    again = F.linear(features, head.weight, head.bias)
    if outputs.ndim == 1 and head.out_features == 1:
        outputs = outputs[:, None]  # a model of one output may leave its dimension out
    return again.shape == outputs.shape and torch.allclose(
        again, outputs, rtol=1e-4, atol=1e-5, equal_nan=True
    )


def _run_to_layer(model: nn.Module, layer: str, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """What the layer receives and the model returns: N×in_features, N×K."""
    calls: list[Tensor] = []
    with ExitStack() as hooks, torch.no_grad():
        hooks.callback(_catch_inputs(model.get_submodule(layer), calls).remove)
        outputs = run_model(model, inputs)
    return calls[-1], outputs


def _catch_inputs(head: nn.Module, calls: list[Tensor]) -> torch.utils.hooks.RemovableHandle:
    return head.register_forward_pre_hook(lambda _, args: calls.append(args[0]))
