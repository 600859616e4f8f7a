"""Gradient-matching coresets for continual learning with Avalanche."""

import importlib
from typing import TYPE_CHECKING, Any

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
from avalanche_gmc.pursuit import Coreset, orthogonal_matching_pursuit

if TYPE_CHECKING:
    from avalanche_gmc.buffers import (
        FacilityLocationBuffer,
        GradientMatchingBuffer,
        GreedyClassBalancedBuffer,
        SlidingWindowBuffer,
    )
    from avalanche_gmc.metrics import coreset_metrics
    from avalanche_gmc.plugins import CoresetGDumbPlugin, CoresetReplayPlugin
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

_NEED_AVALANCHE = ("buffers", "exemplars", "metrics", "plugins", "reporting", "strategies")


def __getattr__(name: str) -> Any:
    """Names that need Avalanche, which takes seconds to import, are imported when first used."""
    if name in _NEED_AVALANCHE:
        return importlib.import_module(f"{__name__}.{name}")
    if name in __all__:
        for module in map(__getattr__, _NEED_AVALANCHE):
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_NEED_AVALANCHE})
