"""Which embedding a memory uses, and how it is built from a strategy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from avalanche.distributed import DistributedHelper
from torch import nn
from torch.nn import functional as F

from avalanche_gmc.embedding import (
    GradientEmbedding,
    LastLayerEmbedding,
    LocalEmbedding,
    RandomProjectionEmbedding,
)
from avalanche_gmc.initialization import Redrawn

LAST_LAYER, LOCAL = "last-layer", "local"

DEFAULT_EMBEDDING = LAST_LAYER

PAPERS_DRAWS = 4

GOOD_DIMENSIONS, DRAWS_FOR_GOOD = 10, 16
"""Dimensions per exemplar that pay, and the most draws to spend on them. With fewer dimensions the
last layer is matched before the memory is full, and the last picks mean little."""

NEEDED_DIMENSIONS, DRAWS_FOR_NEEDED = 2, 64
"""The same for what a memory must have to be better than a random one."""

_KINDS: dict[str, Any] = {
    LAST_LAYER: LastLayerEmbedding,
    "random-projection": RandomProjectionEmbedding,
    LOCAL: LocalEmbedding,
}


class EmbeddingChoice:
    """An embedding that is given, or built from the first strategy, or built anew each time.

    :param embedding: an embedding, the name of a kind, or None for ``DEFAULT_EMBEDDING``.
    :param seed: of an embedding that is built.
    """

    def __init__(self, embedding: GradientEmbedding | str | None, seed: int) -> None:
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
        self._pending_state: Mapping[str, Any] | None = None

    @property
    def is_local(self) -> bool:
        """Whether embeddings are of the current weights only."""
        return self._kind == LOCAL

    def resolve(self, strategy: Any, size: int) -> Any:
        """The embedding for this update. Nothing changes here until :meth:`keep`.

        :param strategy: has ``model`` and, if it is not cross entropy, a criterion; may be None
            if the embedding was given or built before.
        :param size: of the memory; an embedding that is built has enough dimensions for it.
        """
        if self._kind is None:
            return self._embedding
        model = DistributedHelper.unwrap_model(getattr(strategy, "model", None))
        if self._embedding is not None:
            if model is not None:
                self._embedding.check_model(model)
            return self._embedding
        if model is None:
            raise ValueError(
                f"a memory with the embedding {self._kind!r} needs the strategy for its model; "
                "call update_from_dataset(data, strategy), or give the buffer an embedding object"
            )
        options: dict[str, Any] = {"loss": _per_example_loss(strategy), "seed": self._seed}
        if self._kind == LAST_LAYER:
            # The memory may have been resized since its embedding was built.
            state = self._pending_state or {}
            options["draws"] = state.get("draws") or last_layer_draws(model, size)
        # The strategy's model may have been trained since it was made.
        source = model if self._kind == LOCAL else Redrawn(model)
        embedding = _KINDS[self._kind](source, **options)
        if self._pending_state is not None:
            embedding.load_state_dict(self._pending_state)
        return embedding

    def keep(self, embedding: Any) -> None:
        """Go on with what :meth:`resolve` returned."""
        if not self.is_local:
            self._embedding = embedding
            self._pending_state = None

    @contextmanager
    def restored_on_failure(self, *, settled: bool) -> Iterator[None]:
        """Take everything back if an update fails or is interrupted.

        :param settled: whether the embedding has seen data. One that has not measures what then
            stays fixed on its first data, which an update that failed must not decide.
        """
        before = self._embedding, self._pending_state
        given = (
            self._kind is None and not settled and isinstance(self._embedding, GradientEmbedding)
        )
        state = self._embedding.state_dict() if given else None
        try:
            yield
        except BaseException:
            self._embedding, self._pending_state = before
            if state is not None:
                self._embedding.load_state_dict(state)
            raise

    def state_dict(self) -> Mapping[str, Any] | None:
        """The embedding's state, None if there is none yet."""
        return self._pending_state if self._embedding is None else self._embedding.state_dict()

    def load_state_dict(self, state: Mapping[str, Any] | None) -> None:
        """Take a state up, at once or as soon as the embedding is built."""
        if self._kind is not None:
            self._embedding, self._pending_state = None, state
        elif state is not None:
            self._embedding.load_state_dict(state)


def last_layer_draws(model: nn.Module, size: int) -> int:
    """How many draws give the last layer's gradients enough dimensions for ``size`` exemplars.

    Time and memory of embedding and pursuit grow in proportion to the draws, hence the limits.
    """
    per_dimension = size / LastLayerEmbedding(Redrawn(model), draws=1).dim
    good = min(math.ceil(GOOD_DIMENSIONS * per_dimension), DRAWS_FOR_GOOD)
    needed = min(math.ceil(NEEDED_DIMENSIONS * per_dimension), DRAWS_FOR_NEEDED)
    return max(PAPERS_DRAWS, good, needed)


def _per_example_loss(strategy: Any) -> Any:
    """The strategy's criterion, None for plain cross entropy.

    :raises ValueError: if it cannot be had for each example.
    """
    criterion = getattr(strategy, "_criterion", None)
    if criterion is None or criterion is F.cross_entropy or _is_plain_cross_entropy(criterion):
        return None
    if isinstance(criterion, nn.Module) and hasattr(criterion, "reduction"):
        return criterion
    raise ValueError(
        f"the strategy's criterion {criterion!r} has no `reduction`, so its loss cannot be had for "
        "each example; give the buffer an embedding made with loss=..."
    )


def _is_plain_cross_entropy(criterion: Any) -> bool:
    return (
        type(criterion) is nn.CrossEntropyLoss
        and criterion.weight is None
        and criterion.label_smoothing == 0.0
        and criterion.ignore_index == -100
    )
