"""The streams by name: what each is called, learnt with and made of; no torch in here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks import UsageError


@dataclass(frozen=True)
class StreamInfo:
    """What is known of a stream without opening it.

    :param title: over its panel and table.
    :param model: ``mlp``, ``cnn`` or ``resnet18``, as in the paper, or another of the models.
    :param data: the data set it is made of.
    :param order: ``classes`` (some new ones in each experience), ``sorted`` by a feature, ``iid``
        or ``source`` (as the rows come).
    :param class_names: of images, separated by spaces.
    :param classes: their number; 0 if it is not known before the stream is opened.
    :param seeded: whether its examples, or their wrong labels, are drawn anew for each seed.
    :param wrong_labels: the share of training examples with a wrong label, of any class.
    :param confused: whether wrong labels are of the classes of the same experience only.
    """

    title: str
    model: str
    data: str
    order: str
    class_names: str = ""
    classes: int = 10
    seeded: bool = False
    wrong_labels: float = 0.0
    confused: bool = False


DIGITS = "0 1 2 3 4 5 6 7 8 9"
CLOTHES = "T-shirt Trouser Pullover Dress Coat Sandal Shirt Sneaker Bag Boot"
OBJECTS = "airplane car bird cat deer dog frog horse ship truck"

STREAMS = {
    "sorted-covertype": StreamInfo("Covertype, sorted", "mlp", "covertype", "sorted", classes=7),
    "sorted-electricity": StreamInfo(
        "Electricity, sorted", "mlp", "electricity", "sorted", classes=2
    ),
    "split-fashion-mnist": StreamInfo(
        "Split Fashion-MNIST", "cnn", "fashion-mnist", "classes", CLOTHES
    ),
    "split-cifar10": StreamInfo("Split CIFAR-10", "resnet18", "cifar10", "classes", OBJECTS),
    "imbalanced-mnist": StreamInfo(
        "Imbalanced Split-MNIST", "dropout-cnn", "mnist", "classes", DIGITS
    ),
    "split-mnist": StreamInfo(
        "Split-MNIST, MLP-100", "mlp-100", "mnist", "classes", DIGITS, seeded=True
    ),
    "split-mnist-400": StreamInfo(
        "Split-MNIST, MLP-400", "mlp-400", "mnist", "classes", DIGITS, seeded=True
    ),
    "split-cifar10-gdumb": StreamInfo(
        "Split CIFAR-10, ResNet-18 for small images",
        *("small-resnet18", "cifar10", "classes", OBJECTS),
        seeded=True,
    ),
    "noisy-fashion-mnist": StreamInfo(
        "Split Fashion-MNIST, 20 % wrong labels",
        *("cnn", "fashion-mnist", "classes", CLOTHES),
        seeded=True,
        wrong_labels=0.2,
    ),
    "noisy-digits": StreamInfo(
        "Digits, 20 % wrong labels",
        *("mlp", "digits", "classes", DIGITS),
        seeded=True,
        wrong_labels=0.2,
    ),
    "confused-digits": StreamInfo(
        "Digits, 20 % confused with the other new class",
        *("mlp", "digits", "classes", DIGITS),
        seeded=True,
        wrong_labels=0.2,
        confused=True,
    ),
    "iid-covertype": StreamInfo("Covertype, iid", "mlp", "covertype", "iid", classes=7),
    "iid-electricity": StreamInfo("Electricity, iid", "mlp", "electricity", "iid", classes=2),
    "digits": StreamInfo("Digits, two new classes at a time", "mlp", "digits", "classes", DIGITS),
    "sorted-digits": StreamInfo("Digits, sorted by one pixel", "mlp", "digits", "sorted", DIGITS),
    "iid-digits": StreamInfo("Digits, iid", "mlp", "digits", "iid"),
}
LAST_FEATURES = {"mlp": 128, "cnn": 64, "resnet18": 512, "small-resnet18": 512}
LAST_FEATURES |= {"dropout-cnn": 128, "mlp-100": 100, "mlp-400": 400}
"""Inputs of each model's last layer."""
# A table of the user's own: csv:<path>?target=<column>&sort-by=<column>
CSV_PREFIX = "csv:"
BUNDLED = ("digits", "")
"""Data that nobody has to fetch."""


def stream_info(name: str) -> StreamInfo:
    """What is known of a stream, a table of the user's own among them."""
    if name.startswith(CSV_PREFIX):
        return StreamInfo(name, "mlp", "", "source", classes=0)
    if name not in STREAMS:
        raise UsageError(f"unknown stream {name!r}: choose from {', '.join(STREAMS)}")
    return STREAMS[name]


def last_layer_dim(name: str) -> int:
    """Parameters of the last layer of a stream's model, weights and biases."""
    info = stream_info(name)
    if not info.classes:
        raise UsageError(f"the classes of {name} are not known before it is opened")
    return info.classes * (LAST_FEATURES[info.model] + 1)


def title_of(name: str) -> str:
    """The title of a stream; rows may name streams that this version does not know."""
    return STREAMS[name].title if name in STREAMS else name


def datasets_of(streams: Sequence[str]) -> list[str]:
    """The data sets to fetch for some streams, each once."""
    names = dict.fromkeys(stream_info(stream).data for stream in streams)
    return [name for name in names if name not in BUNDLED]
