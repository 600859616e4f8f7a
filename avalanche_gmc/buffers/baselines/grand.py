"""GraNd: the examples with the largest gradients.

Letters: N candidates, S draws, K outputs, H features.
"""

from __future__ import annotations

import torch
from torch import Tensor

from avalanche_gmc.buffers.baselines.geometry import last_layer
from avalanche_gmc.buffers.baselines.selection import Candidates, Selection, SelectionBuffer
from avalanche_gmc.dictionary import LastLayerDictionary


class GradientNormBuffer(SelectionBuffer):
    """The largest GraNd scores of each class (Paul et al., NeurIPS 2021).

    The score of an example is the norm of its loss gradient, averaged over random draws of the
    parameters. It does not depend on other examples, so that in a stream the memory is the one
    that would be chosen from all data at once.

    Where this departs from the paper:

    1. Gradients are of the last layer only.
    2. Scores are of the initialisation. The paper also takes them after a few epochs, which needs
       draws that are trained.
    3. Every class has an equal part of the memory: the paper removes few examples of a fixed
       dataset, and the largest scores of a stream may be of one class. What a rare class has not
       enough examples for goes to the others.

    :param max_size: the number of exemplars.
    :param embedding: see :class:`SelectionBuffer`; of the last layer. None is ``"last-layer"``.
    :param seed: of the draws.
    """

    def _select(self, candidates: Candidates, size: int) -> Selection:
        scores = grand_scores(last_layer(candidates.atoms, "GraNd")).cpu()
        picks = []
        for _, members, budget in candidates.budgets(size):
            best = scores[members].sort(descending=True, stable=True).indices
            picks.append(members[best[:budget]])
        return Selection(torch.cat(picks))


def grand_scores(atoms: LastLayerDictionary) -> Tensor:
    """The mean over the draws of each gradient's norm: N."""
    errors = torch.linalg.vector_norm(atoms.errors, dim=2)
    features = torch.linalg.vector_norm(atoms.features, dim=2)
    scores: Tensor = (errors * features).mean(dim=0)
    return scores
