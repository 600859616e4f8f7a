"""Replay memories: drop-in storage policies for Avalanche."""

from avalanche_gmc.buffers.baselines import GreedyClassBalancedBuffer, SlidingWindowBuffer
from avalanche_gmc.buffers.facility_location import FacilityLocationBuffer
from avalanche_gmc.buffers.gradient_matching import GradientMatchingBuffer

__all__ = [
    "FacilityLocationBuffer",
    "GradientMatchingBuffer",
    "GreedyClassBalancedBuffer",
    "SlidingWindowBuffer",
]
