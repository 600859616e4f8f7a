"""GradMatch and GCR: matching pursuit at the current weights, with a ridge.

Letters: N atoms, k of them picked so far, n in the end, D dimensions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from avalanche_gmc.buffers.baselines.geometry import weighted_sum
from avalanche_gmc.buffers.baselines.selection import (
    Candidates,
    Embedding,
    Selection,
    WeightedSelectionBuffer,
    checked_ridge,
)
from avalanche_gmc.buffers.embedding_choice import LOCAL
from avalanche_gmc.dictionary import Dictionary
from avalanche_gmc.pursuit.nonnegative import nonnegative_least_squares


class GradMatchBuffer(WeightedSelectionBuffer):
    """GradMatch in a stream (Killamsetty et al., ICML 2021; as memory: GCR, Tiwari et al., 2022).

    For each class, pick weighted examples whose gradients at the current weights add up to those of
    the class: orthogonal matching pursuit on ``||target − Σ wᵢ gᵢ||² + ridge·||w||²``. In the
    target, an exemplar counts with its weight and a new example with 1.

    Where this departs from the papers:

    1. Gradients are of the last layer, at the weights the model has when the buffer is updated.
    2. ``ridge`` is relative to the mean squared norm of the gradients of the class, which at the
       current weights may have any size.
    3. Weights ≥ 0 are fitted at the end, on the picks of the unconstrained pursuit.
    4. The weights of a class are scaled to add up to the number of its examples seen. The ridge
       shrinks them, and in a stream it would do so to old classes again and again. Where gradients
       vanish, all exemplars of the class weigh the same.
    5. GCR's loss has a term for stored outputs; here the loss is the strategy's.

    Our local variant, ``GradientMatchingBuffer(n, "local")``, has neither ridge nor classes.

    :param max_size: the number of exemplars.
    :param embedding: see :class:`SelectionBuffer`. None is ``"local"``, the papers': it needs a
        strategy, whose model it takes as it is.
    :param ridge: pull of the weights to 0.
    :param seed: of draws.
    """

    default_embedding = LOCAL

    def __init__(
        self, max_size: int, embedding: Embedding = None, *, ridge: float = 0.5, seed: int = 0
    ) -> None:
        super().__init__(max_size, embedding, seed=seed)
        self._ridge = checked_ridge(ridge)

    def _select(self, candidates: Candidates, size: int) -> Selection:
        picks, weights = [], []
        for _, members, budget in candidates.budgets(size):
            atoms = candidates.atoms.take(members.to(candidates.atoms.device))
            stands_for = candidates.weights[members]
            own, fitted = ridge_pursuit(atoms, stands_for, budget, self._ridge)
            picks.append(members[own])
            weights.append(_scaled(fitted, stands_for.sum()))
        return Selection(torch.cat(picks), torch.cat(weights))


def _scaled(weights: Tensor, total: Tensor) -> Tensor:
    """Weights of the given sum; all the same if there is nothing to scale."""
    if float(weights.sum()) > 0:
        return weights * (total / weights.sum())
    return total.expand(len(weights)) / max(1, len(weights))


def ridge_pursuit(
    atoms: Dictionary, weights: Tensor, size: int, ridge: float
) -> tuple[Tensor, Tensor]:
    """Distinct atoms for the target ``Σ weights·atoms``, and their weights: n and n.

    :param weights: N, float64.
    :param ridge: relative to the mean squared norm of the atoms.
    """
    penalty = ridge * float(atoms.norms().square().mean())
    if penalty == 0 or size == 0:
        return torch.arange(size), torch.zeros(size, dtype=torch.float64)
    target = weighted_sum(atoms, weights).cpu().double()
    picked = _Picked(size, target, penalty)
    for _ in range(size):
        scores = atoms.correlate(picked.residual.to(atoms.device)).cpu()
        scores[picked.indices] = -torch.inf
        pick = scores.argmax()
        picked.append(int(pick), atoms.rows(pick[None].to(atoms.device))[0].cpu().double())
    return torch.tensor(picked.indices), picked.nonnegative_weights()


class _Picked:
    """Picked atoms, and the Cholesky factor of their Gram matrix plus the ridge."""

    def __init__(self, size: int, target: Tensor, penalty: float) -> None:
        self.indices: list[int] = []
        self.residual = target
        self._target, self._penalty = target, penalty
        self._rows = torch.zeros(size, len(target), dtype=torch.float64)
        self._lower = torch.zeros(size, size, dtype=torch.float64)
        self._fit = torch.zeros(0, dtype=torch.float64)

    def append(self, index: int, row: Tensor) -> None:
        """Add an atom (D), fit all weights anew and update the residual."""
        k = len(self.indices)
        rows, lower = self._rows[: k + 1], self._lower[: k + 1, : k + 1]
        self.indices.append(index)
        rows[k] = row
        products = rows @ row
        above = torch.linalg.solve_triangular(lower[:k, :k], products[:k, None], upper=False)[:, 0]
        lower[k, :k] = above
        lower[k, k] = (products[k] + self._penalty - above @ above).sqrt()
        self._fit = torch.cholesky_solve((rows @ self._target)[:, None], lower)[:, 0]
        self.residual = self._target - self._fit @ rows

    def nonnegative_weights(self) -> Tensor:
        """The best weights ≥ 0: n."""
        gram = self._rows @ self._rows.T
        gram.diagonal().add_(self._penalty)
        return nonnegative_least_squares(gram, self._rows @ self._target, self._fit)
