"""Seeded random projections of per-example gradients: dense ±1, and sparse.

Letters: N examples, P parameters of the model, p of one block of them, d dimensions.

Both are linear maps Φ: P → d with E[<Φx, Φy>] = <x, y>, applied block by block and added up, so
neither a P×d matrix nor an N×P matrix ever exists. All signs and buckets are drawn on the CPU from
(seed, draw, block) whenever they are needed: there is nothing to store, and every process and
device sees the same numbers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from avalanche_gmc.embedding.layers import Block
from avalanche_gmc.initialization import derive_seed

CHUNK_ENTRIES = 2**19
"""Entries of the dense matrix that exist at once: 2 MiB of float32, about one core's cache."""


class Projection(ABC):
    """A random linear map from the parameters of one draw to d dimensions.

    :param dim: d.
    :param seed: the embedding's seed.
    :param draw: which draw; different draws get independent projections.
    """

    def __init__(self, dim: int, *, seed: int, draw: int) -> None:
        self.dim = dim
        self._keys = (seed, draw)

    @abstractmethod
    def add(self, out: Tensor, block: Block, number: int) -> None:
        """Add the projection of one block's gradients to ``out``.

        :param out: N×d, changed in place.
        :param block: N×p.
        :param number: the block's; the same one must always come with the same p.
        """

    def _generator(self, number: int) -> torch.Generator:
        return torch.Generator().manual_seed(derive_seed(*self._keys, number))


class SparseProjection(Projection):
    """One random sign and one random bucket per parameter: P additions per example.

    Buckets come in runs: d neighbouring parameters go to d neighbouring buckets (cyclically),
    starting at a random one. Two parameters still meet with probability at most 1/d, which is all
    that the variance of a count sketch asks for, and additions become contiguous.
    """

    def add(self, out: Tensor, block: Block, number: int) -> None:
        generator, gradients = self._generator(number), block.gradients
        size, kept = block.columns or (gradients.shape[1], (slice(0, gradients.shape[1]),))
        signs = random_signs(size, generator).to(gradients)
        starts = torch.randint(self.dim, (math.ceil(size / self.dim),), generator=generator)
        start_of, there = starts.tolist(), 0
        for columns in kept:
            for a, b, bucket in self._runs(columns, start_of):
                some = gradients[:, there : there + b - a]
                out[:, bucket : bucket + b - a].addcmul_(some, signs[a:b])
                there += b - a

    def _runs(self, columns: slice, start_of: list[int]) -> Iterator[tuple[int, int, int]]:
        """Parameters a to b, which go to neighbouring buckets, and the first bucket."""
        a = columns.start
        while a < columns.stop:
            run, offset = divmod(a, self.dim)
            bucket = (start_of[run] + offset) % self.dim
            b = min(columns.stop, (run + 1) * self.dim, a + self.dim - bucket)
            yield a, b, bucket
            a = b


class RademacherProjection(Projection):
    """The paper's projection on d vectors of independent ±1, scaled by 1/sqrt(d)."""

    def add(self, out: Tensor, block: Block, number: int) -> None:
        generator, gradients = self._generator(number), block.whole()
        alpha = 1 / math.sqrt(self.dim)
        rows = max(1, CHUNK_ENTRIES // self.dim)
        for a in range(0, gradients.shape[1], rows):
            some = gradients[:, a : a + rows]
            signs = random_signs(some.shape[1] * self.dim, generator).view(-1, self.dim)
            out.addmm_(some, signs.to(some), alpha=alpha)


PROJECTIONS: dict[str, type[Projection]] = {
    "sparse": SparseProjection,
    "rademacher": RademacherProjection,
}


def random_signs(count: int, generator: torch.Generator) -> Tensor:
    """Independent ±1, one random bit each: float32."""
    words = torch.empty(math.ceil(count / 64), dtype=torch.int64)
    # A lower bound without an upper one asks for all 64 bits; the default leaves the sign bit out.
    words.random_(torch.iinfo(torch.int64).min, None, generator=generator)
    shifts = torch.arange(32, dtype=torch.int32).unsqueeze(1)
    bits = words.view(torch.int32) << shifts
    # The top bit becomes the sign of the floating-point number 1.0.
    bits.bitwise_and_(-(2**31)).bitwise_or_(0x3F800000)
    return bits.view(torch.float32).view(-1)[:count]
