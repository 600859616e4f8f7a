"""Replay memories: drop-in storage policies for Avalanche."""

from avalanche_gmc.buffers.baselines import (
    FacilityLocationBuffer,
    GreedyClassBalancedBuffer,
    SlidingWindowBuffer,
)
from avalanche_gmc.buffers.gradient_matching import GradientMatchingBuffer

__all__ = [
    "FacilityLocationBuffer",
    "GradientMatchingBuffer",
    "GreedyClassBalancedBuffer",
    "SlidingWindowBuffer",
]
