"""From the stream's name in a cell to everything a measurement needs of it.

Shapes: N test examples, K classes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks import UsageError
from benchmarks.data.arrays import table_from_csv
from benchmarks.streams import assembly, images, models, tabular
from benchmarks.streams.registry import CSV_PREFIX, stream_info


@dataclass(frozen=True)
class Stream:
    """A stream with its test set N×…, its number of classes K and its model.

    :param test_sizes: of the parts of the test set whose accuracies are averaged; mostly one.
    :param wrong_inputs: the training inputs with wrong labels, as bytes.
    """

    benchmark: Any
    test_inputs: Tensor
    test_labels: Tensor
    test_sizes: list[int]
    num_classes: int
    make_model: Callable[[], nn.Module]
    wrong_inputs: frozenset[bytes] = frozenset()

    def share_of_wrong_labels(self, inputs: Tensor, weights: Tensor | None = None) -> float | None:
        """Of some training examples; ``None`` in a stream without wrong labels.

        :param weights: how much each of them counts; ``None``: all the same.
        """
        if not self.wrong_inputs:
            return None
        wrong = torch.tensor([row.tobytes() in self.wrong_inputs for row in inputs.numpy()])
        if weights is None:
            return float(wrong.float().mean())
        return float(weights[wrong].sum() / weights.sum())

    def class_counts(self) -> list[list[int]]:
        """Examples of each class in each training experience."""
        counts = []
        for experience in self.benchmark.train_stream:
            found = experience.dataset.targets.count
            counts.append([int(found.get(label, 0)) for label in range(self.num_classes)])
        return counts


def csv_stream_name(path: Path, target: str, sort_by: str | None) -> str:
    """The name under which a table of the user's own enters the grid.

    It has a checksum of the content: cells of the same file with other content are other cells.
    """
    columns = {"target": target, **({"sort-by": sort_by} if sort_by else {})}
    columns["sha256"] = hashlib.sha256(read_csv_bytes(path)).hexdigest()[:16]
    return f"{CSV_PREFIX}{quote(str(path.resolve()))}?{urlencode(columns)}"


def read_csv_bytes(path: Path) -> bytes:
    """The content of a table of the user's own."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror})") from error


# A worker runs one group after the other, mostly on the same stream.
@lru_cache(maxsize=1)
def open_stream(
    name: str, root: str | Path | None = None, train_fraction: float = 1.0, seed: int = 0
) -> Stream:
    """Load a stream, fetching its data if need be."""
    benchmark = build(name, root, train_fraction, seed)
    inputs, labels = assembly.stacked(benchmark.test_stream)
    trained = [label for e in benchmark.train_stream for label in e.dataset.targets.uniques]
    num_classes = 1 + max(int(label) for label in [*trained, int(labels.max())])
    info = stream_info(name)
    classes = None if info.confused else np.arange(num_classes)
    benchmark, wrong = assembly.with_wrong_labels(benchmark, info.wrong_labels, classes, seed)
    factories: dict[str, Callable[[], nn.Module]] = {
        "mlp": partial(models.mlp, inputs[0].numel(), num_classes),
        "mlp-100": partial(models.normalized_mlp, inputs[0].numel(), num_classes, 100),
        "mlp-400": partial(models.normalized_mlp, inputs[0].numel(), num_classes, 400),
        "cnn": lambda: models.channels_last(models.cnn(num_classes, inputs.shape[1])),
        "dropout-cnn": lambda: models.channels_last(models.dropout_cnn(num_classes)),
        "small-resnet18": lambda: models.channels_last(models.small_image_resnet18(num_classes)),
        "resnet18": lambda: models.channels_last(models.resnet18(num_classes)),
    }
    tasks = [len(e.dataset) for e in benchmark.test_stream]
    sizes = tasks if name == "imbalanced-mnist" else [len(labels)]
    model = factories[info.model]
    return Stream(benchmark, inputs, labels, sizes, num_classes, model, wrong)


def build(name: str, root: str | Path | None, train_fraction: float, seed: int = 0) -> Any:
    """The Avalanche benchmark of a stream's name."""
    if name.startswith(CSV_PREFIX):
        return build_csv(name, train_fraction)
    info = stream_info(name)
    if name == "imbalanced-mnist":
        return images.imbalanced_mnist(root, train_fraction)
    if info.data == "mnist":
        return images.split_mnist(root, train_fraction, seed)
    if info.data == "fashion-mnist":
        return images.split_fashion_mnist(root, train_fraction=train_fraction)
    if name == "split-cifar10-gdumb":
        return images.shuffled_cifar10(root, train_fraction, seed)
    if info.data == "cifar10":
        return images.split_cifar10(root, train_fraction=train_fraction)
    if info.order == "classes":
        return tabular.digits(train_fraction=train_fraction)
    if info.order == "iid":
        return tabular.iid_tabular(info.data, root=root, train_fraction=train_fraction)
    options = (
        {"feature": tabular.DIGITS_FEATURE, "n_experiences": 5} if info.data == "digits" else {}
    )
    return tabular.sorted_tabular(info.data, root=root, train_fraction=train_fraction, **options)


def build_csv(name: str, train_fraction: float) -> Any:
    """The benchmark of a user's own table."""
    text, _, query = name.removeprefix(CSV_PREFIX).partition("?")
    path, columns = Path(unquote(text)), dict(parse_qsl(query))
    content = read_csv_bytes(path)
    if not hashlib.sha256(content).hexdigest().startswith(columns["sha256"]):
        raise UsageError(f"{path} has changed since the run began: start it again")
    table = table_from_csv(content, columns["target"], name=str(path))
    if "sort-by" not in columns:
        return tabular.tabular(table, 10, train_fraction, order="source")
    return tabular.sorted_tabular(table, columns["sort-by"], train_fraction=train_fraction)
