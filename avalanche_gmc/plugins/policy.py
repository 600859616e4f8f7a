"""What the plugins ask of a storage policy."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from avalanche.training.storage_policy import ExemplarsBuffer

from avalanche_gmc.buffers import GradientMatchingBuffer
from avalanche_gmc.buffers.base import OwningBuffer, checked

if TYPE_CHECKING:
    from avalanche.training.templates import SupervisedTemplate

REHEARSED = 16
"""The number of examples on which a first update is tried out."""


def resolve_policy(mem_size: int, storage_policy: Any, seed: int, model_factory: Any = None) -> Any:
    """The policy to use, checked against the memory size.

    :param mem_size: the number of exemplars the user asked for.
    :param storage_policy: any ``ExemplarsBuffer``; None for a ``GradientMatchingBuffer``.
    :param seed: the seed of the default policy.
    :param model_factory: what the default policy draws its models from; None: the strategy's model.
    """
    checked("mem_size", mem_size, least=1)
    if storage_policy is None:
        return GradientMatchingBuffer(mem_size, seed=seed, model_factory=model_factory)
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


def update_memory(storage_policy: Any, strategy: SupervisedTemplate) -> None:
    """Show the current experience to the policy.

    ``ExemplarsBuffer.update`` is deprecated but some policies implement nothing else.
    """
    if type(storage_policy).post_adapt is ExemplarsBuffer.post_adapt:
        storage_policy.update(strategy)
    else:
        storage_policy.post_adapt(strategy, strategy.experience)


def rehearse_update(storage_policy: Any, strategy: SupervisedTemplate) -> None:
    """Raise now what the first update would raise after a training that may take hours.

    A copy of the memory is updated with a few examples; the memory itself does not change.
    """
    if isinstance(storage_policy, OwningBuffer) and len(storage_policy.buffer) == 0:
        data = strategy.experience.dataset
        few = data.subset(list(range(min(len(data), REHEARSED))))
        copy.deepcopy(storage_policy).update_from_dataset(few, strategy)
