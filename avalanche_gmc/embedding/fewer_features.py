"""Last-layer gradients with fewer features than the layer has.

Letters: N examples, S draws, K outputs, H features, h random sums of them, D dimensions.

A gradient of the last layer is ``error ⊗ features``. A wide layer gives a small memory many more
dimensions than it can use, and a pursuit takes time in proportion to them. Here the features of
each draw are replaced by h random sums of them, with signs from the seed. Inner products of
gradients keep their values up to about 1/√h (Johnson and Lindenstrauss), and the gradients keep
their structure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from avalanche_gmc.dictionary import Dictionary, LastLayerDictionary
from avalanche_gmc.embedding.base import GradientEmbedding
from avalanche_gmc.embedding.examples import MapDataset
from avalanche_gmc.embedding.last_layer import LastLayerEmbedding
from avalanche_gmc.initialization import derive_seed

FEWEST_FEATURES = 64
"""h is never smaller than this, unless H is."""

SIGNS_AT_ONCE, SIGNS_KEPT = 2**18, 2**22
"""Signs are drawn in blocks of so many, and kept for the next call up to so many in all."""


class FewerFeatures(GradientEmbedding):
    """The gradients of a last layer in about ``dim`` dimensions.

    :param inner: the embedding whose features are many.
    :param dim: how many dimensions to have, about; at least ``FEWEST_FEATURES`` features are kept.
    """

    def __init__(self, inner: LastLayerEmbedding, dim: int) -> None:
        self._inner = inner
        self._dim = dim
        self._signs: Tensor | None = None  # S×H×h

    @property
    def dim(self) -> int:
        """D, about, before the first examples were embedded."""
        return min(self._dim, self._inner.dim)

    def calibrate(self, inputs: Tensor | MapDataset, targets: Tensor | None = None) -> None:
        self._inner.calibrate(inputs, targets)

    def embed(self, inputs: Tensor | MapDataset, targets: Tensor | None = None) -> Dictionary:
        atoms = self._inner.embed(inputs, targets)
        if not isinstance(atoms, LastLayerDictionary):
            return atoms
        draws, _, outputs = atoms.errors.shape
        width = atoms.features.shape[2]
        kept = max(FEWEST_FEATURES, round(self._dim / (draws * outputs)))
        if kept >= width:
            return atoms
        return LastLayerDictionary(atoms.errors, self._summed(atoms.features, kept))

    def _summed(self, features: Tensor, kept: int) -> Tensor:
        """S×N×H → S×N×h."""
        draws, examples, width = features.shape
        shape = (draws, width, kept)
        if self._signs is None or self._signs.shape != shape:
            self._signs = None
            if draws * width * kept <= SIGNS_KEPT:
                blocks = [signs for *_, signs in self._drawn(*shape)]
                self._signs = torch.cat(blocks).view(shape)
        if self._signs is not None:
            return features @ self._signs.to(features)
        sums = features.new_zeros(draws, examples, kept)
        for draw, first, signs in self._drawn(*shape):
            some = features[draw, :, first : first + len(signs)]
            sums[draw].addmm_(some, signs.to(features))
        return sums

    def _drawn(self, draws: int, width: int, kept: int) -> Iterator[tuple[int, int, Tensor]]:
        """For each draw, blocks of rows of H×h signs, each with the place of its first row."""
        generator = torch.Generator().manual_seed(derive_seed(self._inner.seed, width, kept))
        rows = max(1, SIGNS_AT_ONCE // kept)
        for draw in range(draws):
            for first in range(0, width, rows):
                shape = (min(rows, width - first), kept)
                coins = torch.randint(2, shape, generator=generator)
                yield draw, first, (2.0 * coins - 1) / kept**0.5

    def check_model(self, model: nn.Module) -> None:
        self._inner.check_model(model)

    def state_dict(self) -> dict[str, Any]:
        return self._inner.state_dict() | {"dim": self._dim}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state.get("dim") != self._dim:
            raise ValueError(
                f"the state was saved with dim={state.get('dim')!r}, this embedding has "
                f"dim={self._dim!r}; make it with the same options before loading."
            )
        self._inner.load_state_dict({name: state[name] for name in state if name != "dim"})

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_signs": None}
