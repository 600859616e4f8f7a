"""New examples, embedded a chunk at a time.

Letters: N new examples, D dimensions.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from avalanche.benchmarks.utils import AvalancheDataset
from torch import Tensor

from avalanche_gmc.buffers.class_sums import ClassSums
from avalanche_gmc.buffers.memory import Stored, whole
from avalanche_gmc.buffers.several_ranks import embed_part, of_all_ranks
from avalanche_gmc.collectives import OneRank
from avalanche_gmc.dictionary import Dictionary
from avalanche_gmc.exemplars import Exemplars

CHUNK_BYTES = 2**29
"""Embeddings of new examples held at once if no chunk size is given: 512 MiB."""


@dataclass(frozen=True, eq=False)
class Chunk:
    """New examples: consecutive samples of a dataset.

    :param data: the dataset.
    :param first: the place of the first of the examples in it.
    :param embeddings: of the examples, split over the ranks.
    :param labels: N, int64: their classes.
    :param sums: of the embeddings.
    :param ranks: which all have the dataset.
    """

    data: AvalancheDataset
    first: int
    embeddings: Dictionary
    labels: Tensor
    sums: ClassSums
    ranks: OneRank

    def __len__(self) -> int:
        return len(self.labels)

    def exemplars(self, indices: Sequence[int]) -> Exemplars:
        """Copies of some of the examples."""
        return self.ranks.together(
            "copying exemplars",
            lambda: Exemplars.copy_of(self.data, [self.first + index for index in indices]),
            lambda copies: {"exemplars before their transforms": copies.digest()},
        )

    def stored(self) -> Stored:
        """Copies of all examples, each of which represents itself."""
        ones = torch.ones(len(self), dtype=torch.float64)
        return Stored(self.exemplars(range(len(self))), whole(self.embeddings), ones, self.labels)

    def concat(self, following: Chunk) -> Chunk:
        """This chunk and the one that follows it in the dataset, as one."""
        return replace(
            self,
            embeddings=self.embeddings.concat(following.embeddings),
            labels=torch.cat([self.labels, following.labels]),
            sums=self.sums.plus(following.sums),
        )


def chunks_of(
    data: AvalancheDataset, labels: Tensor, embedding: Any, ranks: OneRank, size: int | None
) -> Iterator[Chunk]:
    """The new examples in chunks of about equal size, embedded one after the other.

    :param labels: N, int64: the classes that the target tells apart.
    :param size: the most examples in a chunk; None takes as many as ``CHUNK_BYTES`` allow.
    """
    most = size or max(1, CHUNK_BYTES // (4 * embedding.dim))
    count = -(-len(data) // most)
    bounds = [len(data) * k // count for k in range(count + 1)]
    chunk: Chunk | None = None
    for first, last in itertools.pairwise(bounds):
        part = data if count == 1 else data.subset(list(range(first, last)))
        own = embed_part(part.eval(), embedding, ranks)
        sums = ClassSums.of(own, labels[first:last], ranks)
        atoms = of_all_ranks(own, ranks)
        new = Chunk(data, first, atoms, labels[first:last], sums, ranks)
        chunk = new if chunk is None else chunk.concat(new)
        # A structured dictionary takes far less than 4·D bytes for each example.
        full = size or chunk.embeddings.nbytes + atoms.nbytes > CHUNK_BYTES
        if full or last == len(data):
            yield chunk
            chunk = None
