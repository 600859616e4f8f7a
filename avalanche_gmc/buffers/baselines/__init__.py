"""The memories that gradient matching is compared with."""

from avalanche_gmc.buffers.baselines.facility_location import FacilityLocationBuffer
from avalanche_gmc.buffers.baselines.sampling import (
    GreedyClassBalancedBuffer,
    SlidingWindowBuffer,
)

__all__ = ["FacilityLocationBuffer", "GreedyClassBalancedBuffer", "SlidingWindowBuffer"]
