"""The bar that shows how far an embedding is."""

import io
import sys

import pytest
import torch
from small_streams import dataset, mlp
from tqdm import tqdm

from avalanche_gmc import GradientMatchingBuffer, LastLayerEmbedding
from avalanche_gmc.buffers import progress
from avalanche_gmc.pursuit import progress as pursuit_progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("terminal", [True, False])
def test_a_bar_on_terminals_and_a_log_elsewhere_change_nothing(monkeypatch, caplog, terminal):
    def memory():
        buffer = GradientMatchingBuffer(5, LastLayerEmbedding(mlp(middle=torch.nn.BatchNorm1d(8))))
        buffer.update_from_dataset(dataset([0, 1], 40))
        return [x.tolist() for x, *_ in buffer.buffer], buffer.target.tolist()

    quiet = memory()
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(pursuit_progress, "DELAY", 0)
    monkeypatch.setattr(pursuit_progress, "LOG_INTERVAL", 0)
    with caplog.at_level("INFO", "avalanche_gmc"):
        assert memory() == quiet
    assert ("embedding" in stream.getvalue()) == terminal
    lines = [record.getMessage() for record in caplog.records]
    assert any(line.startswith("embedding: 40 of 40 in ") for line in lines) != terminal
    assert any(line.startswith("picking: 5 of 5 in ") for line in lines) != terminal


def test_a_bar_in_notebooks(monkeypatch):
    made = []

    class NotebookBar(tqdm):
        def __init__(self, **options):
            made.append(options)
            super().__init__(**options | {"file": io.StringIO()})

    monkeypatch.setattr(pursuit_progress, "auto_tqdm", NotebookBar)
    buffer = GradientMatchingBuffer(5, LastLayerEmbedding(mlp()))
    buffer.update_from_dataset(dataset([0, 1], 40))
    assert [bar["desc"] for bar in made] == ["embedding", "picking"]
    assert not any(bar.get("disable") for bar in made)


def test_items_count_once_in_order():
    data = dataset([0, 1], 12)
    with tqdm(total=12, file=io.StringIO()) as bar:
        counted = progress.Counted(data, bar)
        for index in (0, 6, 11, *range(12)):
            torch.testing.assert_close(counted[index][0], data[index][0])
        assert bar.n == len(counted) == 12
