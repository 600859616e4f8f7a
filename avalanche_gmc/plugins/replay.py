"""Experience replay with any storage policy, each side counting for what it stands for."""

from __future__ import annotations

from typing import Any

from avalanche.benchmarks.utils.data_loader import ReplayDataLoader

from avalanche_gmc.exemplars import with_weights
from avalanche_gmc.plugins.loading import gathering
from avalanche_gmc.plugins.policy import resolve_policy, update_memory
from avalanche_gmc.plugins.weighted_loss import WeightedLossPlugin, memory_weights

LOADER_OPTIONS = ("pin_memory", "persistent_workers", "ffcv_args")


class CoresetReplayPlugin(WeightedLossPlugin, supports_distributed=True):  # type: ignore[call-arg]
    """Train on the current experience and the memory together; update the memory afterwards.

    Every minibatch holds `batch_size` current rows and `batch_size_mem` memory rows, and the length
    of an epoch follows the current data, as in Avalanche's ``ReplayPlugin``. A minibatch's loss is
    ``(1-share)·mean(current) + share·mean(w·memory)`` where w are the policy's ``weights`` divided
    by their mean, or 1 for a policy without weights.

    In distributed training each rank draws `batch_size` and `batch_size_mem` rows of its share, and
    all ranks must end with the same memory: a ``GradientMatchingBuffer`` sees to it, and so do
    policies that depend on nothing but the data and a seed of their own.

    :param mem_size: the number of exemplars.
    :param batch_size: current rows per minibatch; the strategy's ``train_mb_size`` by default.
    :param batch_size_mem: memory rows per minibatch; the strategy's ``train_mb_size`` by default.
    :param task_balanced_dataloader: draw the same number of memory rows for each task.
    :param storage_policy: any ``ExemplarsBuffer`` of that size; a ``GradientMatchingBuffer`` by
        default.
    :param memory_share: the memory's part of the loss. "stream": N_past : N_now, the part of the
        stream that it stands for. A float between 0 and 1: that part. "batch": every row counts for
        itself, so the part is that of the memory's rows in the minibatch (Avalanche's behaviour).
    """

    def __init__(
        self,
        mem_size: int = 200,
        batch_size: int | None = None,
        batch_size_mem: int | None = None,
        task_balanced_dataloader: bool = False,
        storage_policy: Any = None,
        *,
        memory_share: str | float = "stream",
    ) -> None:
        super().__init__()
        self.mem_size = mem_size
        self.batch_size = batch_size
        self.batch_size_mem = batch_size_mem
        self.task_balanced_dataloader = task_balanced_dataloader
        self.storage_policy = resolve_policy(mem_size, storage_policy)
        self.memory_share = _check_share(memory_share)
        self._num_seen = len(self.storage_policy.buffer)

    def before_training_exp(
        self,
        strategy: Any,
        num_workers: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
        **kwargs: Any,
    ) -> None:
        """Load minibatches of current data and memory."""
        self.expect_no_weights()
        memory = self.storage_policy.buffer
        if len(memory) == 0:
            return
        weights = memory_weights(self.storage_policy)
        if weights is not None or self.memory_share != "batch":
            memory = with_weights(memory, 1.0 if weights is None else weights.tolist())
            self.expect_weights(strategy, memory)
        loader = ReplayDataLoader(
            strategy.adapted_dataset,
            memory,
            oversample_small_tasks=True,
            batch_size=self.batch_size or strategy.train_mb_size,
            batch_size_mem=self.batch_size_mem or strategy.train_mb_size,
            task_balanced_dataloader=self.task_balanced_dataloader,
            num_workers=num_workers,
            shuffle=shuffle,
            drop_last=drop_last,
            **{key: kwargs[key] for key in LOADER_OPTIONS if key in kwargs},
        )
        strategy.dataloader = gathering(loader, self._share(strategy))

    def after_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Show the experience to the storage policy."""
        self._num_seen += len(strategy.experience.dataset)
        update_memory(self.storage_policy, strategy)

    def _share(self, strategy: Any) -> float | None:
        if self.memory_share == "batch":
            return None
        if self.memory_share != "stream":
            return float(self.memory_share)
        past = getattr(self.storage_policy, "num_seen", self._num_seen)
        return float(past / (past + len(strategy.experience.dataset)))


def _check_share(share: str | float) -> str | float:
    if share in ("stream", "batch"):
        return share
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share <= 1:
        raise ValueError(
            f"memory_share must be 'stream', 'batch' or a number between 0 and 1, got {share!r}"
        )
    return float(share)
