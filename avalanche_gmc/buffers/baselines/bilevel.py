"""Bilevel coresets: exemplars on which a model learns what it would learn from everything.

Letters: N candidates, n of them picked, F features, C classes.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from avalanche_gmc.buffers.baselines.geometry import last_layer
from avalanche_gmc.buffers.baselines.selection import (
    Candidates,
    Embedding,
    Selection,
    SelectionBuffer,
    checked_ridge,
)
from avalanche_gmc.dictionary.base import widest


class BilevelBuffer(SelectionBuffer):
    """Greedy bilevel coresets (Borsos et al., NeurIPS 2020, section 3; streaming: section 4).

    Inner problem: fit the labels of the picks. Outer problem: pick such that the fit suits the
    labels of everything. The next pick is the candidate whose weight, raised from 0, lowers the
    outer loss fastest; the derivative comes from the implicit function theorem. Both losses are
    squared errors of one-hot labels, and the inner one is regularised by
    ``ridge·||parameters||²``, so that the inner problem is kernel ridge regression, solved exactly.

    Where this departs from the paper:

    1. The kernel is the Gram matrix of the last layer's features at random draws of the parameters
       (the part of the neural tangent kernel that belongs to the last layer), scaled to a mean of 1
       on its diagonal. The labels' errors are squared, where the paper also uses cross entropy.
    2. Picks have equal weights: weights are not optimised in between.
    3. Merge and reduce has one slot: the memory is reduced with the new examples at each update,
       its exemplars standing, in equal parts, for all examples seen before in the outer loss. The
       paper has several slots and merges two at a time. Updates much smaller than the memory, of
       ten examples say, hardly ever enter it late in a stream: merge them first.

    :param max_size: the number of exemplars.
    :param embedding: see :class:`SelectionBuffer`; of the last layer. None is ``"last-layer"``.
    :param ridge: the inner regularisation. Of the powers of ten, 0.1 led to the best models on
        scikit-learn's digits.
    :param seed: of the draws.
    """

    def __init__(
        self, max_size: int, embedding: Embedding = None, *, ridge: float = 0.1, seed: int = 0
    ) -> None:
        super().__init__(max_size, embedding, seed=seed)
        self._ridge = checked_ridge(ridge)

    def _select(self, candidates: Candidates, size: int) -> Selection:
        atoms = last_layer(candidates.atoms, "bilevel selection")
        features = atoms.features.transpose(0, 1).flatten(1)
        classes = torch.unique(candidates.labels, return_inverse=True)[1]
        picks = bilevel(
            features / features.square().sum(dim=1).mean().sqrt().clamp(min=1e-30),
            functional.one_hot(classes).to(features),
            candidates.weights.to(features),
            size,
            self._ridge,
        )
        return Selection(picks)


def bilevel(features: Tensor, targets: Tensor, weights: Tensor, size: int, ridge: float) -> Tensor:
    """Greedy picks, no candidate twice: n.

    With θ(w) the minimiser of ``Σ wᵢ ||θᵀφᵢ − yᵢ||² + ridge·||θ||²`` and H half its Hessian, the
    derivative of the outer loss ``Σ cᵢ ||θᵀφᵢ − yᵢ||²`` for the weight of k is ``−2 sₖᵀ rₖ``, where
    rᵢ are the errors ``θᵀφᵢ − yᵢ`` and ``sₖ = (Σ cᵢ rᵢ φᵢᵀ) H⁻¹ φₖ``. A pick changes H by φφᵀ, and
    therefore H⁻¹, all r and all s by matrices of rank 1 or 2 (Sherman and Morrison); three products
    of the features with a vector suffice for that.

    :param features: φ, N×F.
    :param targets: y, N×C.
    :param weights: c, N.
    """
    wide = widest(features.device)
    steps = features.new_zeros(size, features.shape[1], dtype=wide)

    def solved(vector: Tensor, count: int) -> Tensor:
        """H⁻¹ times a vector, after some picks: H⁻¹ = 1/ridge − Σ stepsᵢ stepsᵢᵀ."""
        return vector / ridge - (steps[:count] @ vector) @ steps[:count]

    errors = -targets.to(wide)
    slopes = -(features @ (features.T @ (weights[:, None] * targets))).to(wide) / ridge
    picks: list[int] = []
    for count in range(size):
        scores = (slopes * errors).sum(dim=1)
        scores[picks] = -torch.inf
        pick = int(scores.argmax())
        picks.append(pick)
        feature = features[pick].to(wide)
        step = solved(feature, count)
        scale = 1 / (1 + feature @ step)
        steps[count] = scale.sqrt() * step
        along = features @ step.to(features)
        back = solved((features.T @ (weights * along)).to(wide), count + 1)
        across = (features @ back.to(features)).to(wide)
        change, old_slope = -scale * errors[pick], scale * slopes[pick]
        errors += torch.outer(along.to(wide), change)
        slopes += torch.outer(across, change) - torch.outer(along.to(wide), old_slope)
    return torch.tensor(picks)
