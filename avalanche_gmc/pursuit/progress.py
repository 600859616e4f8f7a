"""A progress bar, or lines of a log, for work that takes a while."""

from __future__ import annotations

import io
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import TqdmExperimentalWarning, tqdm

with warnings.catch_warnings():
    warnings.simplefilter("ignore", TqdmExperimentalWarning)
    from tqdm.autonotebook import tqdm as auto_tqdm  # another class in notebooks

DELAY = 3.0
"""Seconds before a bar appears by itself: most selections are over by then."""

LOG_INTERVAL = 30.0

_LOGGER = logging.getLogger("avalanche_gmc")


class Progress:
    """How far a selection is.

    :param bar: picks out of n.
    """

    def __init__(self, bar: tqdm[None]) -> None:
        self._bar = bar

    def picked(self, count: int, residual: float) -> None:
        """Report more picks.

        :param count: picks since the last report.
        :param residual: what is left of the target, relative to it.
        """
        self._bar.set_postfix_str(f"residual {residual:.3g}", refresh=False)
        self._bar.update(count)

    def now(self, doing: str) -> None:
        """Say what is being done."""
        self._bar.set_description(doing, refresh=False)
        if not self._bar.disable and self._bar.format_dict["elapsed"] >= self._bar.delay:
            self._bar.refresh()


@contextmanager
def progress_bar(size: int, shown: bool | None) -> Iterator[Progress]:
    """A bar for a selection, gone at the end, however that comes about.

    :param size: n.
    :param shown: as :func:`make_bar` has it.
    """
    with make_bar(size, "picking", "pick", shown) as bar:
        yield Progress(bar)


def make_bar(total: int, doing: str, unit: str, shown: bool | None = None) -> tqdm[None]:
    """A bar on stderr or in a notebook.

    :param shown: whether to show it. None does after ``DELAY`` seconds if there is a terminal or a
        notebook; where there is none, a line goes to the log every ``LOG_INTERVAL`` seconds, to the
        logger ``avalanche_gmc`` at the level INFO.
    """
    options: dict[str, Any] = {"total": total, "desc": doing, "unit": unit, "leave": False}
    if shown is not None:
        return auto_tqdm(**options, file=sys.stderr, disable=not shown)
    if auto_tqdm is not tqdm or sys.stderr.isatty():
        return auto_tqdm(**options, file=sys.stderr, delay=DELAY)
    return LoggedBar(**options, file=io.StringIO(), disable=not _LOGGER.isEnabledFor(logging.INFO))


class LoggedBar(tqdm):  # type: ignore[misc]
    """A bar whose every state is a line of the log."""

    def __init__(self, *, desc: str, **options: Any) -> None:
        options["desc"] = f"{desc}: "  # as set_description writes it
        every = {"mininterval": LOG_INTERVAL, "maxinterval": LOG_INTERVAL}
        form = "{desc}{n_fmt} of {total_fmt} in {elapsed}, {remaining} to go{postfix}"
        super().__init__(**options, **every, bar_format=form, delay=LOG_INTERVAL)

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        if msg is None:
            _LOGGER.info("%s", str(self))
