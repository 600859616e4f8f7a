"""What rivals that compare embeddings share: embed the new examples, then select.

Letters: N candidates (the exemplars, then the new examples), n exemplars, D dimensions, S draws,
K outputs, H features.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import torch
from avalanche.benchmarks.utils import AvalancheDataset
from torch import Tensor

from avalanche_gmc.buffers.base import OwningBuffer, checked, class_labels
from avalanche_gmc.buffers.baselines.geometry import class_budgets
from avalanche_gmc.buffers.embedding_choice import LAST_LAYER, EmbeddingChoice
from avalanche_gmc.dictionary import Dictionary
from avalanche_gmc.embedding import GradientEmbedding
from avalanche_gmc.exemplars import Exemplars

Embedding = GradientEmbedding | str | None


@dataclass(frozen=True, eq=False)
class Candidates:
    """The exemplars of a memory, then the new examples.

    :param atoms: N embeddings.
    :param weights: N, float64: how many of the examples seen each represents, 1 if new.
    :param stored: how many are exemplars.
    :param num_seen: how many examples were seen, the new ones included.
    :param summary: what the rule remembers of the examples seen before; None at the start.
    :param datasets: the exemplars and the new examples, as far as there are any.
    """

    atoms: Dictionary
    weights: Tensor
    stored: int
    num_seen: int
    summary: Any
    datasets: list[AvalancheDataset]

    def __len__(self) -> int:
        return len(self.atoms)

    @cached_property
    def labels(self) -> Tensor:
        """The class of each candidate: N."""
        return torch.tensor([label for data in self.datasets for label in class_labels(data)])

    @cached_property
    def members(self) -> dict[int, Tensor]:
        """The positions of the candidates of each class, ascending."""
        classes = sorted(set(self.labels.tolist()))
        return {label: (self.labels == label).nonzero()[:, 0] for label in classes}

    def budgets(self, size: int) -> list[tuple[int, Tensor, int]]:
        """Each class, its members, and how many of them to select if all have equal parts."""
        available = {label: len(members) for label, members in self.members.items()}
        budgets = class_budgets(available, size)
        return [(label, members, budgets[label]) for label, members in self.members.items()]


class Selection(NamedTuple):
    """What a rule selects.

    :param indices: n distinct candidates, in the order of the memory.
    :param weights: n, float64: how many of the examples seen each represents. None is the same
        number for all.
    :param summary: what the rule remembers of all examples seen.
    """

    indices: Tensor
    weights: Tensor | None = None
    summary: Any = None


@dataclass(frozen=True, eq=False)
class _Memory:
    """The exemplars and all else that a buffer keeps. Never changed, only replaced."""

    exemplars: Exemplars = field(default_factory=Exemplars)
    atoms: Dictionary | None = None
    weights: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))
    num_seen: int = 0
    summary: Any = None


class SelectionBuffer(OwningBuffer):
    """A memory that embeds new examples and selects from them and its exemplars.

    Subclasses are one rule each. Everything depends on the data, the embedding and the seed only.

    :param max_size: the number of exemplars.
    :param embedding: a :class:`GradientEmbedding`; or ``"last-layer"`` or ``"random-projection"``,
        at random draws of the parameters, built from the strategy's model at the first update; or
        ``"local"``, at the current weights of the strategy's model, where the exemplars are
        embedded again at every update. Exemplars are embedded with their ``eval`` transforms.
        None is what the subclass says.
    :param seed: of the draws and of the rule.
    """

    default_embedding: ClassVar[str] = LAST_LAYER
    always_selects: ClassVar[bool] = False
    """Whether the rule has a say, such as on what to remember, while everything is kept."""

    def __init__(self, max_size: int, embedding: Embedding = None, *, seed: int = 0) -> None:
        super().__init__(max_size)
        kind = self.default_embedding if embedding is None else embedding
        self._embedding = EmbeddingChoice(kind, seed)
        self._seed = seed
        self._memory = _Memory()

    @property
    def num_seen(self) -> int:
        """How many examples were seen."""
        return self._memory.num_seen

    @abstractmethod
    def _select(self, candidates: Candidates, size: int) -> Selection:
        """The rule: choose ``size`` of N candidates; 0 < size < N unless it always selects."""

    def _choose(self, candidates: Candidates, size: int) -> Selection:
        """What to keep: everything that there is room for, or what the rule selects."""
        if 0 < size < len(candidates) or self.always_selects:
            return self._select(candidates, size)
        kept = torch.arange(min(size, len(candidates)))
        return Selection(kept, candidates.weights[kept])

    def _take_in(self, data: AvalancheDataset, strategy: Any) -> None:
        memory = self._memory
        with self._embedding.uncalibrated_on_failure(fresh=self.num_seen == 0):
            embedding = self._embedding.resolve(strategy, self.max_size)
            atoms, stored = embedding.embed(data.eval()), memory.atoms
            if stored is not None:
                if self._embedding.is_local:
                    stored = embedding.embed(memory.exemplars.dataset().eval())
                atoms = stored.concat(atoms)
            memory = self._selected(self._candidates(atoms, data), data, self.max_size)
            # In one line: an interrupt comes before or after it.
            self._memory, self._embedding = memory, self._embedding.with_(embedding)

    def resize(self, strategy: Any, new_size: int) -> None:
        """Change the number of exemplars; fewer are selected by the rule among those there are.

        :param strategy: not used.
        :param new_size: the new ``max_size``.
        """
        checked("the size of a memory", new_size, least=0)
        if self._memory.atoms is not None and len(self._memory.exemplars) > new_size:
            self._memory = self._selected(self._candidates(self._memory.atoms), None, new_size)
        self.max_size = new_size

    def _candidates(self, atoms: Dictionary, *new: AvalancheDataset) -> Candidates:
        """The exemplars, then new examples.

        :param atoms: of all of them.
        """
        memory, num_new = self._memory, sum(map(len, new))
        return Candidates(
            atoms,
            torch.cat([memory.weights, torch.ones(num_new, dtype=torch.float64)]),
            len(memory.exemplars),
            memory.num_seen + num_new,
            memory.summary,
            [*([memory.exemplars.dataset()] if len(memory.exemplars) else []), *new],
        )

    def _selected(
        self, candidates: Candidates, data: AvalancheDataset | None, size: int
    ) -> _Memory:
        indices, weights, summary = self._choose(candidates, size)
        indices = indices.cpu()
        if weights is None:
            each = candidates.num_seen / max(1, len(indices))
            weights = torch.full((len(indices),), each, dtype=torch.float64)
        atoms = candidates.atoms.take(indices.to(candidates.atoms.device)) if len(indices) else None
        exemplars = _picked(self._memory.exemplars, data, indices.tolist())
        return _Memory(exemplars, atoms, weights.cpu().double(), candidates.num_seen, summary)

    def _shown(self) -> Exemplars:
        return self._memory.exemplars


class WeightedSelectionBuffer(SelectionBuffer):
    """The same with weights, which a training loss should use."""

    @property
    def weights(self) -> Tensor:
        """How many of the examples seen each exemplar represents: n, float32."""
        return self._memory.weights.float()


def checked_ridge(ridge: float) -> float:
    """Refuse what is not above 0."""
    if not ridge > 0:
        raise ValueError(f"ridge must be a number above 0, got {ridge}")
    return ridge


def _picked(exemplars: Exemplars, data: AvalancheDataset | None, picks: list[int]) -> Exemplars:
    """The exemplars at `picks` of [exemplars, data]; of the data, only those are copied."""
    if data is None:
        return exemplars.take(picks)
    stored = len(exemplars)
    new = [pick for pick in picks if pick >= stored]
    place = {pick: stored + rank for rank, pick in enumerate(new)}
    joined = exemplars.concat(Exemplars.copy_of(data, [pick - stored for pick in new]))
    return joined.take(place.get(pick, pick) for pick in picks)
