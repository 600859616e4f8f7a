"""Gradients of a last linear layer, held as their two factors.

Letters: N atoms, D dimensions, b vectors at once, m chosen atoms, S draws, K outputs, H features
(H counts the constant 1 of the bias where there is one).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import Self

from avalanche_gmc.dictionary.base import (
    Dictionary,
    check_same,
    floating,
    row_norms,
    widest,
    without_autocast,
)
from avalanche_gmc.dictionary.products import inner_products

CHUNK_ELEMENTS = 2**23
"""Temporaries stay below this many numbers (32 MiB of float32)."""


class LastLayerDictionary(Dictionary):
    """Gradients of a linear layer: atom n is ``errors[s, n] ⊗ features[s, n]``, draw by draw.

    Holds N·S·(K+H) numbers instead of N·S·K·H, and no operation materialises more than a chunk.

    :param errors: S×N×K, the gradient of the loss with respect to the layer's outputs.
    :param features: S×N×H, the layer's inputs (with a constant 1 for the bias, if there is one).
    """

    def __init__(self, errors: Tensor, features: Tensor) -> None:
        errors, features = floating("errors", errors), floating("features", features)
        if errors.ndim != 3 or features.ndim != 3 or errors.shape[:2] != features.shape[:2]:
            raise ValueError(
                "errors must be S×N×K and features S×N×H with the same S and N, "
                f"got shapes {tuple(errors.shape)} and {tuple(features.shape)}."
            )
        check_same("dtype", errors.dtype, features.dtype)
        check_same("device", errors.device, features.device)
        self.errors = errors
        self.features = features

    @property
    def num_atoms(self) -> int:
        return self.errors.shape[1]

    @property
    def dim(self) -> int:
        return self.errors.shape[0] * self.errors.shape[2] * self.features.shape[2]

    @property
    def dtype(self) -> torch.dtype:
        return self.errors.dtype

    @property
    def device(self) -> torch.device:
        return self.errors.device

    @property
    def nbytes(self) -> int:
        return self.errors.nbytes + self.features.nbytes

    @without_autocast
    def correlate(self, vectors: Tensor) -> Tensor:
        # <e ⊗ f, V> = e · (V f): one product of the features with all vectors at once, then a
        # weighted sum over the K outputs.
        draws, num_atoms, outputs = self.errors.shape
        matrices = vectors.to(self.errors).reshape(self.dim, -1)
        count = matrices.shape[1]
        folded = matrices.T.reshape(count, draws, outputs, -1).permute(1, 2, 0, 3)
        result = self.errors.new_zeros(count, num_atoms)
        for start, stop in _chunks(num_atoms, outputs * count):
            for errors, features, weights in zip(self.errors, self.features, folded, strict=True):
                mixed = inner_products(weights.flatten(0, 1), features[start:stop])
                errors = errors[start:stop].T[:, None]
                result[:, start:stop] += (mixed.view(outputs, count, -1) * errors).sum(dim=0)
        return result[0] if vectors.ndim == 1 else result.T

    @without_autocast
    def correlate_some(self, indices: Tensor, vector: Tensor) -> Tensor:
        errors, features = (x[:, indices].to(vector) for x in (self.errors, self.features))
        matrices = vector.view(len(errors), errors.shape[2], -1)
        return (features @ matrices.mT).mul_(errors).sum(dim=(0, 2))

    def norms(self) -> Tensor:
        draws = zip(self.errors, self.features, strict=True)
        parts = [row_norms(errors) * row_norms(features) for errors, features in draws]
        return row_norms(torch.stack(parts, dim=1))

    @without_autocast
    def rows(self, indices: Tensor) -> Tensor:
        errors, features = self.errors[:, indices], self.features[:, indices]
        return torch.einsum("smk,smh->mskh", errors, features).reshape(len(indices), self.dim)

    def combine(self, indices: Tensor, weights: Tensor) -> Tensor:
        errors, features = (x[:, indices].to(weights) for x in (self.errors, self.features))
        return ((errors * weights[:, None]).mT @ features).flatten()

    def sum(self) -> Tensor:
        total = self.errors.new_zeros(self.dim, dtype=widest(self.device))
        for start, stop in _chunks(self.num_atoms, self.errors.shape[2] + self.features.shape[2]):
            errors = self.errors[:, start:stop].to(total.dtype)
            total += (errors.mT @ self.features[:, start:stop].to(total.dtype)).flatten()
        return total

    def take(self, indices: Tensor) -> Self:
        return type(self)(self.errors[:, indices], self.features[:, indices])

    def concat(self, other: Self) -> Self:
        for name in ("errors", "features"):
            ours, theirs = getattr(self, name), getattr(other, name)
            check_same(f"shape of {name}", ours.shape[::2], theirs.shape[::2])
        return type(self)(
            torch.cat([self.errors, other.errors], dim=1),
            torch.cat([self.features, other.features], dim=1),
        )

    def with_outputs(self, count: int) -> Self:
        """The same atoms for a layer that has grown to ``count`` outputs: 0 at the new ones."""
        more = count - self.errors.shape[2]
        if more < 0:
            raise ValueError(
                f"a layer of {self.errors.shape[2]} outputs cannot grow to {count}; a layer that "
                "lost outputs needs new embeddings."
            )
        return type(self)(F.pad(self.errors, (0, more)), self.features) if more else self

    def packed(self, indices: Tensor) -> Tensor:
        both = torch.cat([self.errors[:, indices], self.features[:, indices]], dim=2)
        return both.transpose(0, 1).flatten(1)

    def unpacked(self, packed: Tensor) -> Self:
        (draws, _, outputs), features = self.errors.shape, self.features.shape[2]
        both = packed.view(len(packed), draws, outputs + features).transpose(0, 1)
        return type(self)(both[:, :, :outputs].contiguous(), both[:, :, outputs:].contiguous())

    def scaled(self, factors: Tensor) -> Self:
        # The square root to each side: neither leaves the range of its type.
        root = factors.sqrt()[:, None]
        return type(self)(
            (self.errors.to(root) * root).to(self.dtype),
            (self.features.to(root) * root).to(self.dtype),
        )

    def to(self, device: torch.device | str) -> Self:
        return type(self)(self.errors.to(device), self.features.to(device))


def _chunks(num_atoms: int, numbers_per_atom: int) -> Iterator[tuple[int, int]]:
    """Ranges of atoms whose temporaries stay below ``CHUNK_ELEMENTS``."""
    step = max(1, CHUNK_ELEMENTS // max(1, numbers_per_atom))
    for start in range(0, num_atoms, step):
        yield start, min(num_atoms, start + step)
