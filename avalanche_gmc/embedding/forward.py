"""Running a model on a batch, with errors that say what to change.

Letters: N examples, K outputs.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

LARGEST = 1e15
"""Norm of a gradient up to which squares, and sums of many squares, are finite in float32."""


def parameter_like(model: nn.Module) -> Tensor:
    """A tensor with the device and floating-point type that the model computes in."""
    for tensor in [*model.parameters(), *model.buffers()]:
        if tensor.is_floating_point():
            return tensor
    raise ValueError(
        f"{type(model).__name__} has no parameters, so its gradients say nothing; pass a model "
        "with trainable parameters."
    )


def prepare(inputs: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Inputs on the model's device; floating-point ones in its type, images channels last.

    Integers stay integers, since some models look them up in an embedding table.
    """
    inputs = inputs.to(device, dtype if inputs.is_floating_point() else inputs.dtype)
    inputs = ordinary(inputs)
    return inputs.contiguous(memory_format=torch.channels_last) if inputs.ndim == 4 else inputs


def ordinary(values: Tensor) -> Tensor:
    """A copy of what was made in inference mode, which autograd refuses."""
    return values.clone() if values.is_inference() else values


def run_model(model: nn.Module, inputs: Tensor) -> Tensor:
    """The model's outputs, N×..."""
    try:
        outputs = model(inputs)
    except RuntimeError as error:
        if inputs.is_floating_point():
            raise
        raise ValueError(
            f"the model cannot take inputs of type {inputs.dtype} ({error}); scale integer images "
            "to floating point first, for example with torchvision's ToTensor or "
            "`inputs.float() / 255`."
        ) from error
    if not isinstance(outputs, Tensor) or outputs.shape[:1] != inputs.shape[:1]:
        found = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise ValueError(
            "the model must return one tensor with a row of outputs per example, got "
            f"{found} for {len(inputs)} examples; name the right entry with SelectOutput(model, "
            "'logits') or SelectOutput(model, 0), or wrap the model in a module that returns it."
        )
    return outputs


def activation_bytes(model: nn.Module, inputs: Tensor) -> int:
    """The most that any part of the model returns for one example, or receives as its input.

    :param inputs: of one example, 1×...
    """
    found = [inputs.nbytes]

    def note(_: nn.Module, __: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            found.append(output.nbytes)

    with ExitStack() as hooks, torch.no_grad():
        for module in model.modules():
            hooks.callback(module.register_forward_hook(note).remove)
        run_model(model, inputs)
    return max(found)


def require_moderate(values: Tensor, draw: int, first: int = 0) -> None:
    """Name the first example whose gradient is not finite, or has no finite square.

    :param values: N×..., one row per example.
    :param draw: where the gradients were taken.
    :param first: position of the first of these examples in the data.
    """
    # One norm costs less than a test of every number.
    if not torch.linalg.vector_norm(values) < LARGEST:
        rows = torch.linalg.vector_norm(values.flatten(1), dim=1)
        for example in (~(rows < LARGEST)).nonzero().flatten().tolist():
            raise ValueError(
                f"the gradient of example {first + example} at draw {draw} is not finite or larger "
                f"than {LARGEST:g}; look for NaN, infinite or huge values in that input or its "
                "target, or scale the inputs."
            )
