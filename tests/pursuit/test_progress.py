"""Long selections say how far they are, and may be interrupted at any time."""

from __future__ import annotations

import copy
import io
import os
import signal
import sys
import threading
import time

import numpy as np
import pytest
import torch
from avalanche.benchmarks.utils import AvalancheDataset
from avalanche.benchmarks.utils.data_attribute import DataAttribute
from torch import nn
from torch.utils.data import TensorDataset
from tqdm import tqdm

from avalanche_gmc import (
    GradientMatchingBuffer,
    LastLayerEmbedding,
    RandomProjectionEmbedding,
    orthogonal_matching_pursuit,
)
from avalanche_gmc.embedding import last_layer
from avalanche_gmc.pursuit import progress
from avalanche_gmc.pursuit.gram_sweep import GramSweep
from avalanche_gmc.pursuit.triangle import Triangle

FEATURES = 6


class Terminal(io.StringIO):
    """A stderr that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def select(shown: bool | None, size: int = 40) -> None:
    atoms = torch.randn(200, 80, generator=torch.Generator().manual_seed(0))
    orthogonal_matching_pursuit(atoms, atoms.sum(dim=0), size, progress=shown)


@pytest.mark.parametrize(
    ("stream", "delay", "shown", "expected"),
    [
        (Terminal, 0.0, None, True),
        (Terminal, 60.0, None, False),
        (Terminal, 0.0, False, False),
        (io.StringIO, 0.0, None, False),
        (io.StringIO, 60.0, True, True),
    ],
    ids=["terminal", "quick selection", "turned off", "no terminal", "turned on"],
)
def test_a_bar_appears_where_it_should(stream, delay, shown, expected, monkeypatch):
    stderr = stream()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setattr(progress, "DELAY", delay)
    select(shown)
    assert ("picking" in stderr.getvalue()) is expected


def test_the_bar_counts_all_picks_and_gives_the_residual(monkeypatch):
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    select(shown=True)
    last = stderr.getvalue().rstrip("\r ").rpartition("\r")[2]
    assert "fitting weights" in last
    assert " 40/40 " in last
    assert "residual 0." in last


def dataset(size: int, number: int = 0) -> AvalancheDataset:
    generator = torch.Generator().manual_seed(number)
    inputs = torch.randn(size, FEATURES, generator=generator)
    labels = torch.randint(3, (size,), generator=generator)
    attributes = [DataAttribute(labels.tolist(), "targets")]
    return AvalancheDataset([TensorDataset(inputs, labels)], data_attributes=attributes)


def model() -> nn.Module:
    """With statistics that are measured on the first data."""
    return nn.Sequential(nn.Linear(FEATURES, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Linear(9, 3))


def embedding(kind: str) -> LastLayerEmbedding | RandomProjectionEmbedding:
    if kind == "last-layer":
        return LastLayerEmbedding(model, draws=2)
    return RandomProjectionEmbedding(model, draws=2, dim=40)


def contents(buffer: GradientMatchingBuffer) -> tuple[object, ...]:
    state = {k: v for k, v in buffer.state_dict()["embedding"].items() if not torch.is_tensor(v)}
    tensors = [v for v in buffer.state_dict()["embedding"].values() if torch.is_tensor(v)]
    samples = [[x.tolist(), int(y)] for x, y, *_ in buffer.buffer]
    target = None if buffer.target is None else buffer.target.tolist()
    numbers = (buffer.num_seen, buffer.residual_norm, buffer.max_size, buffer.weights.tolist())
    return samples, target, numbers, state, [tensor.tolist() for tensor in tensors]


def interrupt(monkeypatch, owner: object, name: str, after: int) -> None:
    """Make a function end like Ctrl-C, at its call number ``after``."""
    function, calls = getattr(owner, name), []

    def interrupted(*args, **kwargs):
        calls.append(1)
        if len(calls) == after:
            raise KeyboardInterrupt
        return function(*args, **kwargs)

    monkeypatch.setattr(owner, name, interrupted)


PLACES = {
    "while calibrating": (last_layer, "_producing_layer", 1),
    "while embedding the second chunk": (LastLayerEmbedding, "_dictionary", 2),
    "at the first pick": (GramSweep, "_take", 1),
    "between picks of the second chunk": (GramSweep, "_take", 35),
    "while the factor grows": (Triangle, "append", 1),
    "while the weights are solved for": (Triangle, "solve", 1),
}


# An embedding is calibrated once.
LATER = [place for place in PLACES if place != "while calibrating"]


@pytest.mark.parametrize(
    ("seen", "place"), [*((0, place) for place in PLACES), *((70, place) for place in LATER)]
)
def test_an_interrupted_update_leaves_everything_as_it_was(seen, place, monkeypatch):
    buffer = GradientMatchingBuffer(30, embedding("last-layer"), chunk_size=50)
    if seen:
        buffer.update_from_dataset(dataset(seen, number=1))
    twin, data = copy.deepcopy(buffer), dataset(160, number=2)
    before = contents(buffer)
    torch.manual_seed(3)
    np.random.seed(3)
    states = torch.get_rng_state(), np.random.get_state()[1].tolist()
    with monkeypatch.context() as patch:
        interrupt(patch, *PLACES[place])
        with pytest.raises(KeyboardInterrupt):
            buffer.update_from_dataset(data)
    assert contents(buffer) == before
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.random.get_state()[1].tolist() == states[1]
    for after in (buffer, twin):
        after.update_from_dataset(data)
    assert contents(buffer) == contents(twin)


@pytest.mark.parametrize("kind", ["last-layer", "random-projection"])
def test_what_an_interrupted_first_update_measured_is_forgotten(kind, monkeypatch):
    buffer = GradientMatchingBuffer(30, embedding(kind))
    twin = copy.deepcopy(buffer)
    with monkeypatch.context() as patch:
        interrupt(patch, GramSweep, "_take", 1)
        with pytest.raises(KeyboardInterrupt):
            buffer.update_from_dataset(dataset(90, number=4))
    for after in (buffer, twin):
        after.update_from_dataset(dataset(90, number=5))
    assert contents(buffer) == contents(twin)


def test_a_real_signal_in_the_middle_of_a_pursuit(monkeypatch):
    """The signal arrives while a pursuit is known to run; it goes on until it is interrupted."""
    buffer = GradientMatchingBuffer(60, embedding("last-layer"))
    buffer.update_from_dataset(dataset(100, number=1))
    before, running = contents(buffer), threading.Event()
    take = GramSweep._take

    def slow_take(self, *args):
        take(self, *args)
        running.set()
        time.sleep(0.2)

    def send() -> None:
        running.wait(timeout=30)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(GramSweep, "_take", slow_take)
    # A shell that starts the tests in the background has them ignore the signal.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    sender = threading.Thread(target=send)
    sender.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            for _ in range(100):
                buffer.update_from_dataset(dataset(400, number=2))
        sender.join()
    finally:
        signal.signal(signal.SIGINT, handler)
    assert contents(buffer) == before


def test_the_bar_of_an_interrupted_selection_is_closed(monkeypatch):
    bars = []

    class Recorded(tqdm):
        def __init__(self, **options):
            super().__init__(**options)
            bars.append(self)

    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(progress, "auto_tqdm", Recorded)
    interrupt(monkeypatch, GramSweep, "_take", 2)
    with pytest.raises(KeyboardInterrupt):
        select(shown=True)
    assert [bar.disable for bar in bars] == [True]
    assert bars[0] not in tqdm._instances
