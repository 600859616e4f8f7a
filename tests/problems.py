"""Made-up dictionaries that several tests share."""

from __future__ import annotations

import torch

from avalanche_gmc import LastLayerDictionary

OUTPUTS, FEATURES = 9, 14


def last_layer(
    count: int, draws: int, seed: int, *, rank: int = FEATURES, dtype: torch.dtype = torch.float32
) -> LastLayerDictionary:
    """Errors as of a softmax near its start, features that are positive and of low rank."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(OUTPUTS, (count,), generator=draw)
    noise = 0.1 * torch.randn(draws, count, OUTPUTS, generator=draw)
    errors = noise + 1 / OUTPUTS - torch.eye(OUTPUTS)[labels]
    features = torch.randn(draws, count, rank, generator=draw)
    features = (features @ torch.randn(rank, FEATURES, generator=draw)).relu()
    return LastLayerDictionary(errors.to(dtype), features.to(dtype))
