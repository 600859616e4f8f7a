"""Ctrl-C anywhere in an update leaves the memory as it was, or as it is after the update."""

import sys

import pytest
import torch
from small_streams import dataset, mlp

from avalanche_gmc import GradientMatchingBuffer, LastLayerEmbedding

PLACES = 25


def lines_of(action, stop_at=None):
    """How many lines of the library an action runs; Ctrl-C comes at line `stop_at`."""
    count = 0

    def trace(frame, event, arg):
        nonlocal count
        if "avalanche_gmc" not in frame.f_code.co_filename:
            return None
        if event == "line":
            count += 1
            if count == stop_at:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


def contents(buffer):
    target = buffer.target
    return (
        [x.tolist() for x, *_ in buffer.buffer],
        buffer.weights.tolist(),
        None if target is None else target.tolist(),
        buffer.num_seen,
        buffer.max_size,
    )


def filled(parts):
    embedding = LastLayerEmbedding(mlp(middle=torch.nn.BatchNorm1d(8)), draws=2)
    buffer = GradientMatchingBuffer(36, embedding, target="balanced")
    for part in parts:
        buffer.update_from_dataset(part)
    return buffer


FIRST, SMALL = dataset([0, 1], 50), dataset([2, 3], 4)
ACTIONS = {
    "first update": ([], lambda b: b.update_from_dataset(FIRST)),
    "small update": ([FIRST], lambda b: b.update_from_dataset(SMALL)),
    "flush": ([FIRST, SMALL], lambda b: b.flush()),
    "resize": ([FIRST, SMALL], lambda b: b.resize(None, 9)),
}


@pytest.mark.parametrize(("parts", "act"), ACTIONS.values(), ids=ACTIONS)
def test_an_interrupt_at_any_line(parts, act):
    done = filled(parts)
    before = contents(done)
    total = lines_of(lambda: act(done))
    after = contents(done)
    places = sorted(
        {1 + k * (total - 1) // PLACES for k in range(PLACES)} | {*range(total - 9, total)}
    )
    for place in places:
        buffer = filled(parts)
        with pytest.raises(KeyboardInterrupt):
            lines_of(lambda buffer=buffer: act(buffer), place)
        assert contents(buffer) in (before, after)
        if contents(buffer) == before:
            act(buffer)
            assert contents(buffer) == after
