"""A replay memory whose weighted gradients match those of everything seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import torch
from avalanche.benchmarks.utils import AvalancheDataset
from torch import Tensor, nn

from avalanche_gmc.buffers.base import OwningBuffer, check_targets, checked, class_labels
from avalanche_gmc.buffers.chunks import chunks_of
from avalanche_gmc.buffers.embedding_choice import EmbeddingChoice, EmbeddingName
from avalanche_gmc.buffers.growing import extended, grown_for
from avalanche_gmc.buffers.memory import Memory, whole
from avalanche_gmc.buffers.several_ranks import (
    compared_examples,
    embed_part,
    of_all_ranks,
    running_ranks,
)
from avalanche_gmc.buffers.stream_end import Pieces
from avalanche_gmc.buffers.streaming import absorb, without_pending
from avalanche_gmc.collectives import OneRank
from avalanche_gmc.embedding import GradientEmbedding
from avalanche_gmc.exemplars import Exemplars
from avalanche_gmc.exemplars.values import digest
from avalanche_gmc.pursuit import Mode

Target = Literal["stream", "balanced"]


class GradientMatchingBuffer(OwningBuffer):
    """A weighted coreset whose summed gradients match those of everything seen (GMC).

    Each example is embedded by its loss gradients at random initialisations of the model. The
    memory remembers the sum of the embeddings of everything it saw; on new data, matching pursuit
    picks, from the exemplars and the new examples, ``max_size`` weighted ones whose sum is closest
    to it. Nothing else of the stream is kept. A training loss should use the weights.

    Embeddings are computed with the ``eval`` transforms; exemplars are stored before any Avalanche
    transform, so that replay augments them like new data.

    While everything seen fits, everything is kept. An experience whose embeddings would take too
    much room is taken in by chunks. The examples of small updates (fewer than a quarter of the
    memory, as in online streams) are *pending* until there are enough of them for a pursuit:
    ``buffer`` shows them at once, in the place of the exemplars picked last. They take part in a
    pursuit when the stream ends, where :meth:`post_adapt` can know that; see :meth:`flush`.

    In a run with several processes (``torch.distributed``, as Avalanche's distributed training sets
    it up) each rank embeds a part of the new examples, and all ranks end with the same memory.
    Updates, :meth:`flush` and :meth:`resize` are collective operations then: all ranks call them,
    with the same data. A state saved by any rank fits any number of ranks.

    :param max_size: the number of exemplars.
    :param embedding: a :class:`GradientEmbedding`; or ``"last-layer"`` or ``"random-projection"``,
        built from the strategy's model and criterion at the first update; or ``"local"``, gradients
        at the current weights, where the exemplars are embedded again at every update and represent
        the past (a given :class:`LocalEmbedding` does the same). None is ``"last-layer"``, which
        costs less than projections and chooses as well if it has twenty dimensions per
        exemplar: it takes the paper's 4 draws, up to 64 where these have too few dimensions, and
        fewer features where they have far too many. For a model whose head grows
        (``IncrementalClassifier``, ``MTSimpleMLP``, ``as_multitask``) it is a
        :class:`GrowingHeadEmbedding`; other embeddings cannot follow such heads.
    :param target: what the weighted exemplars shall match. "stream", the paper's: the sum over all
        N examples seen; a weight says how many of them an exemplar represents. "balanced": N times
        the mean of the class means, for streams in which some classes have many more examples
        than others. Weights then sum to about N as well, about N/K for each of K classes, and an
        example of a class with N_c examples counts N/(K·N_c), also while everything is kept. So the
        memory's part of a replay loss is the same for both targets; within it, all classes count
        alike. It needs class labels, and keeps one sum of D numbers for each class.
    :param mode: "exact", the paper's picks, or "fast": another selection as good for all we
        measured, in one to two thirds of the time for large chunks; the same picks for small ones.
    :param chunk_size: the most new examples to embed and pursue at once. None takes as many as
        have 512 MiB of embeddings.
    :param seed: of the embedding that is built here.
    :param model_factory: a callable that returns a new model, from which an embedding that is built
        here draws. Models with parameters that no ``reset_parameters()`` initialises need it.
    """

    def __init__(
        self,
        max_size: int,
        embedding: GradientEmbedding | EmbeddingName | None = None,
        *,
        target: Target = "stream",
        mode: Mode = "exact",
        chunk_size: int | None = None,
        seed: int = 0,
        model_factory: Callable[[], nn.Module] | None = None,
    ) -> None:
        super().__init__(max_size)
        for name, value, allowed in (("target", target, Target), ("mode", mode, Mode)):
            if value not in get_args(allowed):
                raise ValueError(f"{name} must be one of {get_args(allowed)}, got {value!r}")
        if chunk_size is not None:
            checked("chunk_size", chunk_size, least=1)
        self.chunk_size = chunk_size
        self.mode = mode
        self._balanced = target == "balanced"
        self._embedding = EmbeddingChoice(embedding, seed, model_factory)
        self._memory = Memory()
        self._pieces = Pieces()
        self._view: tuple[Memory, int, Exemplars] | None = None

    @property
    def weights(self) -> Tensor:
        """How much each exemplar of ``buffer`` counts in the target: n, float32."""
        return self._memory.weights(self.max_size).float()

    @property
    def target(self) -> Tensor | None:
        """What the weighted memory shall match: D, float64; None before the first example.

        With ``"local"``, at the last update's weights, with the memory in place of the past.
        """
        return self._memory.seen.target

    @property
    def num_seen(self) -> int:
        """How many examples were seen."""
        return self._memory.seen.num_seen

    @property
    def residual_norm(self) -> float:
        """What the last pursuit could not match, relative to its target's norm.

        0 while everything seen is kept. Examples that are pending since then are not in it.
        """
        return self._memory.residual_norm

    @property
    def effective_size(self) -> float:
        """How many exemplars of equal weight would be as diverse: ``(Σ w)² / Σ w²``."""
        return effective_size(self.weights)

    def post_adapt(self, agent: Any, exp: Any) -> None:
        """Take the examples of an experience into account; at the end of a stream, flush.

        :param agent: the strategy, or None.
        :param exp: an experience with a ``dataset``.
        """
        pieces = self._pieces.after(exp)
        super().post_adapt(agent, exp)
        self._pieces = pieces
        if pieces.ends_with(exp):
            self.flush()

    def _take_in(self, data: AvalancheDataset, strategy: Any) -> None:
        ranks, step = running_ranks(), "taking in new examples"
        with self._embedding.uncalibrated_on_failure(fresh=self.num_seen == 0):
            with ranks.in_step(step):
                labels = ranks.together(step, lambda: self._labels(data))
                embedding = ranks.together(
                    step,
                    lambda: grown_for(data, self._embedding.resolve(strategy, self.max_size)),
                    lambda embedding: self._facts_with(data, embedding),
                )
                memory = extended(self._memory, embedding)
                memory.seen.check_room(labels, embedding.dim)
                if self._embedding.is_local and len(memory):
                    memory = self._embedded_again(embedding, ranks)
                for chunk in chunks_of(data, labels, embedding, ranks, self.chunk_size):
                    memory = absorb(memory, chunk, self.max_size, self.mode)
            # In one line: an interrupt comes before or after it.
            self._memory, self._embedding = memory, self._embedding.with_(embedding)

    def flush(self) -> None:
        """Let the pending examples take part in a pursuit now.

        An update through an experience (:meth:`post_adapt`, :meth:`update`) does so by itself where
        the stream ends. After the last :meth:`update_from_dataset` of a stream, call this.
        """
        ranks, step = running_ranks(), "flushing a memory"
        with ranks.in_step(step):
            ranks.together(step, self._facts, dict)
            memory = without_pending(self._memory, self.max_size, self.mode, ranks)
        self._memory = memory

    def resize(self, strategy: Any, new_size: int) -> None:
        """Change the number of exemplars; fewer are picked by a pursuit among those there are.

        :param strategy: not used.
        :param new_size: the new ``max_size``.
        """
        memory = self._memory
        if checked("the size of a memory", new_size, least=0) < len(memory):
            ranks, step = running_ranks(), "resizing a memory"
            with ranks.in_step(step):
                ranks.together(step, self._facts, lambda facts: {**facts, "new size": new_size})
                if new_size < self.max_size:
                    memory = without_pending(memory, new_size, self.mode, ranks)
        self._memory, self.max_size = memory, new_size

    def state_dict(self) -> dict[str, Any]:
        """Everything that a buffer made with the same options needs to go on from here."""
        return {
            "max_size": self.max_size,
            "balanced": self._balanced,
            "embedding": self._embedding.state_dict(),
            "memory": self._memory.copied(),
            "pieces": self._pieces,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where the buffer was that `state` came from.

        An embedding that is built from the strategy takes up its state at the next update.
        """
        if state["balanced"] != self._balanced:
            saved = "balanced" if state["balanced"] else "stream"
            raise ValueError(
                f"the state is of a memory with target={saved!r}; make the buffer with the same"
            )
        size = checked("the size of a memory", state["max_size"], least=0)
        memory, embedding = state["memory"].copied(), self._embedding.loaded(state["embedding"])
        self._memory, self._embedding, self.max_size = memory, embedding, size
        self._pieces = state["pieces"]

    def _labels(self, data: AvalancheDataset) -> Tensor:
        """The classes that the target tells apart: N, int64."""
        check_targets(data)
        return torch.tensor(class_labels(data) if self._balanced else [0] * len(data))

    def _facts(self) -> dict[str, object]:
        """What must be the same on all ranks."""
        return {
            "size of the memory": self.max_size,
            "number of examples seen": self.num_seen,
            "chunk size": self.chunk_size,
            "mode of the pursuit": self.mode,
            "target of the pursuit": "balanced" if self._balanced else "stream",
        }

    def _facts_with(self, data: AvalancheDataset, embedding: Any) -> dict[str, object]:
        return {
            **self._facts(),
            **self._embedding.facts(embedding),
            "number of new examples": len(data),
            "targets of the new examples": digest(list(data._data_attributes.get("targets", ()))),
            "new examples before their transforms": compared_examples(data),
        }

    def _embedded_again(self, embedding: Any, ranks: OneRank) -> Memory:
        memory = self._memory
        exemplars = memory.picked.exemplars.concat(memory.pending.exemplars).dataset().eval()
        own = embed_part(exemplars, embedding, ranks)
        return memory.embedded_again(whole(of_all_ranks(own, ranks)))

    def _shown(self) -> Exemplars:
        if self._view is None or self._view[:2] != (self._memory, self.max_size):
            self._view = (self._memory, self.max_size, self._memory.shown(self.max_size))
        return self._view[2]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_view": None}

    def _details(self) -> list[str]:
        return [
            f"{self.num_seen} seen",
            f"residual {self.residual_norm:.3g}",
            f"effective size {self.effective_size:.1f}",
            *super()._details(),
        ]


def effective_size(weights: Tensor) -> float:
    """``(Σ w)² / Σ w²`` of n weights, 0 if all are 0."""
    wide = weights.double()
    squares = float(wide.square().sum())
    return float(wide.sum().square()) / squares if squares > 0 else 0.0
