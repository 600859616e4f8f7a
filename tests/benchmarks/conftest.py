"""What several tests of the benchmarks use."""

import numpy as np
import pytest

from benchmarks.data import arrays
from benchmarks.data.arrays import Images
from benchmarks.streams.opening import open_stream


@pytest.fixture
def mnist(monkeypatch):
    """Random images in place of MNIST; the first pixel counts the images."""
    draw = np.random.default_rng(0)

    def part(count):
        pixels = draw.integers(0, 256, size=(count, 1, 28, 28), dtype=np.uint8)
        pixels[:, 0, 0, 0], pixels[:, 0, 0, 1] = np.arange(count) % 256, np.arange(count) // 256
        return pixels, draw.permutation(np.arange(count) % 10)

    made = Images(part(12_000), part(200))
    monkeypatch.setattr(arrays, "mnist", lambda root: made)
    open_stream.cache_clear()
    yield made
    open_stream.cache_clear()
