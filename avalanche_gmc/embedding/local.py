"""The paper's local variant: the same reductions at the current weights instead of the draws."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from avalanche_gmc.dictionary import Dictionary
from avalanche_gmc.embedding.base import GradientEmbedding
from avalanche_gmc.embedding.examples import MapDataset
from avalanche_gmc.embedding.last_layer import LastLayerEmbedding
from avalanche_gmc.embedding.random_projection import RandomProjectionEmbedding
from avalanche_gmc.initialization import plain_arithmetic, unwrapped

REDUCTIONS = {
    "last-layer": LastLayerEmbedding,
    "random-projection": RandomProjectionEmbedding,
}


class LocalEmbedding(GradientEmbedding):
    """Gradients at a frozen copy of a model's current weights, with its own running statistics.

    Embeddings made before and after training cannot be compared: a memory that uses this embeds
    its exemplars again each time. The paper found it much worse than the draws.

    :param model: the model as it is now; it is copied, and later training does not show here.
    :param reduction: ``"last-layer"`` or ``"random-projection"``.
    :param options: of :class:`LastLayerEmbedding` or :class:`RandomProjectionEmbedding`, except
        ``draws`` and ``save_draws``: the current weights are the only draw, and are saved.
    """

    def __init__(self, model: nn.Module, *, reduction: str = "last-layer", **options: Any) -> None:
        if reduction not in REDUCTIONS:
            raise ValueError(f"reduction must be one of {list(REDUCTIONS)}, got {reduction!r}.")
        if not isinstance(model, nn.Module):
            raise ValueError(
                f"the local variant needs the trained module itself, got {type(model).__name__}."
            )
        with plain_arithmetic():
            current = copy.deepcopy(unwrapped(model))
        current.zero_grad(set_to_none=True)
        self._inner: GradientEmbedding = REDUCTIONS[reduction](
            lambda: current, draws=1, save_draws=True, **options
        )
        self._options = {"reduction": reduction, **options}

    def at(self, model: nn.Module) -> LocalEmbedding:
        """The same embedding at the present weights of a model."""
        return LocalEmbedding(model, **self._options)

    @property
    def dim(self) -> int:
        return self._inner.dim

    def calibrate(self, inputs: Tensor | MapDataset, targets: Tensor | None = None) -> None:
        self._inner.calibrate(inputs, targets)

    def embed(self, inputs: Tensor | MapDataset, targets: Tensor | None = None) -> Dictionary:
        return self._inner.embed(inputs, targets)

    def check_model(self, model: nn.Module) -> None:
        self._inner.check_model(model)

    def state_dict(self) -> dict[str, Any]:
        return self._inner.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._inner.load_state_dict(state)
