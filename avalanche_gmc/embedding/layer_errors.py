"""What layers receive and the error that comes back to their outputs, in one backward pass.

Letters: N examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge


class LayerUse(NamedTuple):
    """One call of a layer: what it received, and the gradient of the loss at what it returned."""

    layer: nn.Module
    inputs: Tensor  # N×...
    error: Tensor  # N×...


def layer_uses(
    layers: Iterable[nn.Module],
    parameters: Iterable[Tensor],
    total_loss: Callable[[], Tensor],
    examples: int,
) -> list[LayerUse] | None:
    """All uses of the layers on which the loss depends; None if they are not the whole story.

    They are not if the loss depends on a parameter outside of its layer, or if a layer has another
    number of rows than there are examples. While a layer runs, it computes with stand-ins for its
    parameters. So a parameter that the loss still depends on acts outside of its layer: a proof
    that needs no particular values.

    :param layers: whose calls are recorded.
    :param parameters: each belongs to at least one of the layers.
    :param total_loss: runs the model and adds the loss up over the examples.
    :param examples: N.
    """
    calls: list[tuple[nn.Module, Tensor]] = []
    edges: list[GradientEdge] = []

    def record(layer: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        calls.append((layer, args[0].detach()))
        # The edge, not the tensor: an in-place activation would change what the tensor means.
        edges.append(get_gradient_edge(output))

    with ExitStack() as hooks, torch.enable_grad():
        for layer in layers:
            hooks.enter_context(_stand_ins(layer))
            hooks.callback(layer.register_forward_hook(record).remove)
        total = total_loss()
    # No weight gradient is computed: parameters inside their layers have no path to the loss.
    wanted: list[Any] = [*edges, *parameters]
    found = torch.autograd.grad(total, wanted, allow_unused=True)
    if any(gradient is not None for gradient in found[len(edges) :]):
        return None
    if any(len(inputs) != examples for _, inputs in calls):
        return None
    pairs = zip(calls, found, strict=False)
    return [LayerUse(*call, error) for call, error in pairs if error is not None]


@contextmanager
def _stand_ins(layer: nn.Module) -> Iterator[None]:
    """Whenever the layer runs, let it compute with other leaves of the same values."""
    real = {name: p for name, p in layer._parameters.items() if p is not None}
    fake = {name: nn.Parameter(p.detach(), p.requires_grad) for name, p in real.items()}
    before = layer.register_forward_pre_hook(lambda *_: layer._parameters.update(fake))
    after = layer.register_forward_hook(
        lambda *_: layer._parameters.update(real), prepend=True, always_call=True
    )
    try:
        yield
    finally:
        before.remove()
        after.remove()
