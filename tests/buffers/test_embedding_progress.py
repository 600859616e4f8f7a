"""The bar that shows how far an embedding is."""

import io
import sys

import pytest
import torch
from small_streams import dataset, mlp
from tqdm import tqdm

from avalanche_gmc import GradientMatchingBuffer, LastLayerEmbedding
from avalanche_gmc.buffers import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("terminal", [True, False])
def test_a_bar_on_terminals_that_changes_nothing(monkeypatch, terminal):
    def memory():
        buffer = GradientMatchingBuffer(5, LastLayerEmbedding(mlp(middle=torch.nn.BatchNorm1d(8))))
        buffer.update_from_dataset(dataset([0, 1], 40))
        return [x.tolist() for x, *_ in buffer.buffer], buffer.target.tolist()

    quiet = memory()
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "DELAY", 0)
    assert memory() == quiet
    assert ("embedding" in stream.getvalue()) == terminal


def test_items_count_once_in_order():
    data = dataset([0, 1], 12)
    with tqdm(total=12, file=io.StringIO()) as bar:
        counted = progress.Counted(data, bar)
        for index in (0, 6, 11, *range(12)):
            torch.testing.assert_close(counted[index][0], data[index][0])
        assert bar.n == len(counted) == 12
