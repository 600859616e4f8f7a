"""One memory on several ranks: who embeds what.

In Avalanche's distributed training every rank has the whole of each experience. Embedding it is the
costly part, so each rank embeds a part; exemplars are then copied by each rank from its own data.
"""

from __future__ import annotations

from typing import Any

from avalanche.benchmarks.utils import AvalancheDataset
from avalanche.distributed import DistributedHelper

from avalanche_gmc.buffers.progress import Counted
from avalanche_gmc.collectives import OneRank, Ranks
from avalanche_gmc.dictionary import Dictionary
from avalanche_gmc.dictionary.sharded import ShardedDictionary
from avalanche_gmc.exemplars import Exemplars
from avalanche_gmc.pursuit.progress import make_bar

COMPARED_EXAMPLES = 64
"""How many of the new examples the ranks compare before they embed them, evenly spaced."""


def running_ranks() -> OneRank:
    """The ranks of this run."""
    return Ranks() if DistributedHelper.world_size > 1 else OneRank()


def compared_examples(data: AvalancheDataset) -> str:
    """A digest of some examples, before Avalanche's transforms, which may be random."""
    count = min(COMPARED_EXAMPLES, len(data))
    return Exemplars.copy_of(data, (k * len(data) // count for k in range(count))).digest()


def embed_part(data: AvalancheDataset, embedding: Any, ranks: OneRank) -> Dictionary:
    """The embeddings of this rank's part of a dataset, in its order; rank 0 shows how far it is.

    :param data: at least one example, in the transform group to embed with.
    """
    part = data
    if ranks.size > 1:
        calibrate = getattr(embedding, "calibrate", None)
        if calibrate is not None:
            # On the data that one process would take, not on this rank's part of it.
            calibrate(data)
        part = data.subset(list(ranks.part(len(data))))
    try:
        shown = None if ranks.rank == 0 else False
        with make_bar(len(part), "embedding", "example", shown) as bar:
            dictionary: Dictionary = embedding.embed(part if bar.disable else Counted(part, bar))
    except ValueError as error:
        first = ranks.part(len(data)).start
        if first == 0:
            raise
        raise ValueError(f"{error} (This rank counts from example {first}.)") from error
    return dictionary


def of_all_ranks(own: Dictionary, ranks: OneRank) -> Dictionary:
    """One dictionary of the atoms that the ranks have, each its own."""
    return ShardedDictionary(own, ranks) if isinstance(ranks, Ranks) else own


def split(dictionary: Dictionary, ranks: OneRank) -> Dictionary:
    """The atoms of a dictionary that every rank has; on several ranks, each holds a part."""
    return ShardedDictionary.split(dictionary, ranks) if isinstance(ranks, Ranks) else dictionary
