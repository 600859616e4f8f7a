"""What all embeddings share: the draws, their calibration, one pass over the data, the state.

Letters: N examples, S draws, K outputs, D dimensions.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn

from avalanche_gmc.dictionary import Dictionary
from avalanche_gmc.embedding.draws import Draws
from avalanche_gmc.embedding.examples import Examples, MapDataset
from avalanche_gmc.embedding.forward import (
    activation_bytes,
    ordinary,
    parameter_like,
    prepare,
    run_model,
)
from avalanche_gmc.embedding.losses import ExampleLoss, Loss
from avalanche_gmc.initialization import ModelOrFactory, parameter_shapes, plain_arithmetic

CALIBRATION_EXAMPLES = 256
"""How many examples of the first data calibrate an embedding, in one forward pass."""

MOST_EXAMPLES, ACTIVATION_BYTES = 1024, 2**24
"""A forward pass takes at most so many examples, and so few that no layer returns more than 16 MiB
for them: larger tensors are not kept by the allocator, and fresh memory takes twice the time."""

Store = TypeVar("Store")


class GradientEmbedding(ABC):
    """Maps examples to loss gradients of D numbers, the same way for the life of a memory.

    Gradients are of each example's own loss and never divided by N, so that the sum over a
    dictionary is the gradient of the summed loss.
    """

    @property
    @abstractmethod
    def dim(self) -> int:
        """D."""

    @abstractmethod
    def embed(self, inputs: Tensor | MapDataset, targets: Tensor | None = None) -> Dictionary:
        """The gradients of N examples, given as two tensors or as one dataset of (x, y, ...).

        :param inputs: N×..., or a map-style dataset whose further entries are ignored.
        :param targets: N, with a tensor of inputs only.
        """

    def calibrate(self, inputs: Tensor | MapDataset, targets: Tensor | None = None) -> None:
        """Calibrate once, on the first data; later calls do nothing.

        :meth:`embed` does it on its own first data, if this was not called before.
        """
        return None

    @abstractmethod
    def check_model(self, model: nn.Module) -> None:
        """Refuse a model whose parameters no longer have the shapes that were embedded.

        :param model: the model that is being trained.
        """

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """All that defines the embedding: tensors and Python scalars."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Become the embedding that ``state`` came from; made with the same options."""


class DrawsEmbedding(GradientEmbedding, Generic[Store]):
    """The shared half: subclasses reduce one batch at one draw into a store.

    :param model: a callable that returns a fresh model, or a module with ``reset_parameters()``.
    :param draws: S.
    :param loss: one value per example; None is cross entropy.
    :param batch_size: examples per pass; it bounds the bytes in use and changes nothing else.
    :param usual: the size if ``batch_size`` is None; None here takes what one forward pass can.
    :param save_draws: keep the draws themselves, also in states and pickles, not their seed.
    :param seed: of the draws (and projections).
    """

    _MEASURED: ClassVar[dict[str, str]] = {"num_outputs": "_num_outputs"}
    """What a state has besides the draws, and the attributes that hold it."""

    def __init__(
        self,
        model: ModelOrFactory,
        *,
        draws: int,
        loss: Loss | None,
        batch_size: int | None,
        usual: int | None,
        save_draws: bool,
        seed: int,
    ) -> None:
        _check_batch_size(batch_size)
        self.batch_size = batch_size
        self._usual_batch_size = usual
        self._loss = ExampleLoss(loss)
        self._num_outputs: int | None = None
        with plain_arithmetic():
            self._draws = Draws(model, draws, seed, save=save_draws)
        like = parameter_like(self._draws[0])
        self._dtype, self._device = like.dtype, like.device

    @property
    def seed(self) -> int:
        """Of the draws."""
        return self._draws.seed

    def calibrate(self, inputs: Tensor | MapDataset, targets: Tensor | None = None) -> None:
        examples = Examples(inputs, targets)
        if len(examples) and self._num_outputs is None:
            with plain_arithmetic(self._device):
                x, y = self._read(examples, examples.spread(CALIBRATION_EXAMPLES))
                self._num_outputs = self._calibrate(x, y)

    def embed(self, inputs: Tensor | MapDataset, targets: Tensor | None = None) -> Dictionary:
        examples = Examples(inputs, targets)
        self.calibrate(inputs, targets)
        every = range(len(self._draws))
        # Draws that are made one at a time must each see all batches before the next one is made.
        groups = [every] if self._draws.at_once else [[draw] for draw in every]
        with plain_arithmetic(self._device):
            size, store = self.batch_size_for(examples), self._allocate(len(examples))
            for group in groups:
                for rows in examples.batches(size):
                    x, y = self._read(examples, rows)
                    self._check_targets(y, first=rows.start)
                    for draw in group:
                        self._fill(store, rows, draw, x, y)
            return self._dictionary(store)

    def batch_size_for(self, examples: Examples) -> int:
        """How many of these examples make a batch."""
        size = self.batch_size or self._usual_batch_size
        if size is None and len(examples):
            inputs, _ = self._read(examples, slice(0, 1))
            most = ACTIVATION_BYTES // activation_bytes(self._draws[0], inputs)
            size = self._usual_batch_size = max(1, min(MOST_EXAMPLES, most))
        return size or MOST_EXAMPLES

    @abstractmethod
    def _allocate(self, examples: int) -> Store:
        """Room for the embeddings of N examples."""

    @abstractmethod
    def _fill(self, store: Store, rows: slice, draw: int, inputs: Tensor, targets: Tensor) -> None:
        """Embed one batch at one draw."""

    @abstractmethod
    def _dictionary(self, store: Store) -> Dictionary:
        """The finished store as a dictionary."""

    def _calibrate(self, inputs: Tensor, targets: Tensor) -> int:
        """Measure, on the first data, what then stays fixed; never called with no examples.

        :return: K.
        """
        with torch.no_grad():
            outputs = run_model(self._draws[0], inputs)
        num_outputs = outputs.shape[1] if outputs.ndim > 1 else 1
        self._loss.check_targets(targets, num_outputs, first=0)
        for draw in range(len(self._draws)):
            self._draws.calibrate(draw, inputs)
            self._measure(draw, inputs, targets)
        return num_outputs

    def _check_targets(self, targets: Tensor, first: int) -> None:
        self._loss.check_targets(targets, self._num_outputs or 0, first)

    def _measure(self, draw: int, inputs: Tensor, targets: Tensor) -> None:
        """Measure what else an embedding needs of a draw, on the first data."""
        return None

    def _read(self, examples: Examples, where: slice | list[int]) -> tuple[Tensor, Tensor]:
        inputs, targets = examples.read(where)
        dtype = self._dtype if targets.is_floating_point() else torch.int64
        inputs = prepare(inputs, self._dtype, self._device)
        return inputs, ordinary(targets.to(self._device, dtype))

    def check_model(self, model: nn.Module) -> None:
        self._compare_shapes(parameter_shapes(model))

    def _compare_shapes(self, theirs: Mapping[str, tuple[int, ...]]) -> None:
        ours = self._draws.shapes
        for name in {**ours, **theirs}:
            if ours.get(name) != theirs.get(name):
                raise ValueError(
                    f"the model's parameter {name} has the shape {theirs.get(name)}, but the "
                    f"embedding was made for {ours.get(name)}, so gradients from before and after "
                    "cannot be compared; give the model all its outputs from the start, or give "
                    "the memory an embedding of a model of its own."
                )

    def state_dict(self) -> dict[str, Any]:
        measured = {key: _copied(getattr(self, name)) for key, name in self._MEASURED.items()}
        return self._draws.state_dict() | measured | self._options()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, value in self._options().items():
            if state.get(name) != value:
                raise ValueError(
                    f"the state was saved with {name}={state.get(name)!r}, this embedding has "
                    f"{name}={value!r}; make it with the same model and options before loading."
                )
        measured = {key: self._checked(state, key) for key in self._MEASURED}
        with plain_arithmetic():
            self._draws = self._draws.loaded(state)
        for key, value in measured.items():
            setattr(self, self._MEASURED[key], value)

    def _checked(self, state: Mapping[str, Any], key: str) -> Any:
        ours, found = getattr(self, self._MEASURED[key]), state.get(key, ...)
        shape = ours.shape if isinstance(ours, Tensor) else None
        if found is ... or getattr(found, "shape", None) != shape:
            raise ValueError(
                f"the state's {key} is missing or has another form than in this embedding; load a "
                "state that state_dict() of an embedding with the same options returned."
            )
        return _copied(found)

    def _options(self) -> dict[str, Any]:
        """Scalars that must agree between a state and the embedding that loads it."""
        parameters = sum(math.prod(shape) for shape in self._draws.shapes.values())
        return {
            "kind": type(self).__name__,
            "draws": len(self._draws),
            "parameters": parameters,
        }


def _check_batch_size(size: int | None) -> None:
    if size is None:
        return
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ValueError(f"batch_size must be an integer of at least 1, got {size!r}.")


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value
