"""The gradient of all parameters, randomly projected.

Letters: N examples, S draws, d dimensions per draw.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from avalanche_gmc.dictionary import DenseDictionary, Dictionary
from avalanche_gmc.embedding.base import DrawsEmbedding
from avalanche_gmc.embedding.forward import require_moderate
from avalanche_gmc.embedding.losses import Loss
from avalanche_gmc.embedding.per_example import PerExampleGradients, Ways
from avalanche_gmc.embedding.projection import PROJECTIONS
from avalanche_gmc.initialization import ModelOrFactory

BATCH_SIZES = {"sparse": 64, "rademacher": 512}
"""Small batches stay in the cache; the dense matrix pays only if many examples share a chunk."""

WORK_ELEMENTS = {"sparse": 2**23, "rademacher": 2**26}
"""Most numbers in temporaries of per-example gradients: 32 MiB, or 256 MiB of float32."""


class RandomProjectionEmbedding(DrawsEmbedding[Tensor]):
    """Gradients of all trainable parameters at S draws, projected on d dimensions each.

    Has dimensions enough for large memories, at several times the price of the last layer, which
    chooses as well if it has twenty dimensions per exemplar.

    :param model: a callable that returns a fresh model, or a module with ``reset_parameters()``.
    :param draws: S; the paper's 4.
    :param dim: d per draw; the paper's 2000. The dictionary has S·d dimensions.
    :param projection: ``"sparse"`` (one sign and one bucket per parameter) or ``"rademacher"``
        (the paper's dense ±1).
    :param loss: ``loss(outputs, targets)`` with one value per example; None is cross entropy.
    :param batch_size: examples per pass; it bounds the bytes in use and changes nothing else. None
        takes 64 for the sparse and 512 for the dense projection.
    :param save_draws: keep the draws themselves, also in states and pickles. They are normally
        made from the seed when they are needed, and take no room.
    :param seed: of the draws and the projections.
    """

    def __init__(
        self,
        model: ModelOrFactory,
        *,
        draws: int = 4,
        dim: int = 2000,
        projection: str = "sparse",
        loss: Loss | None = None,
        batch_size: int | None = None,
        save_draws: bool = False,
        seed: int = 0,
    ) -> None:
        if projection not in PROJECTIONS:
            raise ValueError(f"projection must be one of {list(PROJECTIONS)}, got {projection!r}.")
        if isinstance(dim, bool) or not isinstance(dim, int) or dim < 1:
            raise ValueError(f"dim must be an integer of at least 1, got {dim!r}.")
        super().__init__(
            model,
            draws=draws,
            loss=loss,
            batch_size=batch_size,
            usual=BATCH_SIZES[projection],
            save_draws=save_draws,
            seed=seed,
        )
        self._dim = dim
        self._projection = projection
        self._ways = Ways()

    @property
    def dim(self) -> int:
        return len(self._draws) * self._dim

    def _allocate(self, examples: int) -> Tensor:
        return torch.empty(examples, self.dim, device=self._device)

    def _fill(self, store: Tensor, rows: slice, draw: int, inputs: Tensor, targets: Tensor) -> None:
        projection = PROJECTIONS[self._projection](self._dim, seed=self.seed, draw=draw)
        projected = torch.zeros(len(inputs), self._dim, dtype=self._dtype, device=self._device)
        for piece in self._gradients(draw).pieces(inputs, targets):
            projection.add(projected[piece.rows], piece.block, piece.number)
        require_moderate(projected, draw, rows.start)
        store[rows, draw * self._dim : (draw + 1) * self._dim] = projected

    def _dictionary(self, store: Tensor) -> Dictionary:
        return DenseDictionary(store)

    def _gradients(self, draw: int) -> PerExampleGradients:
        work_elements = WORK_ELEMENTS[self._projection]
        return PerExampleGradients(self._draws[draw], self._loss, work_elements, self._ways)

    def _options(self) -> dict[str, Any]:
        return super()._options() | {"dim": self._dim, "projection": self._projection}
