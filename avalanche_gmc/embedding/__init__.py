"""Per-example loss gradients at a model's initialisation, as dictionaries."""

from avalanche_gmc.embedding.adapters import SelectOutput
from avalanche_gmc.embedding.base import GradientEmbedding
from avalanche_gmc.embedding.growing import GrowingHeadEmbedding
from avalanche_gmc.embedding.last_layer import LastLayerEmbedding
from avalanche_gmc.embedding.local import LocalEmbedding
from avalanche_gmc.embedding.random_projection import RandomProjectionEmbedding

__all__ = [
    "GradientEmbedding",
    "GrowingHeadEmbedding",
    "LastLayerEmbedding",
    "LocalEmbedding",
    "RandomProjectionEmbedding",
    "SelectOutput",
]
