"""Training on memories through the library's strategies, and the accuracy on a test set.

The memories of a grid are selected once and used by several trainings, so the strategies get them
from storage policies that play back what was selected. Everything else is the library's own path:
its plugins, its weighted loss, Avalanche's loop.

Shapes: N examples, n exemplars.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from avalanche.benchmarks.utils import AvalancheDataset
from avalanche.training.plugins import EvaluationPlugin, SupervisedPlugin
from avalanche.training.storage_policy import ExemplarsBuffer
from torch import Tensor, nn

from avalanche_gmc import CoresetGDumb, CoresetReplay
from avalanche_gmc.initialization import derive_seed, fresh_draws, seeded
from benchmarks.grid.idle_taps import drop_idle_taps
from benchmarks.grid.lean import Lean
from benchmarks.grid.published import gdumb_training
from benchmarks.grid.tiny_maps import multiply_tiny_maps
from benchmarks.streams.assembly import task_free

# Batches of about a megabyte: larger ones of images spend their time on fresh memory.
EVALUATION_NUMBERS = 2**18

FLOAT32, BFLOAT16 = "float32", "bf16"


def fast_precision() -> str:
    """What a convolutional network trains fastest in on this machine."""
    supported = getattr(torch.cpu, "_is_avx512_bf16_supported", None)  # since torch 2.5
    return BFLOAT16 if supported is not None and supported() else FLOAT32


def in_precision(precision: str) -> AbstractContextManager[None]:
    """A block whose matrix products and convolutions run in a precision."""
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == BFLOAT16)


@dataclass(frozen=True)
class Memory:
    """Exemplars at one moment of a stream: inputs n×…, labels n, weights n or ``None``."""

    inputs: Tensor
    labels: Tensor
    weights: Tensor | None
    residual: float | None

    def class_counts(self, num_classes: int) -> list[int]:
        """How many exemplars each class has."""
        counts: list[int] = torch.bincount(self.labels, minlength=num_classes).tolist()
        return counts

    def dataset(self) -> AvalancheDataset:
        """The exemplars as Avalanche data."""
        return task_free(self.inputs, self.labels.numpy())


@dataclass(frozen=True)
class Recipe:
    """How a model is trained: Adam without weight decay for a fixed number of epochs.

    :param memory_factor: with replay, how often the mean loss of the whole memory is added to that
        of the current data, with a new optimizer for each experience; see `Experiment`.
    :param published: the data of GDumb's own training instead, see :mod:`.published`.
    :param precision: of forward and backward passes; parameters and their updates are in float32.
    """

    make_model: Callable[[], nn.Module]
    epochs: int
    batch_size: int
    learning_rate: float
    seed: int
    weighted: bool = True
    memory_factor: float | None = None
    precision: str = FLOAT32
    published: str = ""

    def strategy_options(self, index: int, example: Tensor) -> dict[str, Any]:
        """Arguments that GDumb and replay share.

        :param index: tells the trainings of a run apart.
        :param example: what the model will be trained on, without a batch axis.
        """
        # The factory draws the model, because torchvision's ResNet initialises itself otherwise
        # than the reset_parameters() of its layers would.
        (model,) = fresh_draws(self.make_model, 1, derive_seed(self.seed, index))
        drop_idle_taps(model, example[None])
        multiply_tiny_maps(model)
        if self.published:
            training = gdumb_training(model, self.learning_rate, self.published)
        else:
            training = {"optimizer": adam(model, self.learning_rate), "plugins": []}
        return {
            "model": model,
            **training,
            "criterion": nn.CrossEntropyLoss(),
            "train_mb_size": self.batch_size,
            "train_epochs": self.epochs,
            "evaluator": EvaluationPlugin(),
        }


class InPrecision:
    """Makes the forward passes of a strategy run in the precision of a recipe."""

    precision = FLOAT32

    def forward(self) -> Tensor:
        """The outputs, in float32, so that the loss is."""
        with in_precision(self.precision):
            outputs: Tensor = super().forward()  # type: ignore[misc]
        return outputs.float()


class Stopwatch(SupervisedPlugin):
    """Seconds that a strategy spends on its memory: from this plugin's turn to the next event."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self._start = 0.0

    def after_train_dataset_adaptation(self, strategy: Any, **kwargs: Any) -> None:
        """GDumb updates its memory now."""
        self._start = time.perf_counter()

    def before_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """GDumb's memory is ready."""
        self.seconds += time.perf_counter() - self._start

    after_training_exp = after_train_dataset_adaptation  # the same for replay
    after_training = before_training_exp


class GDumb(Lean, InPrecision, CoresetGDumb):
    """GDumb in the precision of a recipe."""


class Replay(Lean, InPrecision, CoresetReplay):
    """Experience replay in the precision of a recipe."""


class PlayedBackBuffer(ExemplarsBuffer):
    """A storage policy that shows selected memories one after the other."""

    def __init__(self, max_size: int, memories: Sequence[Memory], *, weighted: bool) -> None:
        """:param memories: the memory after each update, in order."""
        super().__init__(max_size)
        self._memories = list(memories)
        self._weighted = weighted
        self.weights: Tensor | None = None

    def post_adapt(self, agent: Any, exp: Any) -> None:
        """Show the next memory."""
        memory = self._memories.pop(0)
        self.buffer = memory.dataset()
        self.weights = memory.weights if self._weighted else None

    def update(self, strategy: Any, **kwargs: Any) -> None:
        """The older name of :meth:`post_adapt`."""
        self.post_adapt(strategy, strategy.experience)

    def resize(self, strategy: Any, new_size: int) -> None:
        """Refused: what was selected is played back as it is."""
        raise NotImplementedError("a played-back memory has the size it was selected with")


def train(
    paradigm: str,
    recipe: Recipe,
    experiences: Sequence[Any],
    policy: ExemplarsBuffer,
    *,
    index: int = 0,
    plugins: Sequence[SupervisedPlugin] = (),
    after_each: Callable[[nn.Module], None] | None = None,
) -> nn.Module:
    """The model after a training through some experiences.

    :param paradigm: ``gdumb`` updates the memory, if need be by the model of the last training,
        then trains from scratch on nothing else; ``replay`` trains on experience and memory
        together, then updates the memory.
    :param index: tells the trainings of a run apart.
    :param after_each: called with the model after each experience.
    """
    options = recipe.strategy_options(index, experiences[0].dataset[0][0])
    options["plugins"] += plugins
    factor = recipe.memory_factor
    if paradigm == "gdumb":
        options["init"] = "same"
    elif factor is not None:
        # Loss and factor times loss, scaled to parts that add up to 1, which Adam does not notice.
        share = factor / (1 + factor)
        options |= {"memory_share": share, "batch_size_mem": policy.max_size}
    kind = GDumb if paradigm == "gdumb" else Replay
    strategy = kind(**options, mem_size=policy.max_size, storage_policy=policy)
    strategy.precision = recipe.precision
    with seeded(derive_seed(recipe.seed, index, 1)):
        for experience in experiences:
            if factor is not None:
                strategy.optimizer = adam(strategy.model, recipe.learning_rate)
            strategy.train(experience)
            if after_each is not None:
                after_each(strategy.model)
    model: nn.Module = strategy.model
    return model


def adam(model: nn.Module, learning_rate: float) -> torch.optim.Adam:
    """Adam with its default settings, in its fastest implementation for the device."""
    try:
        return torch.optim.Adam(model.parameters(), lr=learning_rate, fused=True)
    except RuntimeError:  # older releases of torch have no fused version for CPUs
        return torch.optim.Adam(model.parameters(), lr=learning_rate)


@torch.no_grad()
def accuracy(model: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    """Share of the N examples that the model classifies correctly."""
    was_training = model.training
    model.eval()
    correct, size = 0, max(1, EVALUATION_NUMBERS // inputs[0].numel())
    for first in range(0, len(labels), size):
        rows = slice(first, first + size)
        correct += int((model(inputs[rows]).argmax(1) == labels[rows]).sum())
    model.train(was_training)
    return correct / len(labels)
