"""Pending examples join the memory where the stream is known to end."""

from types import SimpleNamespace

import pytest
from avalanche.benchmarks import split_online_stream
from avalanche.training.plugins import ReplayPlugin
from small_streams import class_incremental, dataset, mlp, naive, stream_of, task_free

from avalanche_gmc import GradientMatchingBuffer
from avalanche_gmc.buffers.stream_end import Pieces


def ends(stream):
    pieces, found = Pieces(), []
    for experience in stream:
        pieces = pieces.after(experience)
        found.append(pieces.ends_with(experience))
    return found


@pytest.mark.parametrize("size", [10, 7], ids=["even pieces", "uneven pieces"])
@pytest.mark.parametrize("drop_last", [False, True])
def test_the_last_piece_of_an_online_stream(size, drop_last):
    stream = split_online_stream(class_incremental(20), size, drop_last=drop_last)
    found = ends(stream)
    assert found == [False] * (len(found) - 1) + [True]


def test_the_last_piece_of_each_experience_where_boundaries_may_be_known():
    stream = split_online_stream(class_incremental(20), 10, access_task_boundaries=True)
    assert ends(stream) == [False, True] * 3


def test_the_last_experience_of_other_streams():
    assert ends(class_incremental()) == ends(task_free()) == [False, False, True]
    assert ends([SimpleNamespace(dataset=dataset([0], 4))] * 2) == [False, False]


def test_nothing_is_pending_after_an_online_stream():
    def pending_after(*, pieces):
        plugin = ReplayPlugin(40, storage_policy=GradientMatchingBuffer(40))
        strategy = naive(mlp(), plugin, train_epochs=1)
        experiences = stream_of(*(dataset([t, t + 1], 33, seed=t) for t in range(3)))
        for piece in list(split_online_stream(experiences, 5))[:pieces]:
            strategy.train(piece)
        return plugin.storage_policy, len(plugin.storage_policy._memory.pending)

    assert pending_after(pieces=19)[1] > 0
    buffer, pending = pending_after(pieces=None)
    assert pending == 0
    assert buffer.num_seen == 99
    assert len(buffer.buffer) == 40
