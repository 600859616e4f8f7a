"""What all embeddings share: the draws, their calibration, one pass over the data, the state.

Letters: N examples, S draws, K outputs, D dimensions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from avalanche_gmc.dictionary import Dictionary
from avalanche_gmc.embedding.calibration import calibrate_batch_norm, refuse_batch_statistics
from avalanche_gmc.embedding.examples import Examples, MapDataset
from avalanche_gmc.embedding.forward import ordinary, parameter_like, prepare, run_model
from avalanche_gmc.embedding.losses import ExampleLoss, Loss
from avalanche_gmc.initialization import (
    ModelOrFactory,
    fresh_draws,
    named_tensors,
    plain_arithmetic,
)

CALIBRATION_EXAMPLES = 256
"""How many examples of the first data calibrate an embedding, in one forward pass."""

LARGEST = 1e15
"""Norm of a gradient up to which squares, and sums of many squares, are finite in float32."""

Store = TypeVar("Store")


class BatchSizes(NamedTuple):
    """Examples per pass, where the user does not say: what was fastest on two cores."""

    vectors: int
    others: int  # images and the like, whose activations are large


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
    :param batch_size: examples per pass; it bounds the memory and changes nothing else.
    :param usual: the sizes if ``batch_size`` is None.
    :param seed: of the draws (and projections).
    """

    _MEASURED: ClassVar[dict[str, str]] = {"seed": "seed", "num_outputs": "_num_outputs"}
    # What a state has besides the draws, and the attributes that hold it.

    def __init__(
        self,
        model: ModelOrFactory,
        *,
        draws: int,
        loss: Loss | None,
        batch_size: int | None,
        usual: BatchSizes,
        seed: int,
    ) -> None:
        _check_batch_size(batch_size)
        self.batch_size = batch_size
        self._usual = usual
        self.seed = seed
        self._loss = ExampleLoss(loss)
        self._num_outputs: int | None = None
        with plain_arithmetic():
            self._draws = [_frozen(draw) for draw in fresh_draws(model, draws, seed)]

    def calibrate(self, inputs: Tensor | MapDataset, targets: Tensor | None = None) -> None:
        examples = Examples(inputs, targets)
        if len(examples) and self._num_outputs is None:
            with plain_arithmetic(parameter_like(self._draws[0]).device):
                x, y = self._read(examples, examples.spread(CALIBRATION_EXAMPLES))
                self._num_outputs = self._calibrate(x, y)

    def embed(self, inputs: Tensor | MapDataset, targets: Tensor | None = None) -> Dictionary:
        examples = Examples(inputs, targets)
        self.calibrate(inputs, targets)
        with plain_arithmetic(parameter_like(self._draws[0]).device):
            store = self._allocate(len(examples))
            for rows in examples.batches(self.batch_size_for(examples)):
                x, y = self._read(examples, rows)
                self._loss.check_targets(y, self._num_outputs or 0, first=rows.start)
                for draw in range(len(self._draws)):
                    self._fill(store, rows, draw, x, y)
            return self._dictionary(store)

    def batch_size_for(self, examples: Examples) -> int:
        """How many of these examples make a batch."""
        if self.batch_size is not None:
            return self.batch_size
        return self._usual.vectors if examples.are_vectors else self._usual.others

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
        for draw in self._draws:
            calibrate_batch_norm(draw, inputs)
        return num_outputs

    def _read(self, examples: Examples, where: slice | list[int]) -> tuple[Tensor, Tensor]:
        inputs, targets = examples.read(where)
        like = parameter_like(self._draws[0])
        dtype = like.dtype if targets.is_floating_point() else torch.int64
        return prepare(inputs, like), ordinary(targets.to(like.device, dtype))

    def check_model(self, model: nn.Module) -> None:
        ours, theirs = _shapes(self._draws[0]), _shapes(model)
        for name in ours | theirs:
            if ours.get(name) != theirs.get(name):
                raise ValueError(
                    f"the model's parameter {name} has the shape {theirs.get(name)}, but the "
                    f"embedding was made for {ours.get(name)}, so gradients from before and after "
                    "cannot be compared; give the model all its outputs from the start, or give "
                    "the memory an embedding of a model of its own."
                )

    def state_dict(self) -> dict[str, Any]:
        state = {f"draws.{key}": tensor.clone() for key, tensor in self._draw_tensors()}
        measured = {key: _copied(getattr(self, name)) for key, name in self._MEASURED.items()}
        return state | measured | self._options()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, value in self._options().items():
            if state.get(name) != value:
                raise ValueError(
                    f"the state was saved with {name}={state.get(name)!r}, this embedding has "
                    f"{name}={value!r}; make it with the same options before loading."
                )
        tensors = dict(self._draw_tensors())
        for key, tensor in tensors.items():
            found = state.get(f"draws.{key}")
            if not isinstance(found, Tensor) or found.shape != tensor.shape:
                raise ValueError(
                    f"the state has no tensor draws.{key} of shape {tuple(tensor.shape)}; make the "
                    "embedding with the same model and number of draws before loading."
                )
        measured = {key: self._checked(state, key) for key in self._MEASURED}
        for key, tensor in tensors.items():
            tensor.copy_(state[f"draws.{key}"])
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
        return {"kind": type(self).__name__, "draws": len(self._draws)}

    def _draw_tensors(self) -> Iterator[tuple[str, Tensor]]:
        for position, draw in enumerate(self._draws):
            for name, tensor in draw.state_dict().items():
                yield f"{position}.{name}", tensor


def require_moderate(values: Tensor, draw: int, first: int = 0) -> None:
    """Name the first example whose gradient is not finite, or has no finite square.

    :param values: N×..., one row per example.
    :param draw: where the gradients were taken.
    :param first: position of the first of these examples in the data.
    """
    # One norm costs less than a test of every number.
    if not torch.linalg.vector_norm(values) < LARGEST:
        rows = torch.linalg.vector_norm(values.flatten(1), dim=1)
        for example in (~(rows < LARGEST)).nonzero().flatten().tolist():
            raise ValueError(
                f"the gradient of example {first + example} at draw {draw} is not finite or larger "
                f"than {LARGEST:g}; look for NaN, infinite or huge values in that input or its "
                "target, or scale the inputs."
            )


def _check_batch_size(size: int | None) -> None:
    if size is None:
        return
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ValueError(f"batch_size must be an integer of at least 1, got {size!r}.")


def _frozen(model: nn.Module) -> nn.Module:
    refuse_batch_statistics(model)
    # Convolutions and pooling are faster channels last on CPUs.
    return model.eval().to(memory_format=torch.channels_last)


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def _shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    tensors = named_tensors(model).items()
    return {n: tuple(t.shape) for n, t in tensors if isinstance(t, nn.Parameter)}
