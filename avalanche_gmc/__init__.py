"""Gradient-matching coresets for continual learning with Avalanche."""

from avalanche_gmc.dictionary import DenseDictionary, Dictionary, LastLayerDictionary

__all__ = ["DenseDictionary", "Dictionary", "LastLayerDictionary"]

__version__ = "0.1.0"
