"""Replay memories: drop-in storage policies for Avalanche."""

from avalanche_gmc.buffers.baselines import GreedyClassBalancedBuffer, SlidingWindowBuffer
from avalanche_gmc.buffers.gradient_matching import GradientMatchingBuffer

__all__ = [
    "GradientMatchingBuffer",
    "GreedyClassBalancedBuffer",
    "SlidingWindowBuffer",
]
