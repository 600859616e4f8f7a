"""GDumb with any storage policy: curate a memory, then train on nothing else, from scratch."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from avalanche_gmc.buffers.stream_end import Pieces
from avalanche_gmc.exemplars import WEIGHTS
from avalanche_gmc.initialization import Factory
from avalanche_gmc.plugins.base import WeightedLossPlugin
from avalanche_gmc.plugins.loading import gathering
from avalanche_gmc.plugins.policy import update_memory
from avalanche_gmc.plugins.restart import Restart

if TYPE_CHECKING:
    from avalanche.training.storage_policy import ExemplarsBuffer
    from avalanche.training.templates import SupervisedTemplate

TRAIN_ON = ("every", "last")


class CoresetGDumbPlugin(WeightedLossPlugin, supports_distributed=True):  # type: ignore[call-arg]
    """At each experience: update the memory, re-initialise the model, train on the memory only.

    Departures from Avalanche's ``GDumbPlugin``:

    1. Any storage policy. If it has ``weights``, they enter the loss as
       :mod:`~avalanche_gmc.plugins.weighted_loss` defines; if not, training is plain.
    2. The model is re-initialised in place: the object given to the strategy is the one trained,
       and the optimizer keeps pointing at it. The optimizer's state is cleared and the schedule of
       an ``LRSchedulerPlugin`` restarts. This holds for online streams too.
    3. A fresh draw of the initial parameters for each training, unless ``init="same"``.

    In a stream with several tasks Avalanche's loader balances the tasks in each minibatch; the
    weights act on top of that.

    In distributed training all ranks must end with the same memory: true for a
    ``GradientMatchingBuffer``, and for policies that depend only on the data and their own seed.

    :param mem_size: the number of exemplars.
    :param storage_policy: any ``ExemplarsBuffer`` of that size; a ``GradientMatchingBuffer`` by
        default.
    :param init: "fresh": new initial parameters for each training, by the modules'
        ``reset_parameters()`` or by `model_factory`; all randomness of a training comes from `seed`
        then, and the global generators are as before when it ends. "same": return to the parameters
        of the first training, as Avalanche does.
    :param train_on: "every": train at every experience. "last": only curate until the last
        experience of the stream. Only the final memory matters for the final model; with
        ``init="fresh"`` it is identical. The model is not trained in between.
    :param seed: the seed of the default policy and of the fresh draws. Runs that should differ need
        different seeds here.
    :param model_factory: a callable that returns a new model of the same kind, such as
        ``lambda: MyModel()``. Models with parameters that no ``reset_parameters()`` initialises,
        such as the class token of a vision transformer, need it for fresh draws. For a pretrained
        model ``Redrawn(model, only="fc")`` of :mod:`avalanche_gmc.initialization` returns to the
        pretrained weights with a fresh head. The default policy draws from it too.
    """

    def __init__(
        self,
        mem_size: int = 200,
        storage_policy: ExemplarsBuffer | None = None,
        *,
        init: str = "fresh",
        train_on: str = "every",
        seed: int = 0,
        model_factory: Factory | None = None,
    ) -> None:
        super().__init__(mem_size, storage_policy, seed, model_factory)
        if train_on not in TRAIN_ON:
            raise ValueError(f"train_on must be one of {TRAIN_ON}, got {train_on!r}")
        self._restart = Restart(init, seed, model_factory)
        self.train_on = train_on
        self._pieces = Pieces()
        self._num_experiences = 0
        self._skip = False
        self._in_training = False

    def before_training(self, strategy: SupervisedTemplate, **kwargs: Any) -> None:
        super().before_training(strategy, **kwargs)
        self._in_training = True

    def after_training(self, strategy: SupervisedTemplate, **kwargs: Any) -> None:
        self._in_training = False

    def after_train_dataset_adaptation(self, strategy: SupervisedTemplate, **kwargs: Any) -> None:
        """Update the memory; it is the data to train on."""
        # Policies may look at the model, which Avalanche would adapt (grow heads) only later.
        strategy.check_model_and_optimizer(**kwargs)
        update_memory(self.storage_policy, strategy)
        strategy.adapted_dataset = self._memory()

    def before_training_exp(self, strategy: SupervisedTemplate, **kwargs: Any) -> None:
        """Re-initialise, unless this experience is for curating only."""
        data = strategy.adapted_dataset
        if self._weighted and WEIGHTS not in data._data_attributes:
            raise ValueError(
                "another plugin replaced the data that CoresetGDumbPlugin chose, or joined them "
                "with data that have no weights; remove that plugin, or use a storage policy "
                "without weights"
            )
        self._skip = self.train_on == "last" and not self._reached_end(strategy.experience)
        if not self._skip:
            strategy.dataloader = gathering(strategy.dataloader, data=data)
            self._restart.begin(strategy, self._num_experiences)
        self._num_experiences += 1

    def _reached_end(self, experience: Any) -> bool:
        self._pieces = self._pieces.after(experience)
        last = self._pieces.ends_stream(experience)
        if last is None:
            raise ValueError(
                "train_on='last' needs a stream with a known end, and that of this experience has "
                "no length; use train_on='every', or set the plugin's `train_on` to 'every' before "
                "the last experience"
            )
        return last

    def before_training_epoch(self, strategy: SupervisedTemplate, **kwargs: Any) -> None:
        if self._skip:
            strategy.stop_training()

    def before_eval(self, strategy: SupervisedTemplate, **kwargs: Any) -> None:
        super().before_eval(strategy, **kwargs)
        if self._skip and not self._in_training:
            warnings.warn(
                "the model is evaluated without having been trained on the memory, because "
                "train_on='last' and the last experience of the stream has not come yet",
                stacklevel=2,
            )
