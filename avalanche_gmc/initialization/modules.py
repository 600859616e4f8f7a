"""What modules are made of, whatever they are wrapped in."""

from __future__ import annotations

from torch import Tensor, nn


def unwrapped(model: nn.Module) -> nn.Module:
    """The module that ``torch.compile`` wrapped: the same parameters, run without compiling."""
    original = getattr(model, "_orig_mod", None)
    return unwrapped(original) if isinstance(original, nn.Module) else model


def unwrap_children(model: nn.Module) -> None:
    """Replace every compiled module inside of this one by its original."""
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            parent._modules[name] = unwrapped(child)


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers by name, the names as if nothing were compiled."""
    tensors: dict[str, Tensor] = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {name.replace("_orig_mod.", ""): tensor for name, tensor in tensors.items()}


def parameter_shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """The shapes of all parameters by name, the names as if nothing were compiled."""
    tensors = named_tensors(model).items()
    return {n: tuple(t.shape) for n, t in tensors if isinstance(t, nn.Parameter)}


def frozen_tensors(model: nn.Module) -> list[Tensor]:
    """Parameters that are not trained, and the buffers of layers that have no others."""
    found: list[Tensor] = []
    for module in model.modules():
        own = list(module.parameters(recurse=False))
        frozen = [parameter for parameter in own if not parameter.requires_grad]
        found += frozen
        if own and len(frozen) == len(own):
            found += module.buffers(recurse=False)
    return found


def is_dynamic(module: nn.Module) -> bool:
    """Whether it is one of Avalanche's modules that may change with the stream."""
    return any(base.__name__ == "DynamicModule" for base in type(module).__mro__)


def refuse_dynamic(model: nn.Module) -> None:
    """Refuse Avalanche's dynamic modules: their outputs, hence their gradients, change shape."""
    if getattr(model, "never_grows", False):
        return
    for name, module in model.named_modules():
        if is_dynamic(module):
            where = f"'{name}' ({type(module).__name__})" if name else type(module).__name__
            raise ValueError(
                f"the model contains the dynamic module {where}, whose outputs grow or depend on "
                "the task, so that gradients seen earlier and later cannot be compared; use "
                "last-layer gradients, which can grow (GrowingHeadEmbedding, or a memory with "
                "embedding='last-layer'), fix the number of outputs (an nn.Linear for all "
                "classes), or pass a callable that returns a model with fixed outputs."
            )
