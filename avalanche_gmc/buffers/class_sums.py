"""What a memory remembers of everything it saw: how many examples, and the sum of their gradients.

Letters: K classes, D dimensions, N examples seen, N_c of class c.

The sums are kept class by class, and the target of the pursuit is

    Σ_c  N / (K · N_c)  ·  (sum over class c),

N times the mean of the class means: every class counts alike, however many examples it had. With
all examples in one class it is the sum over everything seen, the paper's target.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from avalanche_gmc.collectives import OneRank
from avalanche_gmc.dictionary import Dictionary

MOST_BYTES = 2**31
"""The most that the sums of all classes may take: 2 GiB."""


@dataclass(frozen=True, eq=False)
class ClassSums:
    """Never changed, only replaced.

    :param counts: N_c by class.
    :param sums: by class: D, float64.
    """

    counts: Mapping[int, int] = field(default_factory=dict)
    sums: Mapping[int, Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, own: Dictionary, labels: Tensor, ranks: OneRank) -> ClassSums:
        """Of new examples.

        :param own: the embeddings of this rank's part of the examples.
        :param labels: of all of them, on every rank: N, int64.
        """
        counts = Counter(sorted(labels.tolist()))
        part = labels[list(ranks.part(len(labels)))]

        def add_up() -> Tensor:
            if len(counts) == 1:
                return _finite(own.sum().cpu().double()[None])
            members = ((part == label).nonzero()[:, 0].to(own.device) for label in counts)
            return _finite(torch.stack([own.take(m).sum().cpu().double() for m in members]))

        step = "adding up embeddings"
        own_sums = ranks.together(step, add_up)
        # In the order of the ranks: the same bits on all of them.
        total = torch.stack([sums for (sums,) in ranks.gather(step, own_sums)]).sum(dim=0)
        # Rows of their own: a row would keep all others alive, and pickle with them.
        return cls(counts, {label: row.clone() for label, row in zip(counts, total, strict=True)})

    @property
    def num_seen(self) -> int:
        """N."""
        return sum(self.counts.values())

    def plus(self, new: ClassSums) -> ClassSums:
        """With new examples."""
        counts, sums = dict(self.counts), dict(self.sums)
        for label, count in new.counts.items():
            counts[label] = counts.get(label, 0) + count
            sums[label] = sums[label] + new.sums[label] if label in sums else new.sums[label]
        return ClassSums(counts, sums)

    def factors(self, labels: Tensor) -> Tensor:
        """How much one example of each of these classes counts in the target: n → n, float64."""
        scale = self.num_seen / max(1, len(self.counts))
        return torch.tensor(
            [scale / self.counts[label] for label in labels.tolist()], dtype=torch.float64
        )

    @property
    def target(self) -> Tensor | None:
        """What the weighted memory shall match: D, float64; None if nothing was seen."""
        if not self.sums:
            return None
        factors = self.factors(torch.tensor(list(self.sums)))
        total = torch.zeros_like(next(iter(self.sums.values())))
        for factor, summed in zip(factors.tolist(), self.sums.values(), strict=True):
            total += factor * summed
        return total

    def check_room(self, labels: Tensor, dim: int) -> None:
        """Refuse to begin sums that would take more than ``MOST_BYTES``."""
        classes = len(self.counts.keys() | set(labels.tolist()))
        if classes > 1 and 8 * classes * dim > MOST_BYTES:
            raise ValueError(
                f"target='balanced' keeps a sum of {dim} numbers for each class, "
                f"{8 * classes * dim / 2**30:.1f} GiB for {classes} classes; use target='stream', "
                "or an embedding with fewer dimensions (RandomProjectionEmbedding, fewer draws)"
            )


def _finite(sums: Tensor) -> Tensor:
    if not bool(sums.isfinite().all()):
        raise ValueError("the embeddings of the new examples must be finite")
    return sums
