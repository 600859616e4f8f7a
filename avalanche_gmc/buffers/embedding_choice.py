"""Which embedding a memory uses, and how it is built from a strategy."""

from __future__ import annotations

import copy
import functools
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from avalanche.distributed import DistributedHelper
from torch import nn
from torch.nn import functional as F

from avalanche_gmc.embedding import (
    GradientEmbedding,
    GrowingHeadEmbedding,
    LastLayerEmbedding,
    LocalEmbedding,
    RandomProjectionEmbedding,
)
from avalanche_gmc.embedding.fewer_features import FewerFeatures
from avalanche_gmc.exemplars.values import digest
from avalanche_gmc.initialization import Redrawn, growing_head, seeded

EmbeddingName = Literal["last-layer", "random-projection", "local"]

LAST_LAYER, LOCAL = "last-layer", "local"

DEFAULT_EMBEDDING = LAST_LAYER

PAPERS_DRAWS = 4
"""The fewest draws: with 2, which have twenty dimensions per exemplar of wide layers, memories were
worse in the mean in six of six places."""

GOOD_DIMENSIONS, DRAWS_FOR_GOOD = 20, 16
"""Dimensions per exemplar that pay, and the most draws to spend on them. With fewer dimensions the
last layer is matched before the memory is full, and the last picks mean little."""

ALWAYS_KEPT = 20_000
"""Dimensions that even the smallest memories keep. Where the draws have twice as many as these, and
twice as many as are good, features are summed, which saves time and room."""

NEEDED_DIMENSIONS, DRAWS_FOR_NEEDED = 7, 64
"""Dimensions per exemplar below which a memory can be worse than a random one, and the most draws
to spend on them."""

WORTH_SUMMING = 2
"""A sum of features costs time and adds noise, so it must save at least this factor."""

_KINDS: dict[str, Any] = {
    LAST_LAYER: LastLayerEmbedding,
    "random-projection": RandomProjectionEmbedding,
    LOCAL: LocalEmbedding,
}


class EmbeddingChoice:
    """An embedding that is given, or built from the first strategy, or built anew each time.

    Never changed, only replaced.

    :param embedding: an embedding, the name of a kind, or None for ``DEFAULT_EMBEDDING``.
    :param seed: of an embedding that is built.
    :param model_factory: returns a new model to draw from; None draws from the strategy's model.
    """

    def __init__(
        self,
        embedding: GradientEmbedding | str | None,
        seed: int,
        model_factory: Callable[[], nn.Module] | None = None,
    ) -> None:
        kind = DEFAULT_EMBEDDING if embedding is None else embedding
        if isinstance(kind, str) and kind not in _KINDS:
            raise ValueError(
                f"embedding must be one of {list(_KINDS)}, an embedding object or None, "
                f"got {kind!r}"
            )
        if not isinstance(kind, str) and not callable(getattr(kind, "embed", None)):
            raise ValueError(
                "an embedding needs a method embed(dataset) that returns a dictionary, got "
                f"{type(kind).__name__}"
            )
        self._kind = kind if isinstance(kind, str) else None
        self._embedding: Any = None if isinstance(kind, str) else kind
        self._seed = seed
        self._model_factory = model_factory
        self._saved_state: Mapping[str, Any] | None = None  # of an embedding to be built
        self._compared = False  # whether all ranks are known to have this embedding

    @property
    def is_local(self) -> bool:
        """Whether embeddings are of the current weights only."""
        return self._kind == LOCAL or isinstance(self._embedding, LocalEmbedding)

    def resolve(self, strategy: Any, size: int) -> Any:
        """The embedding for this update.

        :param strategy: has ``model`` and, if it is not cross entropy, a criterion; may be None
            if the embedding was given or built before.
        :param size: of the memory; an embedding that is built has enough dimensions for it.
        """
        model = DistributedHelper.unwrap_model(getattr(strategy, "model", None))
        if self._kind is None:
            if isinstance(self._embedding, LocalEmbedding) and model is not None:
                return self._embedding.at(model)
            return self._embedding
        if self._embedding is not None:
            if model is not None:
                self._embedding.check_model(model)
            return self._embedding
        if model is None:
            raise ValueError(
                f"a memory with the embedding {self._kind!r} needs the strategy for its model; "
                "call update_from_dataset(data, strategy), or give the buffer an embedding object"
            )
        if self._model_factory is not None and not self.is_local:
            model = self._model_factory
        options: dict[str, Any] = {"loss": _per_example_loss(strategy), "seed": self._seed}
        # The memory may have been resized since its embedding was built.
        state = self._saved_state or {}
        if self._kind == LAST_LAYER:
            options["draws"] = state.get("draws") or last_layer_draws(model, size)
        kind, source = _KINDS[self._kind], model
        if self._kind == LAST_LAYER and _growing_head_of(model) is not None:
            kind = GrowingHeadEmbedding
        if self._kind != LOCAL and isinstance(source, nn.Module):
            # The strategy's model may have been trained since it was made.
            source = Redrawn(source)
        embedding = kind(source, **options)
        if self._kind == LAST_LAYER:
            dim = state.get("dim") if state else fewer_dimensions(embedding.dim, size)
            embedding = FewerFeatures(embedding, dim) if dim else embedding
        if self._saved_state is not None:
            embedding.load_state_dict(self._saved_state)
        return embedding

    def with_(self, embedding: Any) -> EmbeddingChoice:
        """The choice after an update with what :meth:`resolve` returned."""
        if self._kind == LOCAL:
            return self
        return self._replaced(_embedding=embedding, _saved_state=None, _compared=True)

    def facts(self, embedding: Any) -> dict[str, object]:
        """What tells if ranks have the same embedding; nothing once they compared it."""
        if self._compared and embedding is self._embedding:
            return {}
        state = _state_of(embedding) or {}
        named = {"seed of the embedding": state.get("seed")}
        return {**named, "embedding (draws, frozen parameters)": digest(sorted(state.items()))}

    @contextmanager
    def uncalibrated_on_failure(self, *, fresh: bool) -> Iterator[None]:
        """Undo the calibration of a given embedding if its first update fails or is interrupted.

        :param fresh: whether the embedding has not seen data yet.
        """
        given = self._kind is None and fresh and isinstance(self._embedding, GradientEmbedding)
        state = _state_of(self._embedding) if given else None
        try:
            yield
        except BaseException:
            if state is not None:
                self._embedding.load_state_dict(state)
            raise

    def state_dict(self) -> Mapping[str, Any] | None:
        """The embedding's state; None if there is no embedding yet, or it has no state."""
        return self._saved_state if self._embedding is None else _state_of(self._embedding)

    def loaded(self, state: Mapping[str, Any] | None) -> EmbeddingChoice:
        """The choice with this state, which an embedding to be built takes up when it is built."""
        if self._kind is not None:
            return self._replaced(_embedding=None, _saved_state=state, _compared=False)
        if state is not None:
            self._embedding.load_state_dict(state)
        return self._replaced(_compared=False)

    def _replaced(self, **changes: Any) -> EmbeddingChoice:
        twin = copy.copy(self)
        twin.__dict__.update(changes)
        return twin


def _state_of(embedding: Any) -> Mapping[str, Any] | None:
    state_dict = getattr(embedding, "state_dict", None)
    return None if state_dict is None else state_dict()


def last_layer_draws(model: nn.Module | Callable[[], nn.Module], size: int) -> int:
    """How many draws give the last layer's gradients enough dimensions for ``size`` exemplars.

    Time and room of embedding and pursuit grow in proportion to the draws, so they have limits: the
    paper's 4 draws, up to 16 where 4 have less than twenty dimensions per exemplar, and up to 64
    where 16 have less than seven.
    """
    dimensions = _dimensions_of_a_draw(model)
    good = min(math.ceil(GOOD_DIMENSIONS * size / dimensions), DRAWS_FOR_GOOD)
    needed = min(math.ceil(NEEDED_DIMENSIONS * size / dimensions), DRAWS_FOR_NEEDED)
    return max(PAPERS_DRAWS, good, needed)


def fewer_dimensions(dim: int, size: int) -> int | None:
    """To how many dimensions to sum the features of a wide layer; None keeps them as they are.

    :param dim: of the layer's gradients at all draws.
    :param size: of the memory.
    """
    plenty = max(GOOD_DIMENSIONS * size, ALWAYS_KEPT)
    return plenty if dim >= WORTH_SUMMING * plenty else None


def _dimensions_of_a_draw(model: nn.Module | Callable[[], nn.Module]) -> int:
    """Of the last layer, as large as it is now."""
    head = _growing_head_of(model)
    if head is None:
        source = Redrawn(model) if isinstance(model, nn.Module) else model
        return LastLayerEmbedding(source, draws=1).dim
    linear = [layer for layer in head.modules() if isinstance(layer, nn.Linear)]
    return sum(layer.out_features * (layer.in_features + 1) for layer in linear)


def _growing_head_of(model: nn.Module | Callable[[], nn.Module]) -> nn.Module | None:
    if not isinstance(model, nn.Module):
        with seeded(0):
            model = model()
    name = growing_head(model) if isinstance(model, nn.Module) else None
    return model.get_submodule(name) if name else None


def _per_example_loss(strategy: Any) -> Any:
    """The strategy's criterion, None for plain cross entropy.

    :raises ValueError: if it cannot be had for each example.
    """
    criterion = getattr(strategy, "_criterion", None)
    if criterion is None or criterion is F.cross_entropy or _is_plain_cross_entropy(criterion):
        return None
    if isinstance(criterion, nn.Module) and hasattr(criterion, "reduction"):
        return criterion
    if _takes_reduction(criterion):
        return functools.partial(criterion, reduction="none")
    raise ValueError(
        f"the strategy's criterion {criterion!r} has no `reduction`, so its loss cannot be had for "
        "each example; give the buffer an embedding made with loss=..."
    )


def _takes_reduction(criterion: Any) -> bool:
    """Whether it is a function such as ``torch.nn.functional.mse_loss``."""
    try:
        return "reduction" in inspect.signature(criterion).parameters
    except (TypeError, ValueError):  # not every callable knows its arguments
        return False


def _is_plain_cross_entropy(criterion: Any) -> bool:
    return (
        type(criterion) is nn.CrossEntropyLoss
        and criterion.weight is None
        and criterion.label_smoothing == 0.0
        and criterion.ignore_index == -100
    )
