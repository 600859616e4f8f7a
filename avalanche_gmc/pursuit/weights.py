"""Weights of picked atoms, in float64.

Letters: n picked atoms, k of them in one sweep, D dimensions.

Weights here are for atoms of unit length.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from avalanche_gmc.dictionary import Dictionary
from avalanche_gmc.pursuit.nonnegative import (
    cholesky,
    nonnegative_least_squares,
    nonnegative_refit,
)
from avalanche_gmc.pursuit.triangle import Triangle

PROXIMITY = 1e-6
"""Pull towards the sweeps' own weights where several sweeps leave the match underdetermined."""
PROXIMAL_STEPS = 3
CHUNK_ROWS = 512
GRAM_ROWS = 2048
"""Rows held dense while their inner products with all before them are taken."""


class PickedAtoms:
    """The picked atoms at unit length, read from the dictionary a few at a time.

    :param dictionary: N atoms.
    :param norms: N, their norms.
    :param indices: n, the picked ones.
    """

    def __init__(self, dictionary: Dictionary, norms: Tensor, indices: Tensor) -> None:
        self._dictionary = dictionary
        self._norms = norms
        self._indices = indices
        self._parts = torch.split(indices, CHUNK_ROWS)

    def _rows(self, part: Tensor) -> Tensor:
        rows = self._dictionary.rows(part).cpu().double()
        return rows / self._norms[part].cpu().double()[:, None]

    def combine(self, weights: Tensor) -> Tensor:
        """The weighted sum of the atoms: n → D."""
        total = weights.new_zeros(self._dictionary.dim)
        for part, piece in zip(self._parts, torch.split(weights, CHUNK_ROWS), strict=True):
            scaled = (piece / self._norms[part].cpu()).to(part.device)
            total += self._dictionary.combine(part, scaled).cpu()
        return total

    def correlate(self, vector: Tensor) -> Tensor:
        """Inner products with a vector: D → n."""
        products = [self._dictionary.correlate_some(part, vector).cpu() for part in self._parts]
        return torch.cat(products) / self._norms[self._indices].cpu()

    def gram(self) -> Triangle:
        """Inner products with each other: the upper half of an n×n matrix."""
        gram = Triangle(len(self._indices))
        for stop in range(0, len(self._indices), GRAM_ROWS):
            right = self._rows(self._indices[stop : stop + GRAM_ROWS])
            before = torch.split(self._indices[: stop + GRAM_ROWS], CHUNK_ROWS)
            gram.append(torch.cat([self._rows(part) @ right.T for part in before]))
        return gram


def fit_sweep(
    atoms: PickedAtoms, factor: Triangle, coordinates: Tensor, target: Tensor, *, nonnegative: bool
) -> Tensor:
    """Least-squares weights of atoms that are independent of each other.

    :param atoms: k atoms.
    :param factor: their triangular factor R, k×k; overwritten.
    :param coordinates: k, of the target in the basis.
    :param target: D, float64.
    :returns: k, float64.
    """
    weights = factor.solve(coordinates)
    # The basis carries the rounding of a narrower precision, the atoms themselves do not.
    residual = target - atoms.combine(weights)
    weights = weights + factor.solve(factor.solve_transposed(atoms.correlate(residual)))
    if nonnegative and bool((weights < 0).any()):
        weights = nonnegative_refit(factor, weights)
    return weights


def divide_between_sweeps(
    atoms: PickedAtoms, sweeps: Sequence[Tensor], target: Tensor, *, nonnegative: bool
) -> Tensor:
    """Weights for the atoms of several sweeps that together match the target.

    Each sweep has weights that match the target by themselves, as far as its atoms can. Every
    sweep counts in proportion to its size, and the weights that match the target best and
    stay nearest to these are returned (proximal-point steps), so that no sweep's atoms end at zero
    merely because another sweep's atoms suffice.

    :param atoms: the n atoms of all sweeps.
    :param sweeps: the weights of each sweep, k numbers each.
    :param target: D, float64.
    :returns: n, float64.
    """
    total = sum(len(sweep) for sweep in sweeps)
    weights = torch.cat([sweep * (len(sweep) / total) for sweep in sweeps])
    gram, moment = atoms.gram(), atoms.correlate(target)
    gram.add_to_diagonal(PROXIMITY)
    factor = None if nonnegative else cholesky(gram)
    for _ in range(PROXIMAL_STEPS):
        pulled = moment + PROXIMITY * weights
        if factor is None:
            weights = nonnegative_least_squares(gram, pulled, weights)
        else:
            weights = factor.solve(factor.solve_transposed(pulled))
    return weights
