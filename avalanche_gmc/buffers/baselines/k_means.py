"""k-means++ sampling of gradients.

Letters: N candidates, n of them picked.
"""

from __future__ import annotations

import torch
from torch import Tensor

from avalanche_gmc.buffers.baselines.geometry import Columns
from avalanche_gmc.buffers.baselines.selection import Candidates, Selection, SelectionBuffer
from avalanche_gmc.dictionary import Dictionary
from avalanche_gmc.initialization import derive_seed


class KMeansPlusPlusBuffer(SelectionBuffer):
    """BADGE's sample: last-layer gradients by k-means++ (Ash et al., ICLR 2020).

    Draw one example after the other with a probability in proportion to the squared distance of
    its gradient to the closest gradient drawn before (Arthur and Vassilvitskii, 2007).

    Where this departs from the paper:

    1. Gradients are at random draws of the parameters. The paper's, at the current weights, come
       with ``embedding="local"`` and a strategy; but a model that was trained on the exemplars has
       gradients close to 0 for all of them, so that hardly any is drawn again.
    2. They are of the true labels, which the paper, on active learning, does not have.
    3. In a stream the exemplars represent what was seen before: each pick counts for the examples
       whose gradients are closest to it, and probabilities are in proportion to these numbers too
       (as in StreamKM++, Ackermann et al., 2012). The numbers are no weights for training.

    :param max_size: the number of exemplars.
    :param embedding: see :class:`SelectionBuffer`. None is ``"last-layer"``.
    :param seed: of the draws and of the sampling.
    """

    def _select(self, candidates: Candidates, size: int) -> Selection:
        generator = torch.Generator().manual_seed(derive_seed(self._seed, candidates.num_seen))
        return k_means_plus_plus(candidates.atoms, candidates.weights, size, generator)


def k_means_plus_plus(
    atoms: Dictionary, weights: Tensor, size: int, generator: torch.Generator
) -> Selection:
    """Sample distinct atoms; each counts for the weights of the atoms closest to it.

    :param weights: N, float64.
    """
    columns = Columns(atoms, size)
    squares = atoms.norms().cpu().double().square()
    uniforms = torch.rand(size, generator=generator, dtype=torch.float64)
    distances = torch.ones_like(weights)
    closest = torch.zeros(len(atoms), dtype=torch.long)
    free = torch.ones(len(atoms), dtype=torch.bool)
    picks: list[int] = []
    for number, uniform in enumerate(uniforms):
        pick = _draw(weights * distances * free, free, uniform)
        picks.append(pick)
        free[pick] = False
        to_pick = (squares + squares[pick] - 2 * columns[pick]).clamp_(min=0)
        to_pick[pick] = 0
        nearer = (to_pick < distances) | (number == 0)
        distances[nearer] = to_pick[nearer]
        closest[nearer] = number
    counts = torch.zeros(size, dtype=torch.float64).index_add_(0, closest, weights)
    return Selection(torch.tensor(picks), counts)


def _draw(masses: Tensor, free: Tensor, uniform: Tensor) -> int:
    """An index with a probability in proportion to its mass, or any free one if none has mass."""
    totals = (masses if float(masses.sum()) > 0 else free.double()).cumsum(dim=0)
    return int(torch.searchsorted(totals, uniform * totals[-1], right=True))
