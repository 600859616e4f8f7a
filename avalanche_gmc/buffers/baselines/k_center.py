"""k-center: exemplars that leave no example far away.

Letters: N candidates, n of them picked, F features.
"""

from __future__ import annotations

import torch
from torch import Tensor

from avalanche_gmc.buffers.baselines.geometry import last_layer, layer_features
from avalanche_gmc.buffers.baselines.selection import Candidates, Selection, SelectionBuffer


class KCenterBuffer(SelectionBuffer):
    """Greedy k-center in feature space (Sener and Savarese, ICLR 2018, algorithm 1).

    Pick, again and again, the example whose distance to the closest pick is the largest: at most
    twice the smallest possible distance of any example to its closest pick.

    Where this departs from the paper:

    1. Features are those of the last layer at random draws of the parameters; the paper's, of the
       trained model, come with ``embedding="local"`` and a strategy whose model is trained.
    2. There are no examples to begin with, so the first pick is the one closest to the mean.
    3. It chooses from the exemplars and the new examples, which therefore cover what was seen
       before only up to their own distance to it.
    4. The greedy solution is not refined by a mixed integer program.

    :param max_size: the number of exemplars.
    :param embedding: see :class:`SelectionBuffer`; of the last layer. None is ``"last-layer"``.
    :param seed: of the draws.
    """

    def _select(self, candidates: Candidates, size: int) -> Selection:
        return Selection(k_center(layer_features(last_layer(candidates.atoms, "k-center")), size))


def k_center(features: Tensor, size: int) -> Tensor:
    """Farthest-point picks, no example twice: n.

    :param features: N×F.
    """
    # Around their mean, squared distances lose the fewest digits.
    features = features - features.mean(dim=0)
    squares = features.square().sum(dim=1)
    picks = [int(squares.argmin())]
    nearest = torch.full_like(squares, torch.inf)
    while len(picks) < size:
        center = picks[-1]
        distances = squares + squares[center] - 2 * (features @ features[center])
        nearest = torch.minimum(nearest, distances.clamp_(min=0))
        nearest[center] = -1
        picks.append(int(nearest.argmax()))
    return torch.tensor(picks)
