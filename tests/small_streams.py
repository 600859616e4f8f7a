"""Small streams, models and a weighted memory for the tests of plugins and strategies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from avalanche.benchmarks import (
    benchmark_from_datasets,
    split_online_stream,
    with_classes_timeline,
    with_task_labels,
)
from avalanche.benchmarks.utils import AvalancheDataset, _make_taskaware_classification_dataset
from avalanche.training import Naive
from avalanche.training.plugins import SupervisedPlugin
from avalanche.training.storage_policy import ExemplarsBuffer
from torch import Tensor, nn
from torch.utils.data import TensorDataset

FEATURES = 6


def dataset(classes: Sequence[int], size: int, *, task: int = 0, seed: int = 0) -> AvalancheDataset:
    """Gaussian blobs, one per class, with task labels."""
    generator = torch.Generator().manual_seed(1000 * seed + 10 * task + sum(classes))
    targets = torch.tensor(classes)[torch.arange(size) % len(classes)]
    inputs = torch.randn(size, FEATURES, generator=generator)
    inputs[torch.arange(size), targets % FEATURES] += 3
    return _make_taskaware_classification_dataset(  # as the built-in benchmarks do
        TensorDataset(inputs, targets), targets=targets.tolist(), task_labels=task
    )


def stream_of(*datasets: AvalancheDataset) -> Any:
    """A train stream with class timeline and task labels."""
    benchmark = benchmark_from_datasets(train=list(datasets), test=list(datasets))
    return with_task_labels(with_classes_timeline(benchmark)).train_stream


def class_incremental(size: int = 20) -> Any:
    return stream_of(*(dataset([2 * t, 2 * t + 1], size, seed=t) for t in range(3)))


def repeating_classes(size: int = 20) -> Any:
    return stream_of(*(dataset(c, size, seed=t) for t, c in enumerate([[0, 1], [1, 2], [0, 2]])))


def task_free(size: int = 20) -> list[Any]:
    """Experiences that know neither classes nor tasks."""
    datasets = [dataset([0, 1, 2], size, seed=t) for t in range(3)]
    return list(benchmark_from_datasets(train=datasets).train_stream)


def online(size: int = 20, piece: int = 10) -> Any:
    return split_online_stream(class_incremental(size), piece, seed=1)


STREAMS: dict[str, Callable[[], Any]] = {
    "class-incremental": class_incremental,
    "repeating classes": repeating_classes,
    "task-free": task_free,
    "online": online,
}


def mlp(classes: int = 6, seed: int = 0, *, middle: nn.Module | None = None) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Linear(FEATURES, 8), middle or nn.Identity(), nn.ReLU(), nn.Linear(8, classes)
        )


def naive(model: nn.Module, *plugins: Any, **options: Any) -> Naive:
    """A silent Naive strategy with SGD and momentum."""
    optimizer = options.pop("optimizer", None)
    if optimizer is None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    defaults: dict[str, Any] = dict(
        criterion=nn.CrossEntropyLoss(), train_mb_size=7, train_epochs=2, evaluator=None
    )
    return Naive(model=model, optimizer=optimizer, plugins=list(plugins), **{**defaults, **options})


def run(plugin: Any, stream: Any, *others: Any, seed: int = 3, **options: Any) -> Tensor:
    """The parameters after a run over a stream, with the plugin after the others."""
    torch.manual_seed(seed)
    model = options.pop("model", None) or mlp()
    trained = train(naive(model, *others, plugin, **options), stream)
    assert trained is model
    return parameters(model)


def train(strategy: Any, stream: Any) -> nn.Module:
    """The model after a run over a stream."""
    for experience in stream:
        strategy.train(experience)
    model: nn.Module = strategy.model
    return model


class Recorder(SupervisedPlugin):
    """Keeps what `look(strategy)` says each time that a hook is called."""

    def __init__(self, hook: str, look: Callable[[Any], Any]) -> None:
        super().__init__()
        self.values: list[Any] = []
        self._look = look
        setattr(self, hook, self._record)

    def _record(self, strategy: Any, **kwargs: Any) -> None:
        self.values.append(self._look(strategy))


class StartRecorder(Recorder):
    """The same at the start of each training."""

    def __init__(self, look: Callable[[Any], Any]) -> None:
        super().__init__("before_training_epoch", look)

    def _record(self, strategy: Any, **kwargs: Any) -> None:
        if strategy.clock.train_exp_epochs == 0:
            super()._record(strategy)


def stacked(data: AvalancheDataset, size: int | None = None) -> tuple[Tensor, Tensor]:
    """The inputs and targets of the first examples, or of all."""
    rows = [data[i] for i in range(len(data) if size is None else size)]
    return torch.stack([row[0] for row in rows]), torch.tensor([int(row[1]) for row in rows])


def parameters(model: nn.Module) -> Tensor:
    """All parameters and buffers as one vector."""
    return torch.cat([t.detach().double().flatten() for t in model.state_dict().values()])


class FirstComeBuffer(ExemplarsBuffer):
    """Keeps the first examples, with weights by their position: a memory without chance."""

    def __init__(self, max_size: int, weigh: Callable[[int], Any] | None = None) -> None:
        super().__init__(max_size)
        self._weigh = weigh

    def post_adapt(self, agent: Any, exp: Any) -> None:
        room = self.max_size - len(self.buffer)
        if room > 0:
            new = exp.dataset.subset(list(range(min(room, len(exp.dataset)))))
            self.buffer = new if len(self.buffer) == 0 else self.buffer.concat(new)

    def resize(self, strategy: Any, new_size: int) -> None:
        self.max_size = new_size

    @property
    def weights(self) -> Any:
        if self._weigh is None:
            return None
        return torch.tensor([self._weigh(i) for i in range(len(self.buffer))])


def uneven(position: int) -> float:
    """Weights of many sizes, zeros among them."""
    return float((position * 7) % 5)
