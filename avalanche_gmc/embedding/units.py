"""Output units that appear one after the other: a unit is one class of one head.

Letters: N examples, S draws, K units, H features (one of them the constant 1 of the bias).

The order of the units is that in which they appeared, so a head that grows appends columns and
changes none. The weights of a unit depend on the seed, the draw, the head and the class only, not
on when it appeared or on how many others there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from avalanche_gmc.embedding.losses import ExampleLoss
from avalanche_gmc.initialization import derive_seed

MASKED = -1000.0
"""The output of a unit that does not exist, as in Avalanche's heads: its softmax is 0."""

Unit = tuple[int, int]
"""Head and class label."""


class Units:
    """Never changed, only replaced.

    :param pairs: K units in the order in which they appeared.
    """

    def __init__(self, pairs: Sequence[Unit] = ()) -> None:
        self.pairs = tuple(pairs)

    def __len__(self) -> int:
        return len(self.pairs)

    def with_(self, pairs: Sequence[Unit]) -> Units:
        """With those of these units that are new, in ascending order; this object if none is."""
        new = sorted(set(pairs) - self.places.keys())
        return Units([*self.pairs, *new]) if new else self

    @cached_property
    def places(self) -> dict[Unit, int]:
        """The column of each unit."""
        return {pair: place for place, pair in enumerate(self.pairs)}

    def drawn(self, first: int, in_features: int, seed: int, draws: int) -> Tensor:
        """Weights and biases of the units from ``first`` on: S×(K−first)×H.

        Initialised as by ``nn.Linear``: uniform within ±1/√in_features.
        """
        rows = torch.empty(draws, len(self) - first, in_features + 1)
        generator = torch.Generator()
        for draw in range(draws):
            for row, (head, label) in zip(rows[draw], self.pairs[first:], strict=True):
                generator.manual_seed(derive_seed(seed, draw, head, label))
                row.uniform_(-(in_features**-0.5), in_features**-0.5, generator=generator)
        return rows

    def errors(self, outputs: Tensor, targets: Tensor, loss: ExampleLoss) -> Tensor:
        """The gradient of the loss with respect to the outputs: N×K, N → N×K.

        An example has errors at the units of its own head only. While a head has a single unit, a
        second one of output 0 is added for classes to come: a softmax over one has no gradient.

        :param targets: columns of units; a negative one has no errors at all.
        """
        heads, labels = torch.tensor(self.pairs, device=outputs.device).reshape(-1, 2).T
        errors = torch.zeros_like(outputs)
        for head in set(heads[targets[targets >= 0]].tolist()):
            columns = (heads == head).nonzero()[:, 0]
            rows = ((targets >= 0) & (heads[targets] == head)).nonzero()[:, 0]
            own = labels[columns]
            # As the head has them: one for every class label up to its largest.
            all_classes = outputs.new_full((len(rows), max(2, int(own.max()) + 1)), MASKED)
            if len(own) == 1:
                all_classes[:, 1 if own[0] == 0 else 0] = 0.0
            all_classes[:, own] = outputs[rows][:, columns]
            gradient = loss.output_gradient(all_classes, labels[targets[rows]])
            errors[rows[:, None], columns] = gradient[:, own]
        return errors
