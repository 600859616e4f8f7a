"""The gradient of a last layer that grows: one head or one per task, with more units as they come.

Letters: N examples, S draws, K units seen so far, H features (one of them the constant 1 of the
bias).
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import Self

from avalanche_gmc.dictionary import Dictionary, LastLayerDictionary
from avalanche_gmc.embedding.base import DrawsEmbedding
from avalanche_gmc.embedding.examples import MapDataset
from avalanche_gmc.embedding.forward import require_moderate, run_model
from avalanche_gmc.embedding.losses import Loss
from avalanche_gmc.embedding.units import Unit, Units
from avalanche_gmc.initialization import (
    Factory,
    Headless,
    ModelOrFactory,
    Redrawn,
    as_factory,
    growing_head,
    parameter_shapes,
)


class _Store(NamedTuple):
    features: Tensor  # S×N×H
    targets: list[Tensor]  # columns of units


class GrowingHeadEmbedding(DrawsEmbedding[_Store]):
    """Gradients of a growing head at S draws, as :class:`LastLayerEmbedding` has of a fixed one.

    For models with Avalanche's ``IncrementalClassifier``, or with its ``MultiHeadClassifier``
    (``MTSimpleMLP``, ``as_multitask``), which needs a dataset with ``targets_task_labels``.

    Each class of each head is a unit, drawn from the seed when its first example comes. An
    example's loss is over the classes of its head that are known at that time, as training masks
    the others. A gradient that was taken earlier is 0 at units that appeared later:
    :meth:`extended` and ``LastLayerDictionary.with_outputs`` append the zeros. Units of a draw
    never change, nor does the rest of it.

    One departure from what Avalanche trains: where heads differ in size, it fills the outputs of
    the smaller ones with 0 in minibatches of several tasks, and these take part in the softmax.
    Here they do not.

    :param model: a callable that returns a fresh model, or a module with ``reset_parameters()``;
        its head may have grown already.
    :param draws: S.
    :param loss: ``loss(outputs, targets)`` with one value per example; None is cross entropy.
    :param batch_size: examples per pass; None takes what :class:`LastLayerEmbedding` does.
    :param save_draws: keep the draws themselves, also in states and pickles.
    :param seed: of the draws and of all units.
    """

    _MEASURED = DrawsEmbedding._MEASURED | {"units": "_pairs"}

    def __init__(
        self,
        model: ModelOrFactory,
        *,
        draws: int = 4,
        loss: Loss | None = None,
        batch_size: int | None = None,
        save_draws: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(
            _factory_of_headless(model),
            draws=draws,
            loss=loss,
            batch_size=batch_size,
            usual=None,
            save_draws=save_draws,
            seed=seed,
        )
        body: Any = self._draws[0]
        self._in_features: int = body.in_features
        self._head_per_task: bool = body.head_per_task
        self._units = Units()
        self._drawn: Tensor | None = None  # S×(up to K)×H

    @property
    def num_units(self) -> int:
        """K."""
        return len(self._units)

    @property
    def dim(self) -> int:
        return len(self._draws) * self.num_units * (self._in_features + 1)

    def grown(self, dataset: MapDataset) -> Self:
        """The embedding that knows the classes of these examples too.

        This one, if it does, or if it was not calibrated before: two embeddings share their draws,
        which only one may calibrate.
        """
        return self._grown(self._units_of(dataset, None))

    def extended(self, vector: Tensor) -> Tensor:
        """A vector from before the head grew, with zeros for units that came since: D' → D."""
        parts = vector.view(len(self._draws), -1, self._in_features + 1)
        return F.pad(parts, (0, 0, 0, self.num_units - parts.shape[1])).flatten()

    def embed(
        self,
        inputs: Tensor | MapDataset,
        targets: Tensor | None = None,
        tasks: Tensor | None = None,
    ) -> Dictionary:
        """The gradients of N examples, given as tensors or as one dataset of (x, y, ...).

        :param inputs: N×..., or a map-style dataset.
        :param targets: N class labels, with a tensor of inputs only.
        :param tasks: N task labels, with a tensor of inputs and a head per task.
        """
        units = self._units_of(inputs if targets is None else targets, tasks)
        self.__dict__.update(self._grown(units).__dict__)
        columns = [self._units.places.get(unit, -1) for unit in units]
        if targets is None:
            return super().embed(_WithTargets(inputs, columns))
        return super().embed(inputs, torch.tensor(columns, dtype=torch.long))

    def check_model(self, model: nn.Module) -> None:
        name = growing_head(model)
        if not name:
            raise ValueError(
                f"the embedding was made for a model whose head grows, and {type(model).__name__} "
                "has no such head; go on with the model that the memory began with."
            )
        prefix = name.replace("_orig_mod.", "") + "."
        shapes = parameter_shapes(model).items()
        self._compare_shapes({f"model.{n}": s for n, s in shapes if not n.startswith(prefix)})

    def _grown(self, pairs: list[Unit]) -> Self:
        units = self._units.with_([pair for pair in pairs if not self._is_ignored(pair)])
        if units is self._units:
            return self
        twin = self if self._num_outputs is None else copy.copy(self)
        twin._units = units
        if twin._num_outputs is not None:
            twin._num_outputs = len(units)
        return twin

    def _is_ignored(self, unit: Unit) -> bool:
        return unit[1] == self._loss.ignored

    def _units_of(self, data: Any, tasks: Any) -> list[Unit]:
        """The unit of each example.

        :param data: class labels, or a dataset of (x, y, ...).
        """
        labels = data
        if not isinstance(data, Tensor):
            labels = getattr(data, "targets", None)
            labels = [data[i][1] for i in range(len(data))] if labels is None else labels
            tasks = getattr(data, "targets_task_labels", None)
        labels = [self._label(label) for label in labels]
        if not self._head_per_task:
            return [(0, label) for label in labels]
        if tasks is None:
            raise ValueError(
                "the model has one head per task, but the examples have no task labels; make the "
                "stream with with_task_labels(benchmark)."
            )
        return [(int(task), label) for task, label in zip(tasks, labels, strict=True)]

    def _label(self, target: Any) -> int:
        if isinstance(target, int) and target >= 0:
            return target
        label = torch.as_tensor(target)
        if label.numel() != 1 or label.is_floating_point():
            raise ValueError(
                f"a head that grows with the classes needs one class label per example, got the "
                f"target {target!r}; give the model a fixed number of outputs."
            )
        if int(label) < 0 and int(label) != self._loss.ignored:
            raise ValueError(
                f"class labels must be at least 0, got {int(label)}; number them 0, 1, 2, ..."
            )
        return int(label)

    def _check_targets(self, targets: Tensor, first: int) -> None:
        """Columns of units are right by construction."""

    def _calibrate(self, inputs: Tensor, targets: Tensor) -> int:
        for draw in range(len(self._draws)):
            self._draws.calibrate(draw, inputs)
        return self.num_units

    def _allocate(self, examples: int) -> _Store:
        shape = len(self._draws), examples, self._in_features + 1
        return _Store(torch.ones(shape, device=self._device), [])

    def _fill(self, store: _Store, rows: slice, draw: int, inputs: Tensor, targets: Tensor) -> None:
        with torch.no_grad():
            store.features[draw, rows, :-1] = run_model(self._draws[draw], inputs)
        if draw == 0:
            store.targets.append(targets)

    def _dictionary(self, store: _Store) -> Dictionary:
        features, weights = store.features, self._weights()
        errors = features.new_zeros(*features.shape[:2], self.num_units)
        targets = torch.cat([torch.zeros(0, dtype=torch.long, device=self._device), *store.targets])
        for draw in range(len(self._draws)):
            outputs = features[draw] @ weights[draw].T
            require_moderate(outputs, draw)
            errors[draw] = self._units.errors(outputs, targets, self._loss)
        return LastLayerDictionary(errors, features)

    def _weights(self) -> Tensor:
        """Of all units at all draws: S×K×H."""
        first = 0 if self._drawn is None else self._drawn.shape[1]
        if self._drawn is None or first < self.num_units:
            new = self._units.drawn(first, self._in_features, self.seed, len(self._draws))
            new = new.to(self._device)
            self._drawn = new if self._drawn is None else torch.cat([self._drawn, new], dim=1)
        return self._drawn

    @property
    def _pairs(self) -> tuple[Unit, ...]:
        return self._units.pairs

    @_pairs.setter
    def _pairs(self, pairs: tuple[Unit, ...]) -> None:
        self._units, self._drawn = Units(pairs), None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_drawn": None}


class _WithTargets:
    """A dataset with other targets."""

    def __init__(self, data: Any, targets: list[int]) -> None:
        self._data = data
        self._targets = targets

    def __len__(self) -> int:
        return len(self._targets)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self._data[index][0], self._targets[index]


class _HeadlessFactory:
    """What another factory returns, without its head."""

    def __init__(self, factory: Factory) -> None:
        self._factory = factory

    def __call__(self) -> Headless:
        return Headless(self._factory())


def _factory_of_headless(model: ModelOrFactory) -> Factory:
    factory = as_factory(model)
    # Without its head first: the draws of the rest must not depend on the size of the head.
    return factory.headless() if isinstance(factory, Redrawn) else _HeadlessFactory(factory)
