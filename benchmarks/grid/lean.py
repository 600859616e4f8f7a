"""Trainings through Avalanche without what a grid has no use for; results stay the same.

With a small model Avalanche's loop takes longer than the arithmetic. Two things can go without
changing any number: the evaluation plugin, which copies the experience at every event although it
has no metrics, and a look at every exemplar at the start of each epoch, whether FFCV could load it.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from avalanche.benchmarks.utils import data_loader
from avalanche.training.plugins import EvaluationPlugin


class Lean:
    """Makes a strategy leave out evaluation, and loading by FFCV, while it trains."""

    plugins: list[Any]

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """As the strategy does."""
        shown = self.plugins
        self.plugins = [own for own in shown if not isinstance(own, EvaluationPlugin)]
        try:
            with patch.object(data_loader, "has_ffcv_support", lambda _: False, create=True):
                return super().train(*args, **kwargs)  # type: ignore[misc]
        finally:
            self.plugins = shown
