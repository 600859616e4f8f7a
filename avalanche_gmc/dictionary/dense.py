"""Atoms held as the rows of a matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
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

BLOCK_ROWS = 512


class DenseDictionary(Dictionary):
    """Atoms held as the rows of a matrix.

    :param atoms: N×D, a tensor or a NumPy array of float32 or float64.
    """

    def __init__(self, atoms: Tensor | np.ndarray[Any, Any]) -> None:
        atoms = floating("atoms", atoms)
        if atoms.ndim != 2:
            raise ValueError(f"atoms must be a matrix N×D, got shape {tuple(atoms.shape)}.")
        self.atoms = atoms

    @property
    def num_atoms(self) -> int:
        return self.atoms.shape[0]

    @property
    def dim(self) -> int:
        return self.atoms.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        return self.atoms.dtype

    @property
    def device(self) -> torch.device:
        return self.atoms.device

    @property
    def nbytes(self) -> int:
        return self.atoms.nbytes

    @without_autocast
    def correlate(self, vectors: Tensor) -> Tensor:
        vectors = vectors.to(self.atoms)
        if vectors.ndim == 1:
            return inner_products(vectors[None], self.atoms)[0]
        return inner_products(vectors.T, self.atoms).T

    def correlate_numpy(self, vector: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.asarray(self.atoms.numpy() @ vector)

    def norms(self) -> Tensor:
        # Much faster than in float64; rows whose squares leave the range are done again.
        norms: Tensor = torch.linalg.vector_norm(self.atoms, dim=1).to(widest(self.device))
        low, high = (1e-15, 1e15) if self.dtype == torch.float32 else (1e-150, 1e150)
        extreme = ((norms < low) | (norms > high) | norms.isnan()).nonzero()[:, 0]
        for part in torch.split(extreme, BLOCK_ROWS):
            norms[part] = row_norms(self.atoms[part])
        return norms

    def rows(self, indices: Tensor) -> Tensor:
        return self.atoms[indices]

    def sum(self) -> Tensor:
        return self.atoms.sum(dim=0, dtype=widest(self.device))

    def take(self, indices: Tensor) -> Self:
        return type(self)(self.atoms[indices])

    def concat(self, other: Self) -> Self:
        check_same("dimension", self.dim, other.dim)
        check_same("dtype", self.dtype, other.dtype)
        return type(self)(torch.cat([self.atoms, other.atoms]))

    def scaled(self, factors: Tensor) -> Self:
        result = torch.empty_like(self.atoms)
        for start in range(0, self.num_atoms, BLOCK_ROWS):
            block = slice(start, start + BLOCK_ROWS)
            result[block] = self.atoms[block].to(factors) * factors[block, None]
        return type(self)(result)

    def to(self, device: torch.device | str) -> Self:
        return type(self)(self.atoms.to(device))
