"""The memory a computation takes, by watching the process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

SAMPLING_SECONDS = 0.005


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """The peak of resident memory beyond the start, in bytes, in a list of one number."""
    process, done = psutil.Process(), threading.Event()
    start = process.memory_info().rss
    peak = [0]

    def watch() -> None:
        while not done.wait(SAMPLING_SECONDS):
            peak[0] = max(peak[0], process.memory_info().rss - start)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()
