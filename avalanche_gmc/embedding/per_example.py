"""Per-example gradients of all trainable parameters, one tensor and a few examples at a time.

Letters: N examples, P parameters of the model, p of one of its tensors.

Gradients are of each example's own loss, never divided by N. Two ways to get them:

- layer by layer, if every trainable parameter belongs to a linear, convolution or batch-norm
  layer: one backward pass for the errors at the layers' outputs, then one product per layer;
- ``torch.func``, for every other model, and whenever the first way disagrees with autograd
  (parameters used outside their layer, layers that mix examples or move them elsewhere).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.func import functional_call, grad, vmap

from avalanche_gmc.embedding.forward import run_model
from avalanche_gmc.embedding.layers import RULES, LayerRule, flatten_gradient
from avalanche_gmc.embedding.losses import ExampleLoss


class Piece(NamedTuple):
    """Gradients of one tensor for some of the examples; pieces of the same place add up."""

    rows: slice
    tensor: int
    gradients: Tensor  # (number of rows)×p


class _Call(NamedTuple):
    """One use of a layer in a forward pass."""

    layer: nn.Module
    inputs: Tensor
    outputs: GradientEdge


class PerExampleGradients:
    """The gradients of each example's loss with respect to a model's trainable parameters.

    :param model: in eval mode.
    :param loss: one value per example.
    :param piece_elements: no piece holds more numbers than this, unless a single example does.
    """

    def __init__(self, model: nn.Module, loss: ExampleLoss, piece_elements: int) -> None:
        self.model = model
        self.loss = loss
        self.piece_elements = piece_elements
        self.names = [name for name, parameter in _trainable(model)]
        self._positions = {id(p): i for i, (_, p) in enumerate(_trainable(model))}
        self._by_layer: bool | None = None

    def pieces(self, inputs: Tensor, targets: Tensor) -> Iterator[Piece]:
        """The gradients of N examples, in pieces that cover every row and tensor."""
        if self._by_layer is None:
            self._by_layer = self._layers_agree_with_autograd(inputs[:2], targets[:2])
        if self._by_layer:
            yield from self._layer_pieces(inputs, targets)
        else:
            yield from self._func_pieces(inputs, targets)

    def _layer_pieces(self, inputs: Tensor, targets: Tensor) -> Iterator[Piece]:
        calls, errors = self._errors_at_layers(inputs, targets)
        for call, error in zip(calls, errors, strict=True):
            if error is None:
                continue
            for tensor, rule, size in self._rules(call.layer):
                for rows in self._row_blocks(len(inputs), size):
                    gradients = rule(call.layer, call.inputs[rows], error[rows])
                    yield Piece(rows, tensor, gradients)

    def _errors_at_layers(
        self, inputs: Tensor, targets: Tensor
    ) -> tuple[list[_Call], tuple[Tensor | None, ...]]:
        calls: list[_Call] = []

        def record(layer: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
            # The edge, not the tensor: an in-place activation would change what the tensor means.
            calls.append(_Call(layer, args[0].detach(), get_gradient_edge(output)))

        with ExitStack() as hooks, torch.enable_grad():
            for layer in self.model.modules():
                if any(True for _ in self._rules(layer)):
                    hooks.callback(layer.register_forward_hook(record).remove)
            total = self.loss(run_model(self.model, inputs), targets).sum()
        # Weight gradients are not among the requested ones, so the backward pass skips them.
        edges = [call.outputs for call in calls]
        return calls, torch.autograd.grad(total, edges, allow_unused=True)

    def _rules(self, layer: nn.Module) -> Iterator[tuple[int, LayerRule, int]]:
        for name, rule in RULES.get(type(layer), {}).items():
            parameter = getattr(layer, name)
            if id(parameter) in self._positions:
                yield self._positions[id(parameter)], rule, parameter.numel()

    def _func_pieces(self, inputs: Tensor, targets: Tensor) -> Iterator[Piece]:
        trainable = {name: parameter.detach() for name, parameter in _trainable(self.model)}

        def example_loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            outputs = functional_call(self.model, parameters, (x.unsqueeze(0),))
            return self.loss(outputs, y.unsqueeze(0)).squeeze(0)

        gradients_of = vmap(grad(example_loss), in_dims=(None, 0, 0))
        total = sum(parameter.numel() for parameter in trainable.values())
        for rows in self._row_blocks(len(inputs), total):
            gradients = gradients_of(trainable, inputs[rows], targets[rows])
            for tensor, name in enumerate(self.names):
                yield Piece(rows, tensor, flatten_gradient(gradients[name]))

    def _row_blocks(self, examples: int, size: int) -> Iterator[slice]:
        step = max(1, self.piece_elements // max(1, size))
        return (slice(a, min(a + step, examples)) for a in range(0, examples, step))

    def _layers_agree_with_autograd(self, inputs: Tensor, targets: Tensor) -> bool:
        """Whether the first way covers this model, tried on its first examples."""
        owned = {tensor for layer in self.model.modules() for tensor, _, _ in self._rules(layer)}
        if len(owned) < len(self.names):
            return False
        parameters = [parameter for _, parameter in _trainable(self.model)]
        with torch.enable_grad():
            total = self.loss(run_model(self.model, inputs), targets).sum()
        expected = torch.autograd.grad(total, parameters, materialize_grads=True)
        sums = [torch.zeros_like(gradient[None]).flatten() for gradient in expected]
        try:
            for piece in self._layer_pieces(inputs, targets):
                sums[piece.tensor] += piece.gradients.sum(dim=0)
        except (RuntimeError, IndexError, ValueError):
            return False
        return all(
            _close(found, flatten_gradient(gradient[None])[0])
            for found, gradient in zip(sums, expected, strict=True)
        )


def _trainable(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Each trainable parameter once, tied ones under their first name."""
    return ((name, p) for name, p in model.named_parameters() if p.requires_grad)


def _close(found: Tensor, expected: Tensor) -> bool:
    tolerance = 1e-3 * float(expected.nan_to_num(0.0).abs().max()) + 1e-12
    return torch.allclose(found, expected, rtol=1e-3, atol=tolerance, equal_nan=True)
