"""An experience larger than memory is taken in by chunks, and only one chunk is held at a time."""

import gc

import pytest
import torch

from avalanche_gmc import DenseDictionary, GradientMatchingBuffer
from avalanche_gmc.embedding import GradientEmbedding
from benchmarks.speed.peak_memory import peak_memory
from benchmarks.streams.assembly import task_free

EXAMPLES, DIM = 16_000, 6_000


class Features(GradientEmbedding):
    """A cheap embedding of many dimensions: fixed random features of the inputs."""

    dim = DIM

    def __init__(self):
        self._matrix = torch.randn(8, DIM, generator=torch.Generator().manual_seed(0))

    def embed(self, inputs, targets=None):
        rows = torch.stack([inputs[index][0] for index in range(len(inputs))])
        return DenseDictionary((rows @ self._matrix).cos_())

    def check_model(self, model):
        pass

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def peak_of_update(chunk_size):
    """The most memory an update takes, as a fraction of the whole experience's embeddings."""
    inputs = torch.randn(EXAMPLES, 8, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(EXAMPLES) % 10
    data = task_free(inputs, labels.numpy())
    buffer = GradientMatchingBuffer(30, Features(), chunk_size=chunk_size, mode="fast")
    gc.collect()
    with peak_memory() as peak:
        buffer.update_from_dataset(data)
    assert buffer.num_seen == EXAMPLES
    assert len(buffer.buffer) == 30
    return peak[0] / (4 * EXAMPLES * DIM)


@pytest.mark.slow
def test_peak_memory_follows_the_chunk_and_not_the_experience(capsys):
    chunked, whole = peak_of_update(1_000), peak_of_update(EXAMPLES)
    with capsys.disabled():
        print(f"\npeak, in embeddings of the experience: {chunked:.2f} chunked, {whole:.2f} whole")
    assert whole > 1.0
    assert chunked < 0.5
