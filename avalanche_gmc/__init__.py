"""Gradient-matching coresets for continual learning with Avalanche."""

from avalanche_gmc.buffers import (
    FacilityLocationBuffer,
    GradientMatchingBuffer,
    GreedyClassBalancedBuffer,
    SlidingWindowBuffer,
)
from avalanche_gmc.dictionary import (
    DenseDictionary,
    Dictionary,
    LastLayerDictionary,
    ShardedDictionary,
)
from avalanche_gmc.embedding import (
    GradientEmbedding,
    GrowingHeadEmbedding,
    LastLayerEmbedding,
    LocalEmbedding,
    RandomProjectionEmbedding,
    SelectOutput,
)
from avalanche_gmc.initialization import Redrawn
from avalanche_gmc.metrics import coreset_metrics
from avalanche_gmc.plugins import CoresetGDumbPlugin, CoresetReplayPlugin
from avalanche_gmc.pursuit import Coreset, orthogonal_matching_pursuit
from avalanche_gmc.reporting import MemoryHistory, report
from avalanche_gmc.strategies import CoresetGDumb, CoresetReplay

__all__ = [
    "Coreset",
    "CoresetGDumb",
    "CoresetGDumbPlugin",
    "CoresetReplay",
    "CoresetReplayPlugin",
    "DenseDictionary",
    "Dictionary",
    "FacilityLocationBuffer",
    "GradientEmbedding",
    "GradientMatchingBuffer",
    "GreedyClassBalancedBuffer",
    "GrowingHeadEmbedding",
    "LastLayerDictionary",
    "LastLayerEmbedding",
    "LocalEmbedding",
    "MemoryHistory",
    "RandomProjectionEmbedding",
    "Redrawn",
    "SelectOutput",
    "ShardedDictionary",
    "SlidingWindowBuffer",
    "coreset_metrics",
    "orthogonal_matching_pursuit",
    "report",
]

__version__ = "0.2.0"
