"""Dictionaries: N atoms of dimension D, seen only as a linear operator."""

from avalanche_gmc.dictionary.base import Dictionary
from avalanche_gmc.dictionary.dense import DenseDictionary
from avalanche_gmc.dictionary.last_layer import LastLayerDictionary
from avalanche_gmc.dictionary.sharded import ShardedDictionary

__all__ = ["DenseDictionary", "Dictionary", "LastLayerDictionary", "ShardedDictionary"]
