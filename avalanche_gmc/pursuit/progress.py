"""A progress bar for selections that take a while."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm import tqdm

DELAY = 3.0
"""Seconds before a bar appears by itself: most selections are over by then."""


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
    """A bar on stderr, gone at the end, also after an error.

    :param size: n.
    :param shown: whether to show it; None does if stderr is a terminal, after ``DELAY`` seconds.
    """
    bar = tqdm(
        total=size,
        desc="picking",
        unit="pick",
        leave=False,
        file=sys.stderr,
        disable=None if shown is None else not shown,
        delay=DELAY if shown is None else 0,
    )
    with bar:
        yield Progress(bar)
