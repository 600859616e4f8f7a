"""An orthonormal basis of the picked atoms, with its triangular factor.

Letters: k picked atoms so far, D dimensions, b atoms added at once, m other atoms.

The picked atoms, at unit length, are the rows of ``Rᵀ Q``: Q is k×D in the atoms' precision and on
their device, R is k×k, upper triangular, float64, on the CPU (which has float64 on every machine).
"""

from __future__ import annotations

import torch
from torch import Tensor


class Basis:
    """Grows by blocks of atoms; never rebuilt.

    :param capacity: the largest k.
    :param dim: D.
    :param dtype: of the atoms.
    :param device: of the atoms.
    """

    def __init__(self, capacity: int, dim: int, dtype: torch.dtype, device: torch.device) -> None:
        self._vectors = torch.empty(capacity, dim, dtype=dtype, device=device)
        self._factor = torch.zeros(capacity, capacity, dtype=torch.float64)
        self.size = 0

    @property
    def capacity(self) -> int:
        """The largest k."""
        return len(self._vectors)

    @property
    def vectors(self) -> Tensor:
        """Q: k×D."""
        return self._vectors[: self.size]

    @property
    def factor(self) -> Tensor:
        """R: k×k, float64."""
        return self._factor[: self.size, : self.size]

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
        :param columns: (k+b)×b, float64; rows past k+b are ignored.
        """
        start, stop = self.size, self.size + len(vectors)
        self._vectors[start:stop] = vectors
        self._factor[:stop, start:stop] = columns[:stop]
        self.size = stop

    def solve(self, coordinates: Tensor) -> Tensor:
        """Weights of the picked atoms whose sum has the given coordinates in the basis: k → k."""
        solution: Tensor = torch.linalg.solve_triangular(
            self.factor, coordinates[:, None], upper=True
        )
        return solution[:, 0]

    def coordinates(self, correlations: Tensor) -> Tensor:
        """Coordinates of a vector's projection, from its inner products with the atoms: k → k."""
        column = correlations[:, None]
        solution: Tensor = torch.linalg.solve_triangular(self.factor.T, column, upper=False)
        return solution[:, 0]

    def combine(self, coordinates: Tensor) -> Tensor:
        """The vector with these coordinates (k): D, float64, on the CPU."""
        return (coordinates.to(self._vectors) @ self.vectors).cpu().double()
