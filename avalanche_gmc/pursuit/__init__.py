"""Matching pursuit: pick n weighted atoms whose sum matches a target."""

from avalanche_gmc.pursuit.matching_pursuit import Coreset, Mode, orthogonal_matching_pursuit

__all__ = ["Coreset", "Mode", "orthogonal_matching_pursuit"]
