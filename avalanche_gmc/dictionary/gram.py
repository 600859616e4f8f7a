"""Inner products of atoms with each other, in float64 and by NumPy.

Letters: N atoms, D dimensions, m chosen atoms; S draws, K outputs, H features of a last layer.

Gradients of a last layer are outer products, and ``<e ⊗ h, e' ⊗ h'> = <e, e'> <h, h'>``: a column
of their Gram matrix costs S·(K+H) multiplications an atom instead of S·K·H, and no atom is ever
written out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from avalanche_gmc.dictionary.dense import DenseDictionary
from avalanche_gmc.dictionary.last_layer import LastLayerDictionary

Array = NDArray[np.float64]
Ids = NDArray[np.int64]


class Gram(ABC):
    """The Gram matrix of atoms at unit length, never written out as a whole."""

    @abstractmethod
    def columns(self, ids: Ids) -> Array:
        """Inner products of the chosen atoms with all atoms: m×N."""

    @abstractmethod
    def block(self, ids: Ids) -> Array:
        """Inner products of the chosen atoms with each other: m×m."""

    @abstractmethod
    def correlate(self, vector: Array) -> Array:
        """Inner products of all atoms with a vector: D → N."""


class DenseGram(Gram):
    """Of atoms held as rows.

    :param atoms: N, on the CPU.
    :param inverse_norms: N, float64.
    """

    def __init__(self, atoms: DenseDictionary, inverse_norms: Tensor) -> None:
        rows = atoms.atoms.to(torch.float64, copy=True)
        self._rows = rows.mul_(inverse_norms[:, None]).numpy()

    def columns(self, ids: Ids) -> Array:
        return np.asarray(self._rows[ids] @ self._rows.T)

    def block(self, ids: Ids) -> Array:
        rows = self._rows[ids]
        return np.asarray(rows @ rows.T)

    def correlate(self, vector: Array) -> Array:
        return np.asarray(self._rows @ vector)


class LastLayerGram(Gram):
    """Of gradients of a last layer.

    :param atoms: N, on the CPU.
    :param inverse_norms: N, float64.
    """

    def __init__(self, atoms: LastLayerDictionary, inverse_norms: Tensor) -> None:
        # Chosen atoms are rows here; all atoms, as rows of N numbers, are multiplied twice as fast.
        self._narrow = atoms.errors.numpy(), atoms.features.numpy()
        self._scale = inverse_norms.numpy()
        self._features = transposed(atoms.features)
        self._errors = transposed(atoms.errors)
        self._errors *= self._scale

    def columns(self, ids: Ids) -> Array:
        return self._product(self._rows(ids), (self._errors, self._features))

    def block(self, ids: Ids) -> Array:
        errors, features = rows = self._rows(ids)
        return self._product(rows, (np.swapaxes(errors, 1, 2), np.swapaxes(features, 1, 2)))

    def correlate(self, vector: Array) -> Array:
        matrices = vector.reshape(*self._errors.shape[:2], -1)
        total = np.zeros(len(self._scale))
        for errors, features, matrix in zip(self._errors, self._features, matrices, strict=True):
            total += np.einsum("kn,kn->n", errors, matrix @ features)
        return total

    def _rows(self, ids: Ids) -> tuple[Array, Array]:
        errors, features = (factor[:, ids].astype(np.float64) for factor in self._narrow)
        errors *= self._scale[ids, None]
        return errors, features

    @staticmethod
    def _product(rows: tuple[Array, Array], others: tuple[Array, Array]) -> Array:
        """Inner products of atoms (S×m×K, S×m×H) with others (S×K×M, S×H×M): m×M."""
        total: Array | None = None
        for e, h, errors, features in zip(*rows, *others, strict=True):
            product = e @ errors
            product *= h @ features
            total = product if total is None else np.add(total, product, out=total)
        return np.asarray(total)


def transposed(factor: Tensor) -> Array:
    """S×N×K → S×K×N in float64, contiguous."""
    draws, number, size = factor.shape
    return torch.empty(draws, size, number, dtype=torch.float64).copy_(factor.mT).numpy()
