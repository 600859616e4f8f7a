"""The memories that gradient matching is compared with."""

from avalanche_gmc.buffers.base import OwningBuffer
from avalanche_gmc.buffers.baselines.bilevel import BilevelBuffer
from avalanche_gmc.buffers.baselines.cbrs import CBRSBuffer
from avalanche_gmc.buffers.baselines.facility_location import FacilityLocationBuffer
from avalanche_gmc.buffers.baselines.giga import GIGABuffer
from avalanche_gmc.buffers.baselines.grad_match import GradMatchBuffer
from avalanche_gmc.buffers.baselines.grand import GradientNormBuffer
from avalanche_gmc.buffers.baselines.gss import GSSBuffer
from avalanche_gmc.buffers.baselines.herding import HerdingBuffer
from avalanche_gmc.buffers.baselines.k_center import KCenterBuffer
from avalanche_gmc.buffers.baselines.k_means import KMeansPlusPlusBuffer
from avalanche_gmc.buffers.baselines.sampling import (
    GreedyClassBalancedBuffer,
    SlidingWindowBuffer,
)

BASELINES: dict[str, type[OwningBuffer]] = {
    "sliding-window": SlidingWindowBuffer,
    "class-balanced": GreedyClassBalancedBuffer,
    "cbrs": CBRSBuffer,
    "facility-location": FacilityLocationBuffer,
    "herding": HerdingBuffer,
    "k-center": KCenterBuffer,
    "k-means++": KMeansPlusPlusBuffer,
    "gss": GSSBuffer,
    "grand": GradientNormBuffer,
    "giga": GIGABuffer,
    "bilevel": BilevelBuffer,
    "grad-match": GradMatchBuffer,
}
"""By the names of the benchmarks; all take ``max_size``, all but the window also ``seed=...``."""

__all__ = [
    "BASELINES",
    "BilevelBuffer",
    "CBRSBuffer",
    "FacilityLocationBuffer",
    "GIGABuffer",
    "GSSBuffer",
    "GradMatchBuffer",
    "GradientNormBuffer",
    "GreedyClassBalancedBuffer",
    "HerdingBuffer",
    "KCenterBuffer",
    "KMeansPlusPlusBuffer",
    "SlidingWindowBuffer",
]
