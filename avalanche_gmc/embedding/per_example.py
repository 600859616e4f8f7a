"""Per-example gradients of all trainable parameters, a block of parameters at a time.

Letters: N examples, p parameters of a block.

Gradients are of each example's own loss, never divided by N. Three ways to get them:

- layer by layer, if every trainable parameter belongs to a linear, convolution or batch-norm
  layer: one backward pass for the errors at the layers' outputs, then a product per block;
- ``torch.func``, for every other model;
- one backward pass per example, where ``torch.func`` fails (recurrent layers, control flow that
  depends on the data).

The first way is right only if parameters act nowhere but inside their layers, which every pass
proves, and if row n of every layer belongs to example n, which is tried once, against autograd, on
random inputs and on some of the first examples.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from avalanche_gmc.embedding.forward import run_model
from avalanche_gmc.embedding.layer_errors import LayerUse, layer_uses
from avalanche_gmc.embedding.layers import RULES, Block, LayerRule, split_gradient
from avalanche_gmc.embedding.losses import ExampleLoss

BLOCK_PARAMETERS = 2**14
"""A block is as many whole output channels of a tensor as stay below this, at least one. Part of
what defines an embedding: projections draw their numbers block by block."""


PROBES = 3
"""Examples on which the ways are compared; with two, two positions might pass for two examples."""


class Piece(NamedTuple):
    """Gradients of one block for some of the examples; pieces of the same place add up."""

    rows: slice
    tensor: int
    number: int  # of the block, counted over all tensors
    block: Block  # (number of rows)×p


class _Slot(NamedTuple):
    """Where a parameter tensor stands among the trainable ones."""

    tensor: int
    first_block: int
    blocks: int
    step: int  # output channels per block


@dataclass
class Ways:
    """Which ways work for a model; all its draws have the same answer."""

    by_layer: bool | None = None
    one_by_one: bool = False


class PerExampleGradients:
    """The gradients of each example's loss with respect to a model's trainable parameters.

    :param model: in eval mode.
    :param loss: one value per example.
    :param work_elements: temporaries hold at most this many numbers, or those of one example.
    :param ways: what other draws of the model found out.
    """

    def __init__(
        self, model: nn.Module, loss: ExampleLoss, work_elements: int, ways: Ways | None = None
    ) -> None:
        self.model = model
        self.loss = loss
        self.work_elements = work_elements
        self.parameters = dict(_trainable(model))
        self._slots = _slots(self.parameters)
        self.ways = Ways() if ways is None else ways
        # torch.func gets along with some recurrent layers, but only by slow detours.
        self.ways.one_by_one |= any(isinstance(module, nn.RNNBase) for module in model.modules())

    def pieces(self, inputs: Tensor, targets: Tensor) -> Iterator[Piece]:
        """The gradients of N examples, in pieces that cover every row and block."""
        if self.ways.by_layer is None:
            self.ways.by_layer = self._layers_agree_with_autograd(inputs, targets)
        uses = self._layer_uses(inputs, targets) if self.ways.by_layer else None
        if uses is None:
            self.ways.by_layer = False
            yield from self._whole_pieces(inputs, targets)
        else:
            yield from self._layer_pieces(uses, slice(0, len(inputs)))

    def _layer_pieces(
        self, uses: list[LayerUse], some: slice, tensors: Container[int] | None = None
    ) -> Iterator[Piece]:
        for use in uses:
            for slot, rule in self._rules(use.layer):
                if tensors is not None and slot.tensor not in tensors:
                    continue
                for rows in self._row_blocks(some, _work(use)):
                    blocks = rule(use.layer, use.inputs[rows], use.error[rows], slot.step)
                    yield from _pieces(rows, slot, blocks)

    def _layer_uses(self, inputs: Tensor, targets: Tensor) -> list[LayerUse] | None:
        layers = [layer for layer in self.model.modules() if any(True for _ in self._rules(layer))]
        return layer_uses(
            layers,
            self.parameters.values(),
            lambda: self.loss(run_model(self.model, inputs), targets).sum(),
            len(inputs),
        )

    def _rules(self, layer: nn.Module) -> Iterator[tuple[_Slot, LayerRule]]:
        for name, rule in RULES.get(type(layer), {}).items():
            slot = self._slots.get(id(getattr(layer, name)))
            if slot is not None:
                yield slot, rule

    def _whole_pieces(self, inputs: Tensor, targets: Tensor) -> Iterator[Piece]:
        total = sum(parameter.numel() for parameter in self.parameters.values())
        for rows in self._row_blocks(slice(0, len(inputs)), total):
            gradients = self._whole_gradients(inputs[rows], targets[rows])
            for parameter, gradient in zip(self.parameters.values(), gradients, strict=True):
                slot = self._slots[id(parameter)]
                yield from _pieces(rows, slot, split_gradient(gradient, slot.step))

    def _whole_gradients(self, inputs: Tensor, targets: Tensor) -> list[Tensor]:
        """N×(shape of the parameter), for every parameter."""
        if not self.ways.one_by_one:
            try:
                return self._func_gradients(inputs, targets)
            except Exception:  # whatever torch.func cannot do; a mistake of the user's comes again
                self.ways.one_by_one = True
        rows = [self._gradients_alone(x, y) for x, y in zip(inputs, targets, strict=True)]
        return [torch.stack(gradients) for gradients in zip(*rows, strict=True)]

    def _func_gradients(self, inputs: Tensor, targets: Tensor) -> list[Tensor]:
        parameters = {name: parameter.detach() for name, parameter in self.parameters.items()}

        def example_loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            outputs = functional_call(self.model, parameters, (x.unsqueeze(0),))
            return self.loss(outputs, y.unsqueeze(0)).squeeze(0)

        with warnings.catch_warnings():
            # Attention on CPUs runs example by example inside of vmap: still faster than all of it.
            warnings.filterwarnings("ignore", "There is a performance drop")
            gradients = vmap(grad(example_loss), in_dims=(None, 0, 0))(parameters, inputs, targets)
        return [gradients[name] for name in parameters]

    def _gradients_alone(self, x: Tensor, y: Tensor) -> list[Tensor]:
        """Autograd's gradients of the loss of one example in a batch of its own."""
        parameters = list(self.parameters.values())
        with torch.enable_grad():
            value = self.loss(run_model(self.model, x.unsqueeze(0)), y.unsqueeze(0)).sum()
        gradients = torch.autograd.grad(value, parameters, materialize_grads=True)
        return [gradient.to_dense() for gradient in gradients]

    def _row_blocks(self, some: slice, size: int) -> Iterator[slice]:
        step = max(1, self.work_elements // max(1, size))
        return (slice(a, min(a + step, some.stop)) for a in range(some.start, some.stop, step))

    def _layers_agree_with_autograd(self, inputs: Tensor, targets: Tensor) -> bool:
        """Whether every example gets its own gradient layer by layer, tried on a few."""
        covered = {slot for layer in self.model.modules() for slot, _ in self._rules(layer)}
        if len(covered) < len(self.parameters):
            return False
        some = torch.arange(PROBES, device=inputs.device) * len(inputs) // PROBES
        probes = [inputs[some]]
        if inputs.is_floating_point():
            # Real examples may be zero or equal and show no difference; random ones do.
            noise = torch.randn(inputs[some].shape, generator=torch.Generator().manual_seed(0))
            probes.append(noise.to(inputs))
        return all(self._agrees(x, targets[some]) for x in probes)

    def _agrees(self, inputs: Tensor, targets: Tensor) -> bool:
        """Gradients are compared within one batch: alone, an example is rounded otherwise, and an
        activation at a kink may fall to the other side, which changes gradients much and outputs
        hardly. So outputs are what is compared with those of the examples alone."""
        try:
            uses = self._layer_uses(inputs, targets)
            with torch.enable_grad():
                outputs = run_model(self.model, inputs)
                values = self.loss(outputs, targets)
            return uses is not None and all(
                self._is_own_output(outputs[example], inputs[example])
                and self._is_own_gradient(uses, example, values[example])
                for example in range(len(inputs))
            )
        except (RuntimeError, IndexError):
            return False

    @torch.no_grad()
    def _is_own_output(self, output: Tensor, x: Tensor) -> bool:
        """Whether the model returns the same for the example alone."""
        alone = run_model(self.model, x.unsqueeze(0))[0]
        return _largest(output - alone) <= _tolerance(alone)

    def _is_own_gradient(self, uses: list[LayerUse], example: int, value: Tensor) -> bool:
        """Whether the layers' pieces add up to the gradient of the example's loss, every tensor."""
        for some in self._tensor_groups():
            gradients = torch.autograd.grad(value, some, retain_graph=True, materialize_grads=True)
            rest: dict[int, Tensor] = {}
            tolerances: dict[int, float] = {}
            for parameter, gradient in zip(some, gradients, strict=True):
                slot = self._slots[id(parameter)]
                tolerances[slot.tensor] = _tolerance(gradient)
                # Two biases may be given one gradient; weights never.
                mine = gradient.clone() if gradient.ndim < 2 else gradient
                blocks = split_gradient(mine.unsqueeze(0), slot.step)
                rest |= {slot.first_block + i: block.gradients for i, block in enumerate(blocks)}
            for piece in self._layer_pieces(uses, slice(example, example + 1), tolerances):
                rest[piece.number] -= piece.block.whole()
            for parameter in some:
                slot = self._slots[id(parameter)]
                own = range(slot.first_block, slot.first_block + slot.blocks)
                if max(_largest(rest[block]) for block in own) > tolerances[slot.tensor]:
                    return False
        return True

    def _tensor_groups(self) -> Iterator[list[nn.Parameter]]:
        """Parameters in groups whose gradients are few enough to exist together."""
        group: list[nn.Parameter] = []
        for parameter in self.parameters.values():
            if group and sum(p.numel() for p in group) + parameter.numel() > self.work_elements:
                yield group
                group = []
            group.append(parameter)
        yield group


def _largest(values: Tensor) -> float:
    """The largest absolute value, without a copy; 0 if there are NaN, which prove nothing."""
    largest = max(float(values.amax()), -float(values.amin()))
    return 0.0 if math.isnan(largest) else largest


def _tolerance(exact: Tensor) -> float:
    """How far a value may be from an exact one by rounding."""
    return 1e-3 * _largest(exact) + 1e-12


def _trainable(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Each trainable parameter once, tied ones under their first name."""
    return ((name, p) for name, p in model.named_parameters() if p.requires_grad)


def _slots(parameters: dict[str, nn.Parameter]) -> dict[int, _Slot]:
    """The slot of each parameter, by identity: tied layers share one."""
    slots, first_block = {}, 0
    for tensor, parameter in enumerate(parameters.values()):
        channels = parameter.shape[0] if parameter.ndim else 1
        step = max(1, BLOCK_PARAMETERS * channels // max(1, parameter.numel()))
        slots[id(parameter)] = _Slot(tensor, first_block, math.ceil(channels / step), step)
        first_block += slots[id(parameter)].blocks
    return slots


def _pieces(rows: slice, slot: _Slot, blocks: Iterator[Block]) -> Iterator[Piece]:
    for offset, block in enumerate(blocks):
        yield Piece(rows, slot.tensor, slot.first_block + offset, block)


def _work(use: LayerUse) -> int:
    """Numbers per example in a layer's temporaries: the windows of a convolution, mostly."""
    if isinstance(use.layer, nn.Conv2d):
        return use.error[0, 0].numel() * use.layer.in_channels * math.prod(use.layer.kernel_size)
    return use.inputs[0].numel()
