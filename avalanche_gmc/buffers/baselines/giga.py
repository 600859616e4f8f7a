"""GIGA: a coreset by steps along great circles.

Letters: N atoms, n of them picked, D dimensions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from avalanche_gmc.buffers.baselines.geometry import Columns, weighted_sum
from avalanche_gmc.buffers.baselines.selection import (
    Candidates,
    Selection,
    WeightedSelectionBuffer,
)
from avalanche_gmc.dictionary import Dictionary

STEPS = 2
"""Steps per exemplar after which an atom is not taken again; more led to no better models."""


class GIGABuffer(WeightedSelectionBuffer):
    """Greedy iterative geodesic ascent (Campbell and Broderick, ICML 2018, algorithm 2).

    Matches the same target by the same embedding as gradient matching does, in another way: the
    weighted sum of the picks, scaled to length 1, moves on the sphere, each time towards the atom
    in whose direction the target lies, and as far as brings it closest. Weights are never negative.

    Where this departs from the paper:

    1. Vectors are loss gradients at random draws of the parameters, not log-likelihoods at samples
       of a posterior.
    2. A step may take an atom again. Steps are made until there are ``max_size`` different ones.
       After ``STEPS`` times as many steps only new atoms are taken, and if none improves the match,
       the atoms that are best aligned with the target fill the memory with weight 0.
    3. In a stream the target is the sum of the gradients of everything seen, and candidates are
       the exemplars and the new examples, as in gradient matching.

    :param max_size: the number of exemplars.
    :param embedding: see :class:`SelectionBuffer`. None is ``"last-layer"``.
    :param seed: of the draws.
    """

    always_selects = True

    def _select(self, candidates: Candidates, size: int) -> Selection:
        if self._embedding.is_local or candidates.summary is None:
            target = weighted_sum(candidates.atoms, candidates.weights)
        else:
            new = torch.arange(candidates.stored, len(candidates), device=candidates.atoms.device)
            target = candidates.summary
            if len(new):
                target = target + candidates.atoms.take(new).sum()
        if 0 < size < len(candidates):
            return giga(candidates.atoms, target, size)._replace(summary=target)
        kept = torch.arange(min(size, len(candidates)))
        return Selection(kept, candidates.weights[kept], target)


def giga(atoms: Dictionary, target: Tensor, size: int) -> Selection:
    """Distinct atoms whose weighted sum has about the direction of the target, and its length.

    :param target: D.
    """
    norms = atoms.norms().cpu().double()
    inverse = torch.where(norms > 0, 1 / norms, 0.0)
    length = float(torch.linalg.vector_norm(target))
    state = _Sphere(len(atoms))
    if length > 0:
        aligned = atoms.correlate(target / length).cpu().double() * inverse
        state.ascend(atoms, inverse, aligned, size)
    else:
        aligned = inverse
    rest = aligned.clone()
    rest[state.picks] = -torch.inf
    order = [*state.picks, *rest.topk(size - len(state.picks)).indices.tolist()]
    indices = torch.tensor(order)
    return Selection(indices, (state.weights * inverse)[indices] * length * state.cosine)


class _Sphere:
    """The normalised weighted sum y of unit atoms, by its products with atoms and target."""

    def __init__(self, num_atoms: int) -> None:
        self.picks: list[int] = []
        self.cosine = 0.0  # <target, y>
        self.weights = torch.zeros(num_atoms, dtype=torch.float64)
        self._along = torch.zeros(num_atoms, dtype=torch.float64)  # <atom, y>

    def ascend(self, atoms: Dictionary, inverse: Tensor, aligned: Tensor, size: int) -> None:
        """Steps until there are enough picks, or none helps.

        :param inverse: N, one over the norms of the atoms, 0 for zero atoms.
        :param aligned: N, the cosines of atoms and target.
        """
        columns = Columns(atoms, STEPS * size)
        known = torch.zeros(len(atoms), dtype=torch.bool)
        for step in range((STEPS + 1) * size):
            scores = self._scores(aligned)
            if step >= STEPS * size:
                scores[known] = -torch.inf
            pick = int(scores.argmax())
            if len(self.picks) == size or not float(scores[pick]) > 1e-9:
                return
            if not known[pick]:
                known[pick] = True
                self.picks.append(pick)
            column = columns[pick] * inverse * inverse[pick]
            self._move(pick, column, float(aligned[pick]))

    def _scores(self, aligned: Tensor) -> Tensor:
        """Cosines, in the plane orthogonal to y, of atoms and target: N."""
        across = (1 - self._along.square()).clamp_(min=0).sqrt()
        rest = max(0.0, 1 - self.cosine**2) ** 0.5
        scores = (aligned - self.cosine * self._along) / (across * rest)
        # Of an atom along y, or a spent residual, nothing is left but rounding.
        return torch.where(across > 1e-5, scores, -torch.inf) if rest > 1e-6 else -across

    def _move(self, pick: int, column: Tensor, cosine: float) -> None:
        """Go towards an atom, to the point closest to the target."""
        between = float(self._along[pick])
        towards, back = cosine - self.cosine * between, self.cosine - cosine * between
        part = min(1.0, max(0.0, towards / (towards + back)))
        old = 1 - part
        scale = (old**2 + part**2 + 2 * old * part * between) ** -0.5
        self.weights *= old * scale
        self.weights[pick] += part * scale
        self._along = (old * self._along + part * column) * scale
        self.cosine = (old * self.cosine + part * cosine) * scale
