"""A last layer with any number of features per draw, to tell draws and dimensions apart.

Letters: N examples, S draws, K outputs, H features (a bias counts as one), h random sums of them.
"""

from __future__ import annotations

from typing import Any

import torch

from avalanche_gmc.dictionary import Dictionary, LastLayerDictionary
from avalanche_gmc.embedding import LastLayerEmbedding
from avalanche_gmc.embedding.fewer_features import FewerFeatures
from avalanche_gmc.initialization import derive_seed


class FewFeatures(FewerFeatures):
    """Last-layer gradients of ``dim`` dimensions, rounded to whole features.

    The library's own :class:`FewerFeatures` never goes below 64 features; this does, down to one.

    :param inner: the embedding whose features are many.
    :param dim: how many dimensions to have, S·K·h.
    """

    def __init__(self, inner: LastLayerEmbedding, dim: int) -> None:
        super().__init__(inner, dim)
        self._sums: dict[tuple[int, int, int], torch.Tensor] = {}

    def embed(self, inputs: Any, targets: torch.Tensor | None = None) -> Dictionary:
        """Gradients whose features are replaced by random sums of them, with signs by the seed."""
        atoms = self._inner.embed(inputs, targets)
        if not isinstance(atoms, LastLayerDictionary):
            raise TypeError(f"fewer features need a LastLayerDictionary, not {type(atoms)}")
        draws, _, outputs = atoms.errors.shape
        width = atoms.features.shape[2]
        shape = (draws, width, max(1, round(self._dim / (draws * outputs))))
        if shape not in self._sums:
            generator = torch.Generator().manual_seed(derive_seed(self._inner.seed, *shape))
            coins = torch.randint(2, shape, generator=generator)
            self._sums[shape] = (2.0 * coins - 1) / shape[2] ** 0.5
        return LastLayerDictionary(atoms.errors, atoms.features @ self._sums[shape])
