"""From a cell to an empty buffer, and embeddings that several buffers share."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from avalanche.training.storage_policy import (
    ClassBalancedBuffer,
    ExemplarsBuffer,
    ExperienceBalancedBuffer,
    HerdingSelectionStrategy,
    ParametricBuffer,
    ReservoirSamplingBuffer,
)
from torch import Tensor, nn

from avalanche_gmc import (
    GradientMatchingBuffer,
    LastLayerEmbedding,
    RandomProjectionEmbedding,
    SlidingWindowBuffer,
)
from avalanche_gmc.buffers.baselines import BASELINES
from avalanche_gmc.buffers.embedding_choice import EmbeddingChoice
from avalanche_gmc.dictionary import Dictionary, LastLayerDictionary
from avalanche_gmc.embedding import GradientEmbedding
from avalanche_gmc.initialization import derive_seed, fresh_draws
from benchmarks.grid.few_features import FewFeatures
from benchmarks.grid.methods import METHODS
from benchmarks.grid.rows import Cell


def make_embedding(cell: Cell, make_model: Callable[[], nn.Module]) -> GradientEmbedding | None:
    """The embedding of the cell's memory, if it does not follow a model that is being trained."""
    method = METHODS[cell.method]
    if method.family == "last-layer":
        whole = LastLayerEmbedding(make_model, draws=cell.draws, seed=cell.seed)
        return FewFeatures(whole, cell.draws * cell.dim) if cell.dim else whole
    if method.family == "projection":
        return RandomProjectionEmbedding(
            make_model,
            draws=cell.draws,
            dim=cell.dim,
            projection=cell.projection,
            seed=cell.seed,
        )
    if method.family == "default":  # what the memory would build from the model that it meets
        (model,) = fresh_draws(make_model, 1, derive_seed(cell.seed))
        kind = None if cell.method in AT_DRAWS else default_embedding(cell.method)
        built: GradientEmbedding = EmbeddingChoice(kind, cell.seed).resolve(
            SimpleNamespace(model=model), cell.memory_size
        )
        return built
    return None


def default_embedding(method: str) -> str | None:
    """The kind of embedding that a memory of the package builds by itself."""
    return getattr(BASELINES.get(method), "default_embedding", None)


def make_buffer(cell: Cell, embedding: GradientEmbedding | None) -> Any:
    """A new, empty buffer for a cell."""
    size, seed, name = cell.memory_size, cell.seed, cell.method
    if name in AVALANCHES:
        return AVALANCHES[name](size)
    name = AT_DRAWS.get(name, name)
    if name in BASELINES:
        make: Any = BASELINES[name]
        if embedding is not None:
            return make(size, embedding, seed=seed)
        return make(size) if make is SlidingWindowBuffer else make(size, seed=seed)
    options: dict[str, Any] = {"embedding": embedding, "seed": seed}
    if METHODS[name].family != "default":
        options["mode"] = cell.mode
    if METHODS[name].family in ("last-layer", "projection"):
        # One chunk: an experience is taken in at once, as in the paper, whatever its size.
        options["chunk_size"] = sys.maxsize
    if name == "gmc-local":
        options["embedding"] = "local"
    if name == "gmc-balanced":
        options["target"] = "balanced"
    return GradientMatchingBuffer(size, **options)


AT_DRAWS = {"gss-draws": "gss"}
"""Memories that normally look at the model being trained, and here at the draws instead."""


class TrainedHerding(HerdingSelectionStrategy):
    """Avalanche's herding, by the features of the model that it is shown."""

    def __init__(self) -> None:
        """The model is not known yet."""

    def make_sorted_indices(self, strategy: Any, data: Any) -> list[int]:
        """As Avalanche does; the model's mode is as before."""
        if not hasattr(self, "feature_extractor"):
            *_, layer, _ = (name for name, _ in strategy.model.named_children())
            super().__init__(strategy.model, layer)
        was_training = strategy.model.training
        indices: list[int] = super().make_sorted_indices(strategy, data)
        strategy.model.train(was_training)
        return indices


AVALANCHES: dict[str, Callable[[int], ExemplarsBuffer]] = {
    "reservoir": ReservoirSamplingBuffer,
    "avalanche-class-balanced": ClassBalancedBuffer,
    "avalanche-experience-balanced": ExperienceBalancedBuffer,
    "avalanche-herding": lambda size: ParametricBuffer(size, "class", TrainedHerding()),
}
"""Avalanche's own memories."""


class SharedEmbedding(GradientEmbedding):
    """An embedding computed once per experience for all the buffers that are shown it.

    All of them embed the same chunks of the experience, in the same order.

    :param embedding: what is computed.
    :param larger: the same last layer at these draws and more, from which to take their gradients.
    """

    def __init__(self, embedding: GradientEmbedding, larger: SharedEmbedding | None = None) -> None:
        self.waited = 0.0  # seconds that buffers spent here
        self._embedding = embedding
        self._larger = larger
        self._computing = 0.0
        self._kept: list[tuple[list[int], Dictionary]] = []
        self._calls = 0

    @property
    def seconds(self) -> float:
        """What the embedding cost; of some draws among more, their part."""
        if self._larger is None:
            return self._computing
        return self._larger.seconds * self.dim / self._larger.dim

    def begin_experience(self) -> None:
        """Forget the embeddings of the experience before."""
        self._kept = []

    def begin_buffer(self) -> None:
        """Start from the first chunk again."""
        self._calls = 0

    def embed(self, inputs: Any, targets: Tensor | None = None) -> Dictionary:
        """The embedding of the experience's next chunk."""
        start = time.perf_counter()
        if targets is not None:
            raise RuntimeError("a shared embedding takes data sets only")
        atoms = self._chunk(self._calls, inputs)
        self._calls += 1
        self.waited += time.perf_counter() - start
        return atoms

    def _chunk(self, number: int, inputs: Any) -> Dictionary:
        labels = list(inputs.targets)
        if number == len(self._kept):
            start = time.perf_counter()
            self._kept.append((labels, self._computed(number, inputs)))
            self._computing += time.perf_counter() - start
        found, atoms = self._kept[number]
        if found != labels:
            raise RuntimeError("two buffers embed different data of one experience")
        return atoms

    def _computed(self, number: int, inputs: Any) -> Dictionary:
        if self._larger is None:
            return self._embedding.embed(inputs)
        atoms = self._larger._chunk(number, inputs)
        draws = len(atoms.errors) * self.dim // self._larger.dim  # type: ignore[attr-defined]
        return LastLayerDictionary(atoms.errors[:draws], atoms.features[:draws])  # type: ignore[attr-defined]

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
