"""What a report and the metrics ask of a storage policy, whichever it is."""

from __future__ import annotations

from typing import Any

import torch


def storage_policies(strategy: Any) -> list[Any]:
    """The distinct storage policies of a strategy and its plugins."""
    owners = [strategy, *getattr(strategy, "plugins", [])]
    policies = [getattr(owner, "storage_policy", None) for owner in owners]
    found = {id(policy): policy for policy in policies if hasattr(policy, "buffer")}
    return list(found.values())


def the_policy(memory: Any) -> Any:
    """The one storage policy that is meant by a storage policy, a plugin or a strategy."""
    if hasattr(memory, "buffer"):
        return memory
    found = storage_policies(memory)
    if len(found) != 1:
        raise ValueError(
            f"expected a storage policy, or a plugin or strategy with one, got a "
            f"{type(memory).__name__} with {len(found)} of them; give the storage policy itself"
        )
    return found[0]


def weights_of(policy: Any) -> list[float] | None:
    """One weight for each exemplar, or None if they have none."""
    weights = getattr(policy, "weights", None)
    return None if weights is None else torch.as_tensor(weights).double().tolist()


def residual_of(policy: Any) -> float | None:
    """What the last pursuit could not match, relative to its target; None if there is none."""
    residual = getattr(policy, "residual_norm", None)
    return None if residual is None else float(residual)
