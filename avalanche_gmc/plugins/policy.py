"""What the plugins ask of a storage policy."""

from __future__ import annotations

from typing import Any

from avalanche.training.storage_policy import ExemplarsBuffer

from avalanche_gmc.buffers import GradientMatchingBuffer


def resolve_policy(mem_size: int, storage_policy: Any, seed: int = 0) -> Any:
    """The policy to use, checked against the memory size.

    :param mem_size: the number of exemplars the user asked for.
    :param storage_policy: any ``ExemplarsBuffer``; None for a ``GradientMatchingBuffer``.
    :param seed: the seed of the default policy.
    """
    if isinstance(mem_size, bool) or not isinstance(mem_size, int) or mem_size < 1:
        raise ValueError(f"mem_size must be an integer of at least 1, got {mem_size!r}")
    if storage_policy is None:
        return GradientMatchingBuffer(mem_size, seed=seed)
    if not isinstance(storage_policy, ExemplarsBuffer):
        raise ValueError(
            f"storage_policy must be an ExemplarsBuffer, got {type(storage_policy).__name__}"
        )
    if storage_policy.max_size != mem_size:
        raise ValueError(
            f"mem_size is {mem_size} and the storage policy's max_size is "
            f"{storage_policy.max_size}; give both the same size"
        )
    return storage_policy


def update_memory(storage_policy: Any, strategy: Any) -> None:
    """Show the current experience to the policy.

    ``ExemplarsBuffer.update`` is deprecated but some policies implement nothing else.
    """
    if type(storage_policy).post_adapt is ExemplarsBuffer.post_adapt:
        storage_policy.update(strategy)
    else:
        storage_policy.post_adapt(strategy, strategy.experience)
