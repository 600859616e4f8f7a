"""From arrays to Avalanche data sets and benchmarks.

Samples are ``(x, y, task label 0)``: buffers that balance classes or experiences rely on the label
being there.

Shapes: N examples.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from avalanche.benchmarks import (
    CLScenario,
    benchmark_from_datasets,
    with_classes_timeline,
    with_task_labels,
)
from avalanche.benchmarks.utils import AvalancheDataset
from avalanche.benchmarks.utils.classification_dataset import ClassificationDataset
from avalanche.benchmarks.utils.data_attribute import DataAttribute, TaskLabels
from avalanche.benchmarks.utils.flat_data import ConstantSequence
from torch import Tensor
from torch.utils.data import TensorDataset

from benchmarks import UsageError
from benchmarks.data.arrays import Labels

# The split and the subsample belong to the benchmark, not to a run: they never follow its seed.
SPLIT_SEED = 0


def subsample(count: int, fraction: float) -> Labels:
    """Sorted positions of a fixed uniform subsample."""
    if not 0 < fraction <= 1:
        raise UsageError(f"the train fraction must lie in (0, 1] but is {fraction}")
    order = np.random.default_rng(SPLIT_SEED + 2).permutation(count)
    return np.sort(order[: max(1, round(fraction * count))])


def by_class(
    inputs: Tensor, labels: Labels, classes: Sequence[Sequence[int]]
) -> list[AvalancheDataset]:
    """One data set per group of classes, in the source's order."""
    groups = [np.flatnonzero(np.isin(labels, group)) for group in classes]
    for group, rows in zip(classes, groups, strict=True):
        if not len(rows):
            raise UsageError(
                f"no example of the classes {', '.join(map(str, group))} is left: "
                "take a larger --train-fraction"
            )
    return [task_free(inputs[rows], labels[rows]) for rows in groups]


def assemble(**streams: Sequence[AvalancheDataset]) -> CLScenario:
    """An Avalanche benchmark with task labels and the timeline of classes attached."""
    return with_task_labels(with_classes_timeline(benchmark_from_datasets(**streams)))


def task_free(inputs: Tensor, labels: Labels) -> AvalancheDataset:
    """An AvalancheDataset in memory, ready for a model, whose samples carry the task label 0.

    :param inputs: N×… float32.
    :param labels: N.
    """
    attributes = [
        DataAttribute(labels.tolist(), "targets"),
        TaskLabels(ConstantSequence(0, len(labels))),
    ]
    samples = TensorDataset(inputs, torch.from_numpy(labels))
    return ClassificationDataset([samples], data_attributes=attributes)


def with_wrong_labels(
    benchmark: CLScenario, share: float, classes: Labels | None, seed: int
) -> tuple[CLScenario, frozenset[bytes]]:
    """The benchmark with random other labels for a share of the training examples.

    :param classes: what a wrong label may be; ``None`` takes those of the same experience.
    :returns: the benchmark, and the inputs with wrong labels as bytes.
    """
    if not share:
        return benchmark, frozenset()
    draw, train = np.random.default_rng(seed), []
    wrong_inputs: set[bytes] = set()
    for experience in benchmark.train_stream:
        inputs, labels = (part.numpy() for part in stacked([experience]))
        wrong = draw.random(len(labels)) < share
        among = np.unique(labels) if classes is None else classes
        places = np.searchsorted(among, labels) + wrong * draw.integers(1, len(among), len(labels))
        train.append(task_free(torch.from_numpy(inputs), among[places % len(among)]))
        wrong_inputs.update(row.tobytes() for row in inputs[wrong])
    test = [experience.dataset for experience in benchmark.test_stream]
    return assemble(train=train, test=test), frozenset(wrong_inputs)


def stacked(stream: Sequence[object]) -> tuple[Tensor, Tensor]:
    """All samples of a stream as tensors: inputs N×… and labels N (int64)."""
    inputs, labels = [], []
    for experience in stream:
        for sample in experience.dataset:  # type: ignore[attr-defined]
            inputs.append(sample[0])
            labels.append(int(sample[1]))
    return torch.stack(inputs), torch.tensor(labels)
