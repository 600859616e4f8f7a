"""What selection rules compute from embeddings.

Letters: N atoms, m chosen ones, D dimensions, S draws, K outputs, H features, C classes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from avalanche_gmc.dictionary import Dictionary, LastLayerDictionary
from avalanche_gmc.dictionary.base import widest

BLOCK = 1024
WHOLE = 8192
"""Atoms up to which a Gram matrix is held: 256 MB in float32."""
PER_COLUMN = 8
"""Columns of a product of matrices that take about as long as one column alone."""


def last_layer(atoms: Dictionary, what: str) -> LastLayerDictionary:
    """The same atoms, known to be of a last layer.

    :param what: who needs it, for the error.
    """
    if isinstance(atoms, LastLayerDictionary):
        return atoms
    raise ValueError(
        f"{what} needs the features of the last layer, got a {type(atoms).__name__}; use the "
        "embedding 'last-layer' or 'local', or a LastLayerEmbedding"
    )


def layer_features(atoms: LastLayerDictionary) -> Tensor:
    """The inputs of the last layer at all draws: N×(S·H).

    The constant input of a bias becomes 0: it says nothing about an example.
    """
    features = atoms.features.transpose(0, 1).clone()
    if bool((features[:, :, -1] == 1).all()):
        features[:, :, -1] = 0
    return features.flatten(1)


def inner_products(atoms: Dictionary, indices: Tensor) -> Tensor:
    """Of all atoms with some of them: m → N×m."""
    if not isinstance(atoms, LastLayerDictionary):
        return atoms.correlate(atoms.rows(indices).T)
    # <e ⊗ f, e' ⊗ f'> = <e, e'> <f, f'>: S·(K+H) operations instead of S·K·H.
    result = atoms.errors.new_zeros(len(atoms), len(indices))
    for errors, features in zip(atoms.errors, atoms.features, strict=True):
        result += (errors @ errors[indices].T) * (features @ features[indices].T)
    return result


class Columns:
    """Inner products of all atoms with one of them: columns of the Gram matrix.

    Many columns of few atoms are computed together, which is faster, others one by one.

    :param needed: about how many columns will be asked for.
    """

    def __init__(self, atoms: Dictionary, needed: int) -> None:
        self._atoms = atoms
        self._whole: Tensor | None = None
        if len(atoms) <= min(WHOLE, PER_COLUMN * needed):
            self._whole = torch.empty(len(atoms), len(atoms), dtype=atoms.dtype)
            for block in torch.split(torch.arange(len(atoms)), BLOCK):
                # The matrix is symmetric, and its rows are faster to read than its columns.
                self._whole[block] = inner_products(atoms, block.to(atoms.device)).T.cpu()

    def __getitem__(self, atom: int) -> Tensor:
        """The products with an atom: N, float64, on the CPU."""
        if self._whole is not None:
            return self._whole[atom].double()
        index = torch.tensor([atom], device=self._atoms.device)
        return inner_products(self._atoms, index)[:, 0].cpu().double()


def weighted_sum(atoms: Dictionary, weights: Tensor) -> Tensor:
    """``Σ weights·atoms``: D, float64 where the device has it."""
    wide = widest(atoms.device)
    total = torch.zeros(atoms.dim, dtype=wide, device=atoms.device)
    for block in torch.split(torch.arange(len(atoms), device=atoms.device), BLOCK):
        total += weights.to(total)[block] @ atoms.rows(block).to(wide)
    return total


def class_budgets(available: dict[int, int], size: int) -> dict[int, int]:
    """Equal parts of ``size``; what a class has not enough examples for goes to the others.

    :param available: how many examples each class has.
    :returns: how many to select of each class, ``size`` in all or everything there is.
    """
    budgets, left = {}, size
    for rank, label in enumerate(sorted(available, key=lambda c: (available[c], c))):
        budgets[label] = min(available[label], left // (len(available) - rank))
        left -= budgets[label]
    return budgets
