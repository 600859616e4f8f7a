"""Upper triangular matrices of tens of thousands of rows, packed and worked on in place.

Letters: n rows and columns, b columns added at once, W columns of a panel.

Columns live in panels of W: panel p holds columns pW to (p+1)W, down to their diagonal block. That
is n²/2 numbers instead of n², growth without copying, and blocks for fast matrix–matrix products.
The same storage serves a triangular factor R and the upper half of a symmetric matrix; turning one
into the other takes no second matrix. Everything is float64 and on the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from typing_extensions import Self

WIDTH = 512


class Panel(NamedTuple):
    """Columns ``start`` to ``stop``: the rows above their diagonal block, and that block."""

    start: int
    stop: int
    above: Tensor
    corner: Tensor


class Triangle:
    """The upper half of an n×n matrix.

    :param capacity: the largest n, as far as it is known; small ones get a panel of their size.
    """

    def __init__(self, capacity: int = WIDTH) -> None:
        self.size = 0
        self._width = max(1, min(capacity, WIDTH))
        self._panels: list[Tensor] = []

    @classmethod
    def of(cls, matrix: Tensor) -> Self:
        """The upper half of a dense matrix: n×n."""
        triangle = cls(len(matrix))
        triangle.append(matrix)
        return triangle

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(panel.nbytes for panel in self._panels)

    def panels(self) -> Iterator[Panel]:
        """What is filled, from left to right, as views."""
        for number in range(len(self._panels)):
            yield self._panel(number)

    def _panel(self, number: int) -> Panel:
        start = number * self._width
        stop = min(self.size, start + self._width)
        columns = self._panels[number][:, : stop - start]
        return Panel(start, stop, columns[:start], columns[start:stop])

    def dense(self) -> Tensor:
        """n×n, zero below the diagonal."""
        matrix = torch.zeros(self.size, self.size, dtype=torch.float64)
        for start, stop, above, corner in self.panels():
            matrix[:start, start:stop] = above
            matrix[start:stop, start:stop] = corner.triu()
        return matrix

    def append(self, columns: Tensor) -> None:
        """Add columns on the right.

        :param columns: (n+b)×b; what is below the diagonal is ignored.
        """
        first, stop = self.size, self.size + columns.shape[1]
        while self.size < stop:
            number, offset = divmod(self.size, self._width)
            if offset == 0:
                height = (number + 1) * self._width
                # Column by column in memory: products with the transpose are twice as fast.
                self._panels.append(torch.zeros(self._width, height, dtype=torch.float64).T)
            end = min(stop, (number + 1) * self._width)
            added = slice(offset, offset + end - self.size)
            self._panels[number][:end, added] = columns[:end, self.size - first : end - first]
            self.size = end

    def solve(self, vector: Tensor) -> Tensor:
        """``R⁻¹ v``: n → n."""
        solution = vector.clone()
        for start, stop, above, corner in reversed(list(self.panels())):
            part = torch.linalg.solve_triangular(corner, solution[start:stop, None], upper=True)
            solution[start:stop] = part[:, 0]
            solution[:start] -= above @ part[:, 0]
        return solution

    def solve_transposed(self, vectors: Tensor) -> Tensor:
        """``R⁻ᵀ v`` of a vector or of columns: n → n, or n×m → n×m."""
        solution = (vectors if vectors.ndim == 2 else vectors[:, None]).clone()
        for start, stop, above, corner in self.panels():
            rest = solution[start:stop] - above.T @ solution[:start]
            solution[start:stop] = torch.linalg.solve_triangular(corner.T, rest, upper=False)
        return solution.view(vectors.shape)

    def inverse_rows(self, index: Tensor) -> Tensor:
        """The rows of ``R⁻¹`` at ascending positions (m): m×n."""
        rows = torch.zeros(len(index), self.size, dtype=torch.float64)
        if len(index) == 0:
            return rows
        rows[torch.arange(len(index)), index] = 1.0
        # Left of the diagonal they are zero.
        first = int(index[0]) // self._width
        for start, stop, above, corner in list(self.panels())[first:]:
            skip = first * self._width
            rest = rows[:, start:stop] - rows[:, skip:start] @ above[skip:]
            rows[:, start:stop] = torch.linalg.solve_triangular(
                corner, rest, upper=True, left=False
            )
        return rows

    def gram_product(self, vector: Tensor) -> Tensor:
        """``RᵀR v``: n → n."""
        image = torch.zeros_like(vector)
        for start, stop, above, corner in self.panels():
            image[:start] += above @ vector[start:stop]
            image[start:stop] += corner.triu() @ vector[start:stop]
        product = torch.zeros_like(vector)
        for start, stop, above, corner in self.panels():
            product[start:stop] = above.T @ image[:start] + corner.triu().T @ image[start:stop]
        return product

    def symmetric_product(self, vector: Tensor) -> Tensor:
        """``A v`` for the symmetric matrix A whose upper half this is: n → n."""
        product = torch.zeros_like(vector)
        for start, stop, above, corner in self.panels():
            part = vector[start:stop]
            product[:start] += above @ part
            product[start:stop] += above.T @ vector[:start]
            product[start:stop] += corner.triu() @ part + corner.triu(1).T @ part
        return product

    def principal(self, index: Tensor) -> Triangle:
        """The rows and columns at ascending positions (m), as a new matrix: m×m."""
        chosen = Triangle(len(index))
        for start, stop, above, corner in self.panels():
            first, last = torch.searchsorted(index, torch.tensor([start, stop])).tolist()
            columns = torch.zeros(last, last - first, dtype=torch.float64)
            inside = index[first:last] - start
            columns[:first] = above[index[:first]][:, inside]
            columns[first:] = corner[inside][:, inside]
            chosen.append(columns)
        return chosen

    def add_to_diagonal(self, value: float) -> None:
        """Add a number to every element of the diagonal."""
        for panel in self.panels():
            panel.corner.diagonal().add_(value)

    def largest_diagonal(self) -> float:
        """The largest element of the diagonal."""
        return max(float(panel.corner.diagonal().max()) for panel in self.panels())

    def factor_to_gram(self) -> None:
        """Replace R by the upper half of ``RᵀR``, in place."""
        # From the last block upwards and leftwards, what is overwritten is not needed any more.
        for right in reversed(list(self.panels())):
            corner = right.corner.triu()
            right.corner.copy_((corner.T @ corner).addmm_(right.above.T, right.above))
            for left in reversed(list(self.panels())[: right.start // self._width]):
                block = right.above[left.start : left.stop]
                product = left.corner.triu().T @ block
                block.copy_(product.addmm_(left.above.T, right.above[: left.start]))

    def gram_to_factor(self) -> bool:
        """Replace a symmetric matrix by its Cholesky factor R, in place.

        :returns: whether there is one; if not, nothing useful is left.
        """
        for right in self.panels():
            for left in list(self.panels())[: right.start // self._width]:
                block = right.above[left.start : left.stop]
                block.addmm_(left.above.T, right.above[: left.start], alpha=-1)
                block.copy_(torch.linalg.solve_triangular(left.corner.T, block, upper=False))
            right.corner.addmm_(right.above.T, right.above, alpha=-1)
            factor, failed = torch.linalg.cholesky_ex(right.corner, upper=True)
            if failed > 0:
                return False
            right.corner.copy_(factor)
        return True
