"""A replay memory whose weighted gradients match those of everything seen."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import torch
from avalanche.benchmarks.utils import AvalancheDataset
from torch import Tensor, nn

from avalanche_gmc.buffers.base import (
    OwningBuffer,
    check_class_label,
    checked_size,
    class_labels,
)
from avalanche_gmc.buffers.embedding_choice import EmbeddingChoice
from avalanche_gmc.buffers.sharing import embedded, in_one_step, running_ranks
from avalanche_gmc.buffers.streaming import Batch, Memory, StreamingPursuit, whole
from avalanche_gmc.collectives import Ranks
from avalanche_gmc.embedding import GradientEmbedding
from avalanche_gmc.exemplars import Exemplars
from avalanche_gmc.pursuit.matching_pursuit import MODES, RULES

CHUNK_BYTES = 2**29
"""Embeddings of new examples held at once if no ``chunk_size`` is given: 512 MiB."""


class GradientMatchingBuffer(OwningBuffer):
    """A weighted coreset whose summed gradients match those of everything seen (GMC).

    Each example is embedded by its loss gradients at random initialisations of the model. The
    memory remembers the sum of the embeddings of everything it saw; on new data, matching pursuit
    picks, from the exemplars and the new examples, ``max_size`` weighted ones whose sum is closest
    to it. Nothing else of the stream is kept. The weights say how many examples an exemplar stands
    for; a training loss should use them.

    Embeddings are computed with the ``eval`` transforms; exemplars are stored before any Avalanche
    transform, so that replay augments them like new data.

    While everything seen fits, everything is kept with weight 1. An experience whose embeddings
    would take too much room is taken in by chunks. Small updates (fewer examples than a quarter of
    the memory, as in online streams) enter ``buffer`` at once, with weight 1, in the place of the
    exemplars picked last, and are pooled until a pursuit is worth its time; see :meth:`flush`.

    In a run with several processes (``torch.distributed``, as Avalanche's distributed training sets
    it up) each rank embeds its share of the new examples, and all ranks end with the same memory.
    Updates, :meth:`flush` and :meth:`resize` are collective operations then: all ranks call them,
    with the same data. A state saved by any rank fits any number of ranks.

    :param max_size: the number of exemplars.
    :param embedding: a :class:`GradientEmbedding`; or ``"last-layer"`` or ``"random-projection"``,
        built from the strategy's model and criterion at the first update; or ``"local"``, gradients
        at the current weights, where the exemplars are embedded again at every update and stand for
        the past. None is ``"last-layer"``, which costs less than projections and chooses as well
        if it has about ten dimensions per exemplar: where the paper's 4 draws have fewer, up to 16
        are taken, and up to 64 where 16 have fewer than two.
    :param rule: "omp", the paper's, or "ols", orthogonal least squares, which matches the gradients
        more closely but led to less accurate models with small memories.
    :param mode: "exact", the paper's picks, or "fast": another selection as good for all we
        measured, in about half the time.
    :param nonnegative: whether weights must be ≥ 0, so that no example is unlearnt.
    :param chunk_size: the most new examples to embed and pursue at once. None takes as many as
        ``CHUNK_BYTES`` of embeddings allow.
    :param seed: of the embedding that is built here.
    :param model_factory: a callable that returns a new model, from which an embedding that is built
        here draws. Models with parameters that no ``reset_parameters()`` initialises need it.
    """

    def __init__(
        self,
        max_size: int,
        embedding: GradientEmbedding | str | None = None,
        *,
        rule: str = "omp",
        mode: str = "exact",
        nonnegative: bool = True,
        chunk_size: int | None = None,
        seed: int = 0,
        model_factory: Callable[[], nn.Module] | None = None,
    ) -> None:
        super().__init__(max_size)
        if rule not in RULES or mode not in MODES:
            raise ValueError(
                f"rule must be one of {RULES} and mode one of {MODES}, got {rule!r} and {mode!r}"
            )
        if chunk_size is not None and (not isinstance(chunk_size, int) or chunk_size < 1):
            raise ValueError(
                f"chunk_size must be an integer of at least 1 or None, got {chunk_size!r}"
            )
        self.chunk_size = chunk_size
        self._pursuit = StreamingPursuit(rule=rule, mode=mode, nonnegative=nonnegative)
        self._embedding = EmbeddingChoice(embedding, seed, model_factory)
        self._memory = Memory()
        self._view: tuple[Memory, int, Exemplars] | None = None

    @property
    def weights(self) -> Tensor:
        """How many examples each exemplar of ``buffer`` stands for: n, float32."""
        return self._memory.weights[self._memory.shown(self.max_size)].float()

    @property
    def target(self) -> Tensor | None:
        """The sum of the embeddings of everything seen: D, float64; None before the first example.

        With ``"local"``, at the last update's weights, the memory standing for the past.
        """
        return self._memory.target

    @property
    def num_seen(self) -> int:
        """How many examples were seen."""
        return self._memory.num_seen

    @property
    def residual_norm(self) -> float:
        """What the last pursuit could not match, relative to its target's norm.

        0 while everything seen is kept. Examples pooled since then are not in it.
        """
        return self._memory.residual_norm

    @property
    def effective_size(self) -> float:
        """How many exemplars of equal weight would be as diverse: ``(Σ w)² / Σ w²``."""
        return effective_size(self.weights)

    def _take_in(self, data: AvalancheDataset, strategy: Any) -> None:
        ranks = running_ranks()
        with self._all_or_nothing():
            with in_one_step(ranks, "taking in new examples", lambda: self._facts_with(data)):
                check_class_label(data)
                embedding = self._embedding.resolve(strategy, self.max_size)
                memory = self._memory
                if self._embedding.is_local and len(memory):
                    again = embedded(memory.exemplars.dataset().eval(), embedding, ranks)
                    memory = memory.embedded_again(whole(again))
                for batch in self._batches(data, embedding, ranks):
                    memory = self._pursuit.absorb(memory, batch, self.max_size)
            self._embedding.keep(embedding)
            self._memory = memory

    def flush(self) -> None:
        """Let the examples that were pooled take part in a pursuit now.

        At the end of an online stream it makes the memory what it would be without pooling.
        """
        ranks = running_ranks()
        with in_one_step(ranks, "settling a memory", self._facts):
            memory = self._pursuit.settle(self._memory, self.max_size, ranks)
        self._memory = memory

    def resize(self, strategy: Any, new_size: int) -> None:
        """Change the number of exemplars; fewer are picked by a pursuit among those there are.

        :param strategy: not used.
        :param new_size: the new ``max_size``.
        """
        memory = self._memory
        if checked_size(new_size) < self.max_size and len(memory) > new_size:
            ranks = running_ranks()
            facts = {**self._facts(), "new size": new_size}
            with in_one_step(ranks, "resizing a memory", lambda: facts):
                memory = self._pursuit.settle(memory, new_size, ranks)
        with self._all_or_nothing():
            self._memory, self.max_size = memory, new_size

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Leave the buffer as it was if anything fails, or the user interrupts it."""
        before = self._memory, self.max_size
        with self._embedding.restored_on_failure(settled=self.num_seen > 0):
            try:
                yield
            except BaseException:
                self._memory, self.max_size = before
                raise

    def state_dict(self) -> dict[str, Any]:
        """Everything that a buffer made with the same options needs to go on from here."""
        memory = {f.name: getattr(self._memory, f.name) for f in fields(Memory)}
        return {"max_size": self.max_size, "embedding": self._embedding.state_dict(), **memory}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where the buffer was that `state` came from.

        An embedding that is built from the strategy takes up its state at the next update.
        """
        memory = Memory(**{f.name: state[f.name] for f in fields(Memory)})
        self._embedding.load_state_dict(state["embedding"])
        self._memory, self.max_size = memory, checked_size(state["max_size"])

    def _facts(self) -> dict[str, object]:
        """What must be the same on all ranks."""
        return {
            "size of the memory": self.max_size,
            "number of examples seen": self.num_seen,
            "chunk size": self.chunk_size,
        }

    def _facts_with(self, data: AvalancheDataset) -> dict[str, object]:
        classes = class_labels(data) if "targets" in data._data_attributes else []
        return {
            **self._facts(),
            "number of new examples": len(data),
            "classes of the new examples": torch.tensor(classes, dtype=torch.long),
        }

    def _batches(
        self, data: AvalancheDataset, embedding: Any, ranks: Ranks | None
    ) -> Iterator[Batch]:
        """The new examples in chunks of about equal size, embedded one after the other."""
        most = self.chunk_size or max(1, CHUNK_BYTES // (4 * embedding.dim))
        count = -(-len(data) // most)
        bounds = [len(data) * k // count for k in range(count + 1)]
        batch: Batch | None = None
        for first, last in itertools.pairwise(bounds):
            part = data if count == 1 else data.subset(list(range(first, last)))
            new = Batch(data, first, embedded(part.eval(), embedding, ranks))
            batch = new if batch is None else batch.joined(new)
            # A structured dictionary takes far less than 4·D bytes for each example.
            full = self.chunk_size or batch.nbytes + new.nbytes > CHUNK_BYTES
            if full or last == len(data):
                yield batch
                batch = None

    def _shown(self) -> Exemplars:
        if self._view is None or self._view[:2] != (self._memory, self.max_size):
            shown = self._memory.exemplars.take(self._memory.shown(self.max_size))
            self._view = (self._memory, self.max_size, shown)
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
