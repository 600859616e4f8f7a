"""The compared methods by name: how each one's buffer is made from a cell's configuration."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from avalanche.training.storage_policy import ReservoirSamplingBuffer
from torch import Tensor, nn

from avalanche_gmc import (
    FacilityLocationBuffer,
    GradientMatchingBuffer,
    GreedyClassBalancedBuffer,
    LastLayerEmbedding,
    RandomProjectionEmbedding,
    SlidingWindowBuffer,
)
from avalanche_gmc.dictionary import Dictionary
from avalanche_gmc.embedding import GradientEmbedding
from benchmarks.grid.cells import METHODS, Cell

BALANCED = "-balanced"


def make_embedding(cell: Cell, make_model: Callable[[], nn.Module]) -> GradientEmbedding:
    """The embedding of a gradient-matching cell; it depends on the seed, not on the memory size."""
    if METHODS[cell.method] == "last-layer":
        return LastLayerEmbedding(make_model, draws=cell.draws, seed=cell.seed)
    return RandomProjectionEmbedding(
        make_model,
        draws=cell.draws,
        dim=cell.dim,
        projection=cell.projection.removesuffix(BALANCED),
        balance=cell.projection.endswith(BALANCED),
        seed=cell.seed,
    )


def make_buffer(cell: Cell, embedding: GradientEmbedding | None) -> Any:
    """A new, empty buffer for a cell."""
    size, seed = cell.memory_size, cell.seed
    if embedding is not None:
        rule = "ols" if cell.method.endswith("-ols") else "omp"
        # One chunk: an experience is taken in at once, as in the paper, whatever its size.
        return GradientMatchingBuffer(
            size, embedding, rule=rule, mode=cell.mode, chunk_size=sys.maxsize
        )
    if cell.method == "gmc-local":
        return GradientMatchingBuffer(size, "local", mode=cell.mode, seed=seed)
    if cell.method == "reservoir":
        return ReservoirSamplingBuffer(size)
    if cell.method == "class-balanced":
        return GreedyClassBalancedBuffer(size, seed=seed)
    if cell.method == "sliding-window":
        return SlidingWindowBuffer(size)
    if cell.method == "facility-location":
        return FacilityLocationBuffer(size, seed=seed)
    raise ValueError(f"{cell.method} needs an embedding")


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

    def forget(self) -> None:
        """Free the prepared experience."""
        self._prepared, self._targets = None, []

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
