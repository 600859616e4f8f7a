"""What a draw or a gradient must not depend on: random state, autocast, inference mode."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def derive_seed(*keys: int) -> int:
    """A 63-bit seed that depends on all keys: neighbouring seeds must not share their draws."""
    digest = hashlib.sha256(repr(keys).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the generators of torch, NumPy and Python inside the block; restore them after it."""
    python_state, numpy_state = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        try:
            torch.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed % 2**32)
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)


@contextmanager
def plain_arithmetic(device: torch.device | str = "cpu") -> Iterator[None]:
    """Switch off, inside the block, what the caller may have switched on: autocast and inference
    mode.

    :param device: where the block computes, besides the CPU.
    """
    with (
        torch.inference_mode(False),
        torch.autocast("cpu", enabled=False),
        torch.autocast(torch.device(device).type, enabled=False),
    ):
        yield
