"""Experience replay with any storage policy; the loss weights current data and memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from avalanche.benchmarks.utils.data_loader import ReplayDataLoader

from avalanche_gmc.buffers.base import checked
from avalanche_gmc.plugins.base import WeightedLossPlugin
from avalanche_gmc.plugins.loading import gathering
from avalanche_gmc.plugins.policy import rehearse_update, update_memory

if TYPE_CHECKING:
    from avalanche.training.storage_policy import ExemplarsBuffer
    from avalanche.training.templates import SupervisedTemplate

LOADER_OPTIONS = ("pin_memory", "persistent_workers", "ffcv_args")


class CoresetReplayPlugin(WeightedLossPlugin, supports_distributed=True):  # type: ignore[call-arg]
    """Train on the current experience and the memory together; update the memory afterwards.

    Every minibatch holds `batch_size` current rows and `batch_size_mem` memory rows, and the length
    of an epoch follows the current data, as in Avalanche's ``ReplayPlugin``. A minibatch's loss is
    ``(1-share)·mean(current) + share·mean(w·memory)`` where w are the policy's ``weights`` divided
    by their mean, or 1 for a policy without weights.

    **The share matters as much as the memory.** It says how the loss is divided between the current
    experience and everything before it.

    - ``memory_share="stream"``, the default: ``N_past / (N_past + N_now)``, counted in examples of
      the stream. After nine experiences of equal size the memory makes up nine tenths of the loss,
      so that the whole loss estimates the mean over the stream so far.
    - ``memory_share="batch"``, as Avalanche does: every row of a minibatch counts alike. With as
      many memory rows as current rows the memory makes up one half, at the tenth experience as at
      the second, so that each old experience counts for less and less.
    - A number, for streams whose newest data matter more or less than that: ``memory_share=0.3``
      leaves 0.7 of the loss to the current experience.

    The share changes the loss, not the minibatches: `batch_size_mem` says from how many rows the
    memory's part is estimated, at every share but "batch".

    In distributed training each rank draws `batch_size` and `batch_size_mem` rows of its part of
    the data, and all ranks must end with the same memory: true for a
    ``GradientMatchingBuffer``, and for policies that depend only on the data and their own seed.

    :param mem_size: the number of exemplars.
    :param batch_size: current rows per minibatch; the strategy's ``train_mb_size`` by default.
    :param batch_size_mem: memory rows per minibatch; the strategy's ``train_mb_size`` by default.
    :param task_balanced_dataloader: draw the same number of memory rows for each task.
    :param storage_policy: any ``ExemplarsBuffer`` of that size; a ``GradientMatchingBuffer`` by
        default.
    :param memory_share: the memory's part of the loss, see above: "stream", the part of the stream
        that came before; a number between 0 and 1; or "batch", the part of the minibatch's rows.
    :param seed: the seed of the default policy. Runs that should differ need different seeds here.
    """

    def __init__(
        self,
        mem_size: int = 200,
        batch_size: int | None = None,
        batch_size_mem: int | None = None,
        task_balanced_dataloader: bool = False,
        storage_policy: ExemplarsBuffer | None = None,
        *,
        memory_share: str | float = "stream",
        seed: int = 0,
    ) -> None:
        super().__init__(mem_size, storage_policy, seed)
        for name, size in (("batch_size", batch_size), ("batch_size_mem", batch_size_mem)):
            if size is not None:
                checked(name, size, least=1)
        self.batch_size = batch_size
        self.batch_size_mem = batch_size_mem
        self.task_balanced_dataloader = task_balanced_dataloader
        self.memory_share = _checked_share(memory_share)
        self._num_seen = len(self.storage_policy.buffer)
        self._rehearsed = False

    @property
    def _always_weighted(self) -> bool:
        return self.memory_share != "batch"

    def before_training_exp(
        self,
        strategy: SupervisedTemplate,
        num_workers: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
        **kwargs: Any,
    ) -> None:
        """Load minibatches of current data and memory."""
        self._check(strategy)
        self._weighted = False
        if len(self.storage_policy.buffer) == 0:
            return
        loader = ReplayDataLoader(
            strategy.adapted_dataset,
            self._memory(),
            oversample_small_tasks=True,
            batch_size=self.batch_size or strategy.train_mb_size,
            batch_size_mem=self.batch_size_mem or strategy.train_mb_size,
            task_balanced_dataloader=self.task_balanced_dataloader,
            num_workers=num_workers,
            shuffle=shuffle,
            drop_last=drop_last,
            **{key: kwargs[key] for key in LOADER_OPTIONS if key in kwargs},
        )
        strategy.dataloader = gathering(loader, share=self._share(strategy))

    def after_training_exp(self, strategy: SupervisedTemplate, **kwargs: Any) -> None:
        """Show the experience to the storage policy."""
        self._num_seen += len(strategy.experience.dataset)
        update_memory(self.storage_policy, strategy)

    def _check(self, strategy: SupervisedTemplate) -> None:
        """Say before the first training what could not work after it."""
        if self._rehearsed:
            return
        attributes = strategy.adapted_dataset._data_attributes
        if self.task_balanced_dataloader and "targets_task_labels" not in attributes:
            raise ValueError(
                "task_balanced_dataloader=True needs a stream with task labels, and this "
                "experience has none; make the stream with with_task_labels(benchmark), or use "
                "task_balanced_dataloader=False"
            )
        rehearse_update(self.storage_policy, strategy)
        self._rehearsed = True

    def _share(self, strategy: SupervisedTemplate) -> float | None:
        if self.memory_share == "batch":
            return None
        if self.memory_share != "stream":
            return float(self.memory_share)
        past = getattr(self.storage_policy, "num_seen", self._num_seen)
        return float(past / (past + len(strategy.experience.dataset)))


def _checked_share(share: str | float) -> str | float:
    if share in ("stream", "batch"):
        return share
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share <= 1:
        raise ValueError(
            f"memory_share must be 'stream', 'batch' or a number between 0 and 1, got {share!r}"
        )
    return float(share)
