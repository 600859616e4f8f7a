"""Whether to pick on inner products alone."""

from __future__ import annotations

from avalanche_gmc.dictionary import DenseDictionary, Dictionary, LastLayerDictionary
from avalanche_gmc.dictionary.gram import DenseGram, Gram, LastLayerGram
from avalanche_gmc.pursuit.gram_columns import WHOLE
from avalanche_gmc.pursuit.scoreboard import Scoreboard
from avalanche_gmc.pursuit.stepwise import is_light

FACTORED = 4
"""Atoms of a small dictionary are written out unless they have this many times as many numbers as
their factors."""
GRAM_BYTES = 2**32
"""The most bytes for the factor L and for what the inner products are computed from: 4 GiB."""


def is_factored(atoms: Dictionary) -> bool:
    """Whether the inner products of atoms cost much less than D multiplications."""
    numbers = atoms.nbytes // atoms.dtype.itemsize
    return isinstance(atoms, LastLayerDictionary) and len(atoms) * atoms.dim >= FACTORED * numbers


def gram_for(board: Scoreboard, size: int) -> Gram | None:
    """The Gram matrix, if ``size`` exact picks are best made on inner products alone."""
    atoms = board.dictionary
    if not board.is_whole or atoms.device.type != "cpu":
        return None
    inverse_norms = board.norms.reciprocal().nan_to_num(posinf=0.0)
    if isinstance(atoms, DenseDictionary):
        few = len(atoms) <= WHOLE and is_light(atoms)
        return DenseGram(atoms, inverse_norms) if few else None
    numbers = atoms.nbytes // atoms.dtype.itemsize + len(atoms) * min(size, atoms.dim)
    if not isinstance(atoms, LastLayerDictionary) or 8 * numbers > GRAM_BYTES:
        return None
    return LastLayerGram(atoms, inverse_norms)
