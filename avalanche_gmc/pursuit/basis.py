"""An orthonormal basis of the picked atoms, with its triangular factor.

Letters: k picked atoms so far, D dimensions, b atoms added at once, m other atoms.

The picked atoms, at unit length, are the rows of ``Rᵀ Q``: Q is k×D in the atoms' precision and on
their device, R is k×k, upper triangular, float64, on the CPU (which has float64 on every machine).
Memory for Q is reserved for the largest k, but on a CPU only the filled rows occupy any.
"""

from __future__ import annotations

import torch
from torch import Tensor

from avalanche_gmc.pursuit.triangle import Triangle


class Basis:
    """Grows by blocks of atoms; never rebuilt.

    :param capacity: the largest k.
    :param dim: D.
    :param dtype: of the atoms.
    :param device: of the atoms.
    """

    def __init__(self, capacity: int, dim: int, dtype: torch.dtype, device: torch.device) -> None:
        self._vectors = torch.empty(capacity, dim, dtype=dtype, device=device)
        self.factor = Triangle(capacity)

    @property
    def capacity(self) -> int:
        """The largest k."""
        return len(self._vectors)

    @property
    def size(self) -> int:
        """k."""
        return self.factor.size

    @property
    def vectors(self) -> Tensor:
        """Q: k×D."""
        return self._vectors[: self.size]

    def room(self, count: int) -> Tensor:
        """Q with ``count`` more rows, whose numbers are lost when the basis grows: (k+count)×D."""
        return self._vectors[: self.size + count]

    def overlap(self, atoms: Tensor) -> Tensor:
        """Inner products of atoms (m×D) with the basis vectors: m×k."""
        return atoms @ self.vectors.T

    def extension(self, atoms: Tensor, overlap: Tensor) -> tuple[Tensor, Tensor]:
        """Orthonormal vectors that add the atoms, in order, to the span; the basis stays as it is.

        Classical Gram–Schmidt against the basis, twice, then Cholesky QR within the block, twice.

        :param atoms: b×D, of unit length.
        :param overlap: b×k, ``self.overlap(atoms)``.
        :returns: the vectors (b'×D) and their columns of R ((k+b')×b'), where b' < b if
            the atom at position b' is numerically in the span of those before it.
        """
        remainder = atoms - overlap @ self.vectors
        correction = self.overlap(remainder)
        remainder = (remainder - correction @ self.vectors).cpu().double()
        inner = torch.eye(len(atoms), dtype=torch.float64)
        for _ in range(2):
            lower, failed = torch.linalg.cholesky_ex(remainder @ remainder.T)
            if failed > 0:
                keep = int(failed) - 1
                lower, inner = lower[:keep, :keep], inner[:keep, :keep]
                remainder = remainder[:keep]
            remainder = torch.linalg.solve_triangular(lower, remainder, upper=False)
            inner = inner @ lower
        above = (overlap + correction)[: len(inner)].cpu().double()
        return remainder.to(atoms), torch.cat([above.T, inner.T])

    def append(self, vectors: Tensor, columns: Tensor) -> None:
        """Add what ``extension`` returned, or its leading part.

        :param vectors: b×D.
        :param columns: b columns of R, float64; rows past k+b are ignored.
        """
        self._vectors[self.size : self.size + len(vectors)] = vectors
        self.factor.append(columns)

    def combine(self, coordinates: Tensor) -> Tensor:
        """The vector with these coordinates (k): D, float64, on the CPU."""
        return (coordinates.to(self._vectors) @ self.vectors).cpu().double()
