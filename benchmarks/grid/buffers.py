"""From a cell to an empty buffer, and an embedding that several buffers share."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from avalanche.training.storage_policy import ReservoirSamplingBuffer
from torch import Tensor, nn

from avalanche_gmc import (
    GradientMatchingBuffer,
    LastLayerEmbedding,
    RandomProjectionEmbedding,
    SlidingWindowBuffer,
)
from avalanche_gmc.buffers import baselines
from avalanche_gmc.dictionary import Dictionary
from avalanche_gmc.embedding import GradientEmbedding
from benchmarks.grid.methods import METHODS
from benchmarks.grid.rows import Cell


def make_embedding(cell: Cell, make_model: Callable[[], nn.Module]) -> GradientEmbedding | None:
    """The embedding that the methods of the cell's family share, if they do.

    It depends on the seed, not on the memory size.
    """
    family = METHODS[cell.method].family
    if family == "last-layer":
        return LastLayerEmbedding(make_model, draws=cell.draws, seed=cell.seed)
    if family == "projection":
        return RandomProjectionEmbedding(
            make_model,
            draws=cell.draws,
            dim=cell.dim,
            projection=cell.projection,
            seed=cell.seed,
        )
    return None


def make_buffer(cell: Cell, embedding: GradientEmbedding | None) -> Any:
    """A new, empty buffer for a cell."""
    size, seed, method = cell.memory_size, cell.seed, METHODS[cell.method]
    mode: Any = cell.mode
    if embedding is not None:
        # One chunk: an experience is taken in at once, as in the paper, whatever its size.
        return GradientMatchingBuffer(size, embedding, mode=mode, chunk_size=sys.maxsize)
    if method.family == "default":
        options: dict[str, Any] = {"target": "balanced"} if cell.method == "gmc-balanced" else {}
        return GradientMatchingBuffer(size, seed=seed, **options)
    if cell.method == "gmc-local":
        return GradientMatchingBuffer(size, "local", mode=mode, seed=seed)
    if cell.method == "reservoir":
        return ReservoirSamplingBuffer(size)
    make = getattr(baselines, method.buffer)
    return make(size) if make is SlidingWindowBuffer else make(size, seed=seed)


class SharedEmbedding(GradientEmbedding):
    """An embedding computed once per experience for all the buffers that are shown it."""

    def __init__(self, embedding: GradientEmbedding) -> None:
        self.seconds = 0.0
        self._embedding = embedding
        self._prepared: Dictionary | None = None
        self._targets: list[int] = []

    def prepare(self, dataset: Any) -> None:
        """Embed an experience; the one before is forgotten."""
        self._prepared = None
        start = time.perf_counter()
        self._prepared = self._embedding.embed(dataset)
        self.seconds += time.perf_counter() - start
        self._targets = list(dataset.targets)

    def embed(self, inputs: Any, targets: Tensor | None = None) -> Dictionary:
        """The prepared embedding, if this is the experience it was prepared for."""
        if self._prepared is None or targets is not None or list(inputs.targets) != self._targets:
            raise RuntimeError("the buffer embeds other data than the experience prepared for it")
        return self._prepared

    @property
    def dim(self) -> int:
        """Dimension of the embedding."""
        return self._embedding.dim

    def check_model(self, model: nn.Module) -> None:
        """As the shared embedding does."""
        self._embedding.check_model(model)

    def state_dict(self) -> dict[str, Any]:
        """State of the shared embedding."""
        return self._embedding.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the shared embedding."""
        self._embedding.load_state_dict(state)
