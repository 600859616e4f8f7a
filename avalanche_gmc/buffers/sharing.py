"""One memory on several ranks: who embeds what, and how all learn of one's failure.

In Avalanche's distributed training every rank has the whole of each experience. Embedding it is the
costly part and is shared; exemplars are then copied by each rank from its own data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from avalanche.benchmarks.utils import AvalancheDataset
from avalanche.distributed import DistributedHelper

from avalanche_gmc.collectives import Ranks
from avalanche_gmc.dictionary import Dictionary
from avalanche_gmc.dictionary.sharded import ShardedDictionary


def running_ranks() -> Ranks | None:
    """The ranks of this run, None if there is only one."""
    return Ranks() if DistributedHelper.world_size > 1 else None


@contextmanager
def in_one_step(
    ranks: Ranks | None, step: str, facts: Callable[[], Mapping[str, object]]
) -> Iterator[None]:
    """Begin with the same facts on all ranks, and leave with success only if all do."""
    if ranks is None:
        yield
        return
    ranks.together(step, facts, lambda known: known)
    with ranks.in_step(step):
        yield


def embedded(data: AvalancheDataset, embedding: Any, ranks: Ranks | None) -> Dictionary:
    """The embeddings of a dataset, in its order; on several ranks, each one's share of them.

    :param data: at least one example, in the transform group to embed with.
    """
    if ranks is None:
        dictionary: Dictionary = embedding.embed(data)
        return dictionary
    if hasattr(embedding, "calibrate"):
        # On the data that one process would take, not on this rank's share of it.
        embedding.calibrate(data)
    share = data.subset(list(ranks.share(len(data))))
    return ShardedDictionary(embedding.embed(share), ranks)
