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

Measure = Callable[[Any], dict[str, float]]
"""From a storage policy to named values; empty if it has no such thing."""


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
    }
    metrics: list[PluginMetric] = [MemoryMetric(measure) for measure, yes in wanted.items() if yes]
    return [*metrics, ContactSheetMetric()] if contact_sheet else metrics


class MemoryMetric(PluginMetric[dict[str, float]]):
    """Logs what `measure` says of each memory, after each training experience."""

    def __init__(self, measure: Measure) -> None:
        super().__init__()
        self._measure = measure
        self._values: dict[str, float] = {}

    def result(self) -> dict[str, float]:
        """The last values by name."""
        return self._values

    def reset(self) -> None:
        self._values = {}

    def after_training_exp(self, strategy: SupervisedTemplate) -> list[MetricValue]:
        # A class that has left the memory shows as 0, not as its last count.
        self._values = dict.fromkeys(self._values, 0)
        for prefix, policy in _named_policies(strategy).items():
            for name, value in self._measure(policy).items():
                self._values[f"{prefix}_{name}"] = value
        for logger in _loggers(strategy, CSVLogger):
            _append_to_csv(logger, self._values)
        when = strategy.clock.train_iterations
        return [
            MetricValue(self, _full_name(name, strategy), value, when)
            for name, value in self._values.items()
        ]

    # Text loggers print at the end of an epoch or evaluation, the next one for these values. So
    # they are told to print when whatever follows a training experience begins.
    def before_training_exp(self, strategy: SupervisedTemplate) -> None:
        _print_waiting(strategy)

    def before_eval(self, strategy: SupervisedTemplate) -> None:
        _print_waiting(strategy)

    def after_training(self, strategy: SupervisedTemplate) -> None:
        _print_waiting(strategy)

    def __str__(self) -> str:
        return f"Memory{self._measure.__name__}"


class ContactSheetMetric(PluginMetric[dict[str, TensorImage]]):
    """Logs a picture of the exemplars of each memory, after each training experience."""

    def __init__(self) -> None:
        super().__init__()
        self._sheets: dict[str, TensorImage] = {}

    def result(self) -> dict[str, TensorImage]:
        """The last pictures by name."""
        return self._sheets

    def reset(self) -> None:
        self._sheets = {}

    def after_training_exp(self, strategy: SupervisedTemplate) -> list[MetricValue]:
        sheets = {
            f"{prefix}_ContactSheet": draw_contact_sheet(policy)
            for prefix, policy in _named_policies(strategy).items()
        }
        self._sheets = {name: sheet for name, sheet in sheets.items() if sheet is not None}
        when = strategy.clock.train_iterations
        return [
            MetricValue(self, _full_name(name, strategy), sheet, when)
            for name, sheet in self._sheets.items()
        ]

    def __str__(self) -> str:
        return "Memory_ContactSheet"


def _named_policies(strategy: SupervisedTemplate) -> dict[str, Any]:
    """The memories by the beginning of the names of their values."""
    policies = storage_policies(strategy)
    if len(policies) == 1:
        return {"Memory": policies[0]}
    return {f"Memory{number}": policy for number, policy in enumerate(policies, start=1)}


def _loggers(strategy: SupervisedTemplate, kind: type) -> list[Any]:
    return [logger for logger in strategy.evaluator.loggers if isinstance(logger, kind)]


def _print_waiting(strategy: SupervisedTemplate) -> None:
    """Let text loggers print values of memories that they have not printed yet."""
    online = isinstance(strategy.experience, OnlineCLExperience)
    for logger in _loggers(strategy, TextLogger):
        if online and isinstance(logger, InteractiveLogger):
            continue  # it shows one bar for all pieces of an experience
        if any(name.startswith("Memory") for name in logger.metric_vals):
            logger.print_current_metrics()
            logger.metric_vals = {}


def _append_to_csv(logger: CSVLogger, values: dict[str, float]) -> None:
    started = hasattr(logger, "memory_results")
    logger.memory_results = os.path.join(logger.log_folder, "memory_results.csv")
    with open(logger.memory_results, "a" if started else "w", newline="") as file:
        writer = csv.writer(file)
        if not started:
            writer.writerow(["training_exp", "name", "value"])
        writer.writerows([logger.training_exp_id, *item] for item in values.items())


def _size(policy: Any) -> dict[str, float]:
    return {"Size": len(policy.buffer)}


def _residual(policy: Any) -> dict[str, float]:
    residual = residual_of(policy)
    return {} if residual is None else {"Residual": residual}


def _effective_size(policy: Any) -> dict[str, float]:
    weights = getattr(policy, "weights", None)
    value = len(policy.buffer) if weights is None else effective_size_of(weights)
    return {"EffectiveSize": float(value)}


def _class_counts(policy: Any) -> dict[str, float]:
    data = policy.buffer
    if "targets" not in data._data_attributes:
        return {}
    return {f"Class{label:03}": count for label, count in count_classes(data).items()}


def _full_name(name: str, strategy: SupervisedTemplate) -> str:
    if getattr(strategy.experience, "origin_stream", None) is None:
        return f"{name}/train_phase"
    return str(get_metric_name(name, strategy, add_experience=False, add_task=False))
