"""Running statistics of batch normalisation for models that were never trained.

At a fresh initialisation they say mean 0 and variance 1: in eval mode activations shrink layer by
layer, embeddings lose their rank, and a memory collapses on the newest classes. Batch statistics
would make an example's gradient depend on its neighbours. So each draw's statistics are measured
once, on the first data it sees, and never change again. Statistics that training has updated
before (a pretrained backbone, the local variant) stay as they are.
"""

from __future__ import annotations

from contextlib import ExitStack

import torch
from torch import Tensor, nn

from avalanche_gmc.embedding.forward import run_model

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def refuse_batch_statistics(model: nn.Module) -> None:
    """Refuse batch-norm layers without running statistics: they mix the examples of a batch."""
    for name, module in model.named_modules():
        if isinstance(module, _BATCH_NORMS) and not _tracks(module):
            raise ValueError(
                f"the batch-norm layer '{name}' keeps no running statistics, so the gradient of an "
                "example would depend on its neighbours; build it with track_running_stats=True."
            )


def untrained_statistics(model: nn.Module) -> list[str]:
    """Names of the buffers that :func:`calibrate_batch_norm` sets."""
    return [
        f"{path}.{name}" if path else name
        for path, module in model.named_modules()
        if _is_untrained(module)
        for name in ("running_mean", "running_var")
    ]


def calibrate_batch_norm(model: nn.Module, inputs: Tensor) -> dict[str, Tensor]:
    """Set the untrained running statistics in one forward pass, layer after layer.

    Every channel's mean and variance over examples and positions are averaged with those of the
    whole layer, which count as one more example. That keeps them sane if the first data of an
    online stream is a handful of examples, or a single one, and changes little for many.

    :param model: in eval mode; only the statistics change.
    :param inputs: N examples, N at least 1.
    :return: copies of what was set, by name.
    """
    done: set[nn.Module] = set()

    def measure(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        if module not in done:
            done.add(module)
            _set_statistics(module, args[0])

    with ExitStack() as hooks, torch.no_grad():
        for module in model.modules():
            if _is_untrained(module):
                hooks.callback(module.register_forward_pre_hook(measure).remove)
        run_model(model, inputs)
    return {name: model.get_buffer(name).clone() for name in untrained_statistics(model)}


def _set_statistics(module: nn.Module, activations: Tensor) -> None:
    channels = activations.transpose(0, 1).flatten(1).double()
    examples = activations.shape[0]
    part = examples / (examples + 1)
    layer_mean, layer_var = channels.mean(), channels.var(correction=0)
    mean = torch.lerp(layer_mean, channels.mean(dim=1), part)
    var = torch.lerp(layer_var, channels.var(dim=1, correction=0), part)
    module.get_buffer("running_mean").copy_(mean)
    module.get_buffer("running_var").copy_(var)


def _is_untrained(module: nn.Module) -> bool:
    return _tracks(module) and not getattr(module, "num_batches_tracked", None)


def _tracks(module: nn.Module) -> bool:
    return getattr(module, "running_mean", None) is not None
