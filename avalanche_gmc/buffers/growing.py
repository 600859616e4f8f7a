"""Memories of models whose heads grow.

Letters: D dimensions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from avalanche.benchmarks.utils import AvalancheDataset

from avalanche_gmc.buffers.class_sums import ClassSums
from avalanche_gmc.buffers.memory import Memory, Stored
from avalanche_gmc.dictionary import LastLayerDictionary
from avalanche_gmc.embedding import GrowingHeadEmbedding


def grown_for(data: AvalancheDataset, embedding: Any) -> Any:
    """The embedding that knows all classes of the new examples, before any of them is embedded."""
    return embedding.grown(data) if isinstance(embedding, GrowingHeadEmbedding) else embedding


def extended(memory: Memory, embedding: Any) -> Memory:
    """The memory in the dimensions that the embedding has now: 0 at units that are new."""
    if not isinstance(embedding, GrowingHeadEmbedding):
        return memory
    sums = {label: embedding.extended(summed) for label, summed in memory.seen.sums.items()}
    return replace(
        memory,
        picked=_extended(memory.picked, embedding.num_units),
        pending=_extended(memory.pending, embedding.num_units),
        seen=ClassSums(memory.seen.counts, sums),
    )


def _extended(stored: Stored, num_units: int) -> Stored:
    if not isinstance(stored.embeddings, LastLayerDictionary):
        return stored
    return replace(stored, embeddings=stored.embeddings.with_outputs(num_units))
