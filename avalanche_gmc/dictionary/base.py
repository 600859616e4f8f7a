"""Dictionaries: N atoms of dimension D, seen only as a linear operator.

Letters: N atoms, D dimensions, b vectors at once, m chosen atoms, P numbers that make an atom,
S draws, K outputs, H features (of the last layer; H counts the constant 1 of the bias where there
is one).

The pursuit asks a dictionary for inner products, norms, sums and a few rows, never for an N×D
matrix. A structured dictionary can therefore hold its atoms in a fraction of that memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor
from typing_extensions import Self


class Dictionary(ABC):
    """N atoms of dimension D as a linear operator."""

    @property
    @abstractmethod
    def num_atoms(self) -> int:
        """N."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """D."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """The floating-point type of the atoms."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where the atoms live."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes held by the atoms."""

    @abstractmethod
    def correlate(self, vectors: Tensor) -> Tensor:
        """Inner products of all atoms with one vector (D → N) or several (D×b → N×b)."""

    @abstractmethod
    def norms(self) -> Tensor:
        """Euclidean norms of the atoms: N, float64 (float32 on devices without it)."""

    @abstractmethod
    def rows(self, indices: Tensor) -> Tensor:
        """The chosen atoms, dense: m → m×D."""

    @abstractmethod
    def sum(self) -> Tensor:
        """The sum of all atoms: D, float64 (float32 on devices without it)."""

    @abstractmethod
    def take(self, indices: Tensor) -> Dictionary:
        """A dictionary of the chosen atoms only, which keeps nothing else alive."""

    @abstractmethod
    def concat(self, other: Self) -> Self:
        """The atoms of this dictionary followed by those of ``other``."""

    @abstractmethod
    def to(self, device: torch.device | str) -> Self:
        """The same dictionary on another device."""

    def packed(self, indices: Tensor) -> Tensor:
        """The chosen atoms in the fewest numbers, to be sent elsewhere: m → m×P.

        P is the same for all atoms; D for atoms without structure.
        """
        return self.rows(indices)

    def unpacked(self, packed: Tensor) -> Dictionary:
        """A dictionary of the atoms that :meth:`packed` gave, here or on a like dictionary."""
        from avalanche_gmc.dictionary.dense import DenseDictionary

        return DenseDictionary(packed)

    def __len__(self) -> int:
        return self.num_atoms

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(num_atoms={self.num_atoms}, dim={self.dim}, "
            f"dtype={str(self.dtype).removeprefix('torch.')}, device='{self.device}')"
        )


def widest(device: torch.device) -> torch.dtype:
    """float64, or what a device without it has."""
    return torch.float32 if device.type == "mps" else torch.float64


def check_floating(name: str, tensor: Tensor) -> None:
    if tensor.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"{name} must be float32 or float64, got {tensor.dtype}; cast them first.")


def check_same(what: str, ours: object, theirs: object) -> None:
    if ours != theirs:
        raise ValueError(f"dictionaries must agree in {what}, got {ours} and {theirs}.")
