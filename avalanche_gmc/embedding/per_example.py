"""Per-example gradients of all trainable parameters, a block of parameters at a time.

Letters: N examples, p parameters of a block.

Gradients are of each example's own loss, never divided by N. Two ways to get them:

- layer by layer, if every trainable parameter belongs to a linear, convolution or batch-norm
  layer: one backward pass for the errors at the layers' outputs, then a product per block;
- ``torch.func``, for every other model, and whenever the first way disagrees with autograd
  (parameters used outside their layer, layers that mix examples or move them elsewhere).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.func import functional_call, grad, vmap

from avalanche_gmc.embedding.forward import run_model
from avalanche_gmc.embedding.layers import RULES, LayerRule, split_gradient
from avalanche_gmc.embedding.losses import ExampleLoss

BLOCK_PARAMETERS = 2**14
"""A block is as many whole output channels of a tensor as stay below this, at least one. Part of
what defines an embedding: projections draw their numbers block by block."""


class Piece(NamedTuple):
    """Gradients of one block for some of the examples; pieces of the same place add up."""

    rows: slice
    tensor: int
    block: int  # counted over all tensors
    gradients: Tensor  # (number of rows)×p


class _Slot(NamedTuple):
    """Where a parameter tensor stands among the trainable ones."""

    tensor: int
    first_block: int
    step: int  # output channels per block


class _Call(NamedTuple):
    """One use of a layer in a forward pass."""

    layer: nn.Module
    inputs: Tensor
    outputs: GradientEdge


class PerExampleGradients:
    """The gradients of each example's loss with respect to a model's trainable parameters.

    :param model: in eval mode.
    :param loss: one value per example.
    :param work_elements: temporaries hold at most this many numbers, or one example's share.
    """

    def __init__(self, model: nn.Module, loss: ExampleLoss, work_elements: int) -> None:
        self.model = model
        self.loss = loss
        self.work_elements = work_elements
        self.parameters = dict(_trainable(model))
        self._slots = _slots(self.parameters)
        self._by_layer: bool | None = None

    def pieces(self, inputs: Tensor, targets: Tensor) -> Iterator[Piece]:
        """The gradients of N examples, in pieces that cover every row and block."""
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
            for slot, rule in self._rules(call.layer):
                for rows in self._row_blocks(len(inputs), _work(call, error)):
                    blocks = rule(call.layer, call.inputs[rows], error[rows], slot.step)
                    yield from _pieces(rows, slot, blocks)

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

    def _rules(self, layer: nn.Module) -> Iterator[tuple[_Slot, LayerRule]]:
        for name, rule in RULES.get(type(layer), {}).items():
            slot = self._slots.get(id(getattr(layer, name)))
            if slot is not None:
                yield slot, rule

    def _func_pieces(self, inputs: Tensor, targets: Tensor) -> Iterator[Piece]:
        parameters = {name: parameter.detach() for name, parameter in self.parameters.items()}

        def example_loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            outputs = functional_call(self.model, parameters, (x.unsqueeze(0),))
            return self.loss(outputs, y.unsqueeze(0)).squeeze(0)

        gradients_of = vmap(grad(example_loss), in_dims=(None, 0, 0))
        total = sum(parameter.numel() for parameter in parameters.values())
        for rows in self._row_blocks(len(inputs), total):
            gradients = gradients_of(parameters, inputs[rows], targets[rows])
            for name, parameter in self.parameters.items():
                slot = self._slots[id(parameter)]
                yield from _pieces(rows, slot, split_gradient(gradients[name], slot.step))

    def _row_blocks(self, examples: int, size: int) -> Iterator[slice]:
        step = max(1, self.work_elements // max(1, size))
        return (slice(a, min(a + step, examples)) for a in range(0, examples, step))

    def _layers_agree_with_autograd(self, inputs: Tensor, targets: Tensor) -> bool:
        """Whether the first way covers this model, tried on its first examples."""
        covered = {slot for layer in self.model.modules() for slot, _ in self._rules(layer)}
        if len(covered) < len(self.parameters):
            return False
        with torch.enable_grad():
            total = self.loss(run_model(self.model, inputs), targets).sum()
        parameters = list(self.parameters.values())
        found: dict[int, Tensor] = {}
        try:
            for piece in self._layer_pieces(inputs, targets):
                found[piece.block] = found.get(piece.block, 0) + piece.gradients.sum(dim=0)
        except (RuntimeError, IndexError):
            return False
        expected = torch.autograd.grad(total, parameters, materialize_grads=True)
        return all(
            _close(found.get(slot.first_block + offset, torch.zeros(())), block[0])
            for parameter, gradient in zip(parameters, expected, strict=True)
            for slot in [self._slots[id(parameter)]]
            for offset, block in enumerate(split_gradient(gradient.unsqueeze(0), slot.step))
        )


def _trainable(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Each trainable parameter once, tied ones under their first name."""
    return ((name, p) for name, p in model.named_parameters() if p.requires_grad)


def _slots(parameters: dict[str, nn.Parameter]) -> dict[int, _Slot]:
    """The slot of each parameter, by identity: tied layers share one."""
    slots, first_block = {}, 0
    for tensor, parameter in enumerate(parameters.values()):
        channels = parameter.shape[0] if parameter.ndim else 1
        step = max(1, BLOCK_PARAMETERS * channels // max(1, parameter.numel()))
        slots[id(parameter)] = _Slot(tensor, first_block, step)
        first_block += math.ceil(channels / step)
    return slots


def _pieces(rows: slice, slot: _Slot, blocks: Iterator[Tensor]) -> Iterator[Piece]:
    for offset, gradients in enumerate(blocks):
        yield Piece(rows, slot.tensor, slot.first_block + offset, gradients)


def _work(call: _Call, error: Tensor) -> int:
    """Numbers per example in a layer's temporaries: the windows of a convolution, mostly."""
    if isinstance(call.layer, nn.Conv2d):
        return error[0, 0].numel() * call.layer.in_channels * math.prod(call.layer.kernel_size)
    return call.inputs[0].numel()


def _close(found: Tensor, expected: Tensor) -> bool:
    tolerance = 1e-3 * float(expected.nan_to_num(0.0).abs().max()) + 1e-12
    found = found.to(expected).expand_as(expected)
    return torch.allclose(found, expected, rtol=1e-3, atol=tolerance, equal_nan=True)
