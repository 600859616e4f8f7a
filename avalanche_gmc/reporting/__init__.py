"""A memory as one HTML page: its exemplars, and how they changed over the stream."""

from avalanche_gmc.reporting.history import MemoryHistory
from avalanche_gmc.reporting.page import report

__all__ = ["MemoryHistory", "report"]
