"""Gradient-matching coresets for continual learning with Avalanche."""

from avalanche_gmc.dictionary import DenseDictionary, Dictionary, LastLayerDictionary
from avalanche_gmc.matching_pursuit import Coreset, orthogonal_matching_pursuit

__all__ = [
    "Coreset",
    "DenseDictionary",
    "Dictionary",
    "LastLayerDictionary",
    "orthogonal_matching_pursuit",
]

__version__ = "0.1.0"
