"""What a memory looks like, through any Avalanche logger."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from avalanche.benchmarks import OnlineCLExperience
from avalanche.evaluation import PluginMetric
from avalanche.evaluation.metric_results import MetricValue, TensorImage
from avalanche.evaluation.metric_utils import get_metric_name
from avalanche.logging import CSVLogger, InteractiveLogger, TextLogger

from avalanche_gmc.buffers.base import class_counts as count_classes
from avalanche_gmc.buffers.gradient_matching import effective_size as effective_size_of
from avalanche_gmc.reporting.contact_sheet import contact_sheet as draw_contact_sheet
from avalanche_gmc.reporting.policies import residual_of, storage_policies

if TYPE_CHECKING:
    from avalanche.training.templates import SupervisedTemplate

Values = dict[str, Any]
"""Floats and pictures by name."""
Measure = Callable[[Any], Values]
"""From a storage policy to its values; empty if it has no such thing."""


def coreset_metrics(
    *,
    size: bool = True,
    residual: bool = True,
    effective_size: bool = True,
    class_counts: bool = True,
    contact_sheet: bool = False,
) -> list[PluginMetric]:
    """Metrics of the memories in a strategy, logged after each training experience.

    They look at the ``storage_policy`` of the strategy and of its plugins, whatever buffers those
    are. Give them to an ``EvaluationPlugin``. Names start with ``Memory_``, or with ``Memory1_``,
    ``Memory2_``, ... if there are several memories.

    Text loggers print them at the end of the experience. ``CSVLogger``, which has fixed columns,
    gets a file of its own in its folder: ``memory_results.csv`` with one line for each value.

    :param size: the number of exemplars, ``Memory_Size``.
    :param residual: what the last pursuit could not match, relative to its target:
        ``Memory_Residual``, of memories that have one.
    :param effective_size: ``(Σ w)² / Σ w²`` of the weights, ``Memory_EffectiveSize``; the number of
        exemplars if they have no weights.
    :param class_counts: the number of exemplars of each class, ``Memory_Class000`` and so on.
    :param contact_sheet: a picture of the exemplars by class, heaviest first,
        ``Memory_ContactSheet``, of memories of images; TensorBoard and W&B show it. An
        ``EvaluationPlugin`` with ``collect_all=True`` keeps all of them.
    """
    wanted = {
        _size: size,
        _residual: residual,
        _effective_size: effective_size,
        _class_counts: class_counts,
        _contact_sheet: contact_sheet,
    }
    return [MemoryMetric(measure) for measure, yes in wanted.items() if yes]


class MemoryMetric(PluginMetric[Values]):
    """Logs what `measure` says of each memory, after each training experience."""

    def __init__(self, measure: Measure) -> None:
        super().__init__()
        self._measure = measure
        self._values: Values = {}

    def result(self) -> Values:
        """The last values by name."""
        return self._values

    def reset(self) -> None:
        self._values = {}

    def after_training_exp(self, strategy: SupervisedTemplate) -> list[MetricValue]:
        # A class that has left the memory shows as 0, not as its last count.
        self._values = dict.fromkeys(_numbers(self._values), 0)
        policies = storage_policies(strategy)
        for place, policy in enumerate(policies, start=1):
            prefix = "Memory" if len(policies) == 1 else f"Memory{place}"
            for name, value in self._measure(policy).items():
                self._values[f"{prefix}_{name}"] = value
        for logger in _loggers(strategy, CSVLogger):
            _append_to_csv(logger, _numbers(self._values))
        when = strategy.clock.train_iterations
        return [
            MetricValue(self, _full_name(name, strategy), value, when)
            for name, value in self._values.items()
        ]

    def _print_waiting(self, strategy: SupervisedTemplate) -> None:
        """Let text loggers print values of memories that they have not printed yet.

        They print at the end of an epoch or evaluation, the next one for these values. So they are
        told to print when whatever follows a training experience begins.
        """
        online = isinstance(strategy.experience, OnlineCLExperience)
        for logger in _loggers(strategy, TextLogger):
            if online and isinstance(logger, InteractiveLogger):
                continue  # it shows one bar for all pieces of an experience
            if any(name.startswith("Memory") for name in logger.metric_vals):
                logger.print_current_metrics()
                logger.metric_vals = {}

    before_training_exp = before_eval = after_training = _print_waiting

    def __str__(self) -> str:
        return f"Memory{self._measure.__name__}"


def _numbers(values: Values) -> Values:
    """Those that are no pictures."""
    return {n: value for n, value in values.items() if not isinstance(value, TensorImage)}


def _loggers(strategy: SupervisedTemplate, kind: type) -> list[Any]:
    return [logger for logger in strategy.evaluator.loggers if isinstance(logger, kind)]


def _append_to_csv(logger: CSVLogger, values: Values) -> None:
    started = hasattr(logger, "memory_results")
    logger.memory_results = os.path.join(logger.log_folder, "memory_results.csv")
    with open(logger.memory_results, "a" if started else "w", newline="") as file:
        writer = csv.writer(file)
        if not started:
            writer.writerow(["training_exp", "name", "value"])
        writer.writerows([logger.training_exp_id, *item] for item in values.items())


def _size(policy: Any) -> Values:
    return {"Size": len(policy.buffer)}


def _residual(policy: Any) -> Values:
    residual = residual_of(policy)
    return {} if residual is None else {"Residual": residual}


def _effective_size(policy: Any) -> Values:
    weights = getattr(policy, "weights", None)
    value = len(policy.buffer) if weights is None else effective_size_of(weights)
    return {"EffectiveSize": float(value)}


def _class_counts(policy: Any) -> Values:
    return {f"Class{label:03}": n for label, n in count_classes(policy.buffer).items()}


def _contact_sheet(policy: Any) -> Values:
    sheet = draw_contact_sheet(policy)
    return {} if sheet is None else {"ContactSheet": sheet}


def _full_name(name: str, strategy: SupervisedTemplate) -> str:
    if getattr(strategy.experience, "origin_stream", None) is None:
        return f"{name}/train_phase"
    return str(get_metric_name(name, strategy, add_experience=False, add_task=False))
