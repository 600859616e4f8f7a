"""Herding: exemplars whose mean is the mean of their class.

Letters: N examples of a class, n of them picked, F features.
"""

from __future__ import annotations

import torch
from torch import Tensor

from avalanche_gmc.buffers.baselines.geometry import last_layer, layer_features
from avalanche_gmc.buffers.baselines.selection import Candidates, Selection, SelectionBuffer


class HerdingBuffer(SelectionBuffer):
    """iCaRL's exemplars (Rebuffi et al., CVPR 2017, algorithms 4 and 5; herding: Welling, 2009).

    Each class has an equal part of the memory and a list of exemplars. The k-th one is the example
    that brings the mean of the first k features closest to the class mean. When other classes
    need room, lists are cut at their end. Features have length 1.

    Where this departs from the paper:

    1. Features are those of the last layer at random draws of the parameters; the paper's, of the
       trained model, come with ``embedding="local"`` and a strategy whose model is trained.
    2. A class may come again. Its list is then made anew, from its exemplars and new examples, and
       the class mean is over everything seen of it: a running sum. With ``"local"``, where old
       features are of no use, the exemplars represent what was seen before.
    3. Averages are not scaled to length 1, only features.
    4. What a rare class has not enough examples for goes to the other classes.

    :param max_size: the number of exemplars.
    :param embedding: see :class:`SelectionBuffer`; of the last layer. None is ``"last-layer"``.
    :param seed: of the draws.
    """

    always_selects = True

    def _select(self, candidates: Candidates, size: int) -> Selection:
        features = layer_features(last_layer(candidates.atoms, "herding"))
        features = torch.nn.functional.normalize(features, dim=1)
        sums = self._class_sums(candidates, features)
        return self._herd(candidates, features, sums, size)._replace(summary=sums)

    def _class_sums(
        self, candidates: Candidates, features: Tensor
    ) -> dict[int, tuple[Tensor, float]]:
        """The sum of features and the number of examples seen, by class."""
        rebuilt = self._embedding.is_local
        sums = {} if rebuilt or candidates.summary is None else dict(candidates.summary)
        for label, members in candidates.members.items():
            if not rebuilt:
                members = members[members >= candidates.stored]
            weights = candidates.weights[members]
            total, count = sums.get(label, (torch.zeros(features.shape[1]), 0.0))
            added = weights.float() @ features[members.to(features.device)].cpu()
            sums[label] = (total + added, count + float(weights.sum()))
        return sums

    def _herd(
        self,
        candidates: Candidates,
        features: Tensor,
        sums: dict[int, tuple[Tensor, float]],
        size: int,
    ) -> Selection:
        lists, weights = [torch.arange(0)], [torch.zeros(0, dtype=torch.float64)]
        for label, members, budget in candidates.budgets(size):
            total, count = sums[label]
            if bool((members >= candidates.stored).any()):
                own = features[members.to(features.device)]
                lists.append(members[herd(own, total.to(own) / count, budget)])
            else:
                lists.append(members[:budget])
            weights.append(torch.full((budget,), count / max(1, budget), dtype=torch.float64))
        return Selection(torch.cat(lists), torch.cat(weights))


def herd(features: Tensor, mean: Tensor, size: int) -> Tensor:
    """The first ``size`` examples in herding order, no example twice: n.

    :param features: N×F.
    :param mean: F.
    """
    squares = features.square().sum(dim=1)
    picks: list[int] = []
    total = torch.zeros_like(mean)
    for count in range(1, size + 1):
        # The least ||mean − (total + feature) / count||², without its constant part.
        scores = 2 * (features @ (count * mean - total)) - squares
        scores[picks] = -torch.inf
        picks.append(int(scores.argmax()))
        total = total + features[picks[-1]]
    return torch.tensor(picks, dtype=torch.long)
