"""Dictionaries: N atoms of dimension D, seen only as a linear operator.

Letters: N atoms, D dimensions, b vectors at once, m chosen atoms, P numbers that make an atom,
S draws, K outputs, H features (of the last layer; H counts the constant 1 of the bias where there
is one).

The pursuit asks a dictionary for inner products, norms, sums and a few rows, never for an N×D
matrix. A structured dictionary can therefore hold its atoms in a fraction of that memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor
from typing_extensions import Self

CHUNK_ELEMENTS = 2**23
"""Temporaries of structured dictionaries stay below this many numbers (32 MiB of float32)."""


BLOCK_ROWS = 512


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
        return DenseDictionary(packed)

    def __len__(self) -> int:
        return self.num_atoms

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(num_atoms={self.num_atoms}, dim={self.dim}, "
            f"dtype={str(self.dtype).removeprefix('torch.')}, device='{self.device}')"
        )


class DenseDictionary(Dictionary):
    """Atoms held as the rows of a matrix.

    :param atoms: N×D, float32 or float64.
    """

    def __init__(self, atoms: Tensor) -> None:
        if atoms.ndim != 2:
            raise ValueError(f"atoms must be a matrix N×D, got shape {tuple(atoms.shape)}.")
        _check_floating("atoms", atoms)
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

    def correlate(self, vectors: Tensor) -> Tensor:
        vectors = vectors.to(self.atoms).contiguous()
        if vectors.ndim == 1 or self.device.type != "cpu":
            return self.atoms @ vectors
        # Products of a tall matrix with a few columns run up to 1.5 times faster in blocks of rows.
        result = self.atoms.new_empty(self.num_atoms, vectors.shape[1])
        for start in range(0, self.num_atoms, BLOCK_ROWS):
            block = slice(start, start + BLOCK_ROWS)
            torch.mm(self.atoms[block], vectors, out=result[block])
        return result

    def norms(self) -> Tensor:
        # Much faster than in float64; rows whose squares leave the range are done again.
        norms: Tensor = torch.linalg.vector_norm(self.atoms, dim=1).to(_widest(self.device))
        if self.dtype == torch.float32:
            extreme = ((norms < 1e-15) | (norms > 1e15) | norms.isnan()).nonzero()[:, 0]
            for part in torch.split(extreme, BLOCK_ROWS):
                rows = self.atoms[part].to(norms.dtype)
                norms[part] = torch.linalg.vector_norm(rows, dim=1)
        return norms

    def rows(self, indices: Tensor) -> Tensor:
        return self.atoms[indices]

    def sum(self) -> Tensor:
        return self.atoms.sum(dim=0, dtype=_widest(self.device))

    def take(self, indices: Tensor) -> Self:
        return type(self)(self.atoms[indices])

    def concat(self, other: Self) -> Self:
        _check_same("dimension", self.dim, other.dim)
        _check_same("dtype", self.dtype, other.dtype)
        return type(self)(torch.cat([self.atoms, other.atoms]))

    def to(self, device: torch.device | str) -> Self:
        return type(self)(self.atoms.to(device))


class LastLayerDictionary(Dictionary):
    """Gradients of a linear layer: atom n is ``errors[s, n] ⊗ features[s, n]``, draw by draw.

    Holds N·S·(K+H) numbers instead of N·S·K·H, and no operation materialises more than a chunk.

    :param errors: S×N×K, the gradient of the loss with respect to the layer's outputs.
    :param features: S×N×H, the layer's inputs (with a constant 1 for the bias, if there is one).
    """

    def __init__(self, errors: Tensor, features: Tensor) -> None:
        if errors.ndim != 3 or features.ndim != 3 or errors.shape[:2] != features.shape[:2]:
            raise ValueError(
                "errors must be S×N×K and features S×N×H with the same S and N, "
                f"got shapes {tuple(errors.shape)} and {tuple(features.shape)}."
            )
        _check_floating("errors", errors)
        _check_same("dtype", errors.dtype, features.dtype)
        _check_same("device", errors.device, features.device)
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

    def correlate(self, vectors: Tensor) -> Tensor:
        # <e ⊗ f, V> = e · (V f): one product of the features with all vectors at once, then a
        # weighted sum over the K outputs.
        draws, num_atoms, outputs = self.errors.shape
        matrices = vectors.to(self.errors).reshape(draws, outputs, self.features.shape[2], -1)
        count = matrices.shape[3]
        folded = matrices.permute(0, 2, 1, 3).reshape(draws, -1, outputs * count)
        result = self.errors.new_zeros(num_atoms, count)
        for start, stop in _chunks(num_atoms, outputs * count):
            for errors, features, weights in zip(self.errors, self.features, folded, strict=True):
                mixed = (features[start:stop] @ weights).view(-1, outputs, count)
                result[start:stop] += torch.einsum("nk,nkb->nb", errors[start:stop], mixed)
        return result[:, 0] if vectors.ndim == 1 else result

    def norms(self) -> Tensor:
        wide = _widest(self.device)
        errors = torch.linalg.vector_norm(self.errors, dim=2, dtype=wide)
        features = torch.linalg.vector_norm(self.features, dim=2, dtype=wide)
        norms: Tensor = torch.linalg.vector_norm(errors * features, dim=0)
        return norms

    def rows(self, indices: Tensor) -> Tensor:
        errors, features = self.errors[:, indices], self.features[:, indices]
        return torch.einsum("smk,smh->mskh", errors, features).reshape(len(indices), self.dim)

    def sum(self) -> Tensor:
        total = self.errors.new_zeros(self.dim, dtype=_widest(self.device))
        for start, stop in _chunks(self.num_atoms, self.errors.shape[2] + self.features.shape[2]):
            errors = self.errors[:, start:stop].to(total.dtype)
            total += (errors.mT @ self.features[:, start:stop].to(total.dtype)).flatten()
        return total

    def take(self, indices: Tensor) -> Self:
        return type(self)(self.errors[:, indices], self.features[:, indices])

    def concat(self, other: Self) -> Self:
        for name in ("errors", "features"):
            ours, theirs = getattr(self, name), getattr(other, name)
            _check_same(f"shape of {name}", ours.shape[::2], theirs.shape[::2])
        return type(self)(
            torch.cat([self.errors, other.errors], dim=1),
            torch.cat([self.features, other.features], dim=1),
        )

    def packed(self, indices: Tensor) -> Tensor:
        both = torch.cat([self.errors[:, indices], self.features[:, indices]], dim=2)
        return both.transpose(0, 1).flatten(1)

    def unpacked(self, packed: Tensor) -> Self:
        (draws, _, outputs), features = self.errors.shape, self.features.shape[2]
        both = packed.view(len(packed), draws, outputs + features).transpose(0, 1)
        return type(self)(both[:, :, :outputs].contiguous(), both[:, :, outputs:].contiguous())

    def to(self, device: torch.device | str) -> Self:
        return type(self)(self.errors.to(device), self.features.to(device))


def _chunks(num_atoms: int, numbers_per_atom: int) -> Iterator[tuple[int, int]]:
    """Ranges of atoms whose temporaries stay below ``CHUNK_ELEMENTS``."""
    step = max(1, CHUNK_ELEMENTS // max(1, numbers_per_atom))
    for start in range(0, num_atoms, step):
        yield start, min(num_atoms, start + step)


def _widest(device: torch.device) -> torch.dtype:
    """float64, or what a device without it has."""
    return torch.float32 if device.type == "mps" else torch.float64


def _check_floating(name: str, tensor: Tensor) -> None:
    if tensor.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"{name} must be float32 or float64, got {tensor.dtype}; cast them first.")


def _check_same(what: str, ours: object, theirs: object) -> None:
    if ours != theirs:
        raise ValueError(f"dictionaries must agree in {what}, got {ours} and {theirs}.")
