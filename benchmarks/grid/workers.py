"""Worker processes for a grid: each claims groups until none is left; the parent watches them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from tqdm import tqdm

from benchmarks.grid.cells import Cell, Group

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class GridStopped(RuntimeError):
    """A cell failed or a worker died; the message names the cell."""


def run_grid(
    groups: Sequence[Group], *, jobs: int, threads: int, results: Path, root: Path | None
) -> None:
    """Run the groups in ``jobs`` worker processes of ``threads`` torch threads each.

    It returns when every cell has a row, whoever computed it.
    """
    cells = [cell for group in groups for cell in group.cells]
    context = multiprocessing.get_context("spawn")
    for variable in THREAD_VARIABLES:  # read by the numerical libraries when a worker imports them
        os.environ[variable] = str(threads)
    workers: dict[Connection, SpawnProcess] = {}
    with Progress(cells) as progress:
        try:
            for _ in range(max(1, min(jobs, len(groups)))):
                receiver, sender = context.Pipe(duplex=False)
                process = context.Process(
                    target=work, args=(groups, threads, results, root, sender)
                )
                process.start()
                sender.close()
                workers[receiver] = process
            watch(workers, progress)
        finally:
            for process in workers.values():
                process.kill()
                process.join()


def watch(workers: dict[Connection, SpawnProcess], progress: Progress) -> None:
    """Follow the workers' messages until all have ended; stop at the first failure."""
    running = {receiver: "its start" for receiver in workers}
    while running:
        for receiver in wait(list(running), timeout=1.0):
            assert isinstance(receiver, Connection)
            try:
                kind, content = receiver.recv()
            except EOFError:
                process = workers[receiver]
                process.join()
                if process.exitcode:
                    raise GridStopped(
                        f"a worker ended with code {process.exitcode} at {running[receiver]}"
                    ) from None
                del running[receiver]
                continue
            if kind == "cell":
                running[receiver] = content
            elif kind == "failed":
                raise GridStopped(content)
            progress.note(kind, content)
        progress.tick()


def work(
    groups: Sequence[Group], threads: int, results: Path, root: Path | None, sender: Connection
) -> None:
    """A worker's life: claim and run groups; report; end with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    threading.Thread(target=end_with_parent, daemon=True).start()
    import torch

    from benchmarks.grid.runner import run_groups

    torch.set_num_threads(threads)
    try:
        run_groups(groups, results, root, lambda kind, content: sender.send((kind, content)))
    except Exception as error:
        traceback.print_exc()
        sender.send(("failed", str(error)))


def end_with_parent() -> None:
    """Leave at once when the parent is gone, even by ``kill -9``."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class Progress:
    """A bar on stderr over the cost of the cells, which tells the time left better than a count."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.total = len(cells)
        self.done: set[Cell] = set()
        # A log file needs no line per second.
        interval = 1.0 if sys.stderr.isatty() else 30.0
        self._bar = tqdm(
            total=sum(cell.cost() for cell in cells),
            bar_format="{percentage:3.0f}%|{bar:30}| {desc} [{elapsed}<{remaining}]",
            desc=self._count(),
            mininterval=interval,
            miniters=0,
            smoothing=0.05,
            file=sys.stderr,
        )

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.refresh()
        self._bar.close()

    def note(self, kind: str, content: object) -> None:
        """Take a worker's message into account."""
        if kind == "done" and isinstance(content, Cell) and content not in self.done:
            self.done.add(content)
            self._bar.set_description_str(self._count(), refresh=False)
            self._bar.update(content.cost())

    def tick(self) -> None:
        """Let the elapsed time move."""
        self._bar.update(0)

    def _count(self) -> str:
        return f"{len(self.done)} of {self.total} cells"
