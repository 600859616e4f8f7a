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

from benchmarks.cells import Cell, Group

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class GridStopped(RuntimeError):
    """A cell failed or a worker died; the message names the cell."""


def run_grid(
    groups: Sequence[Group], *, jobs: int, threads: int, results: Path, root: Path | None
) -> None:
    """Run the groups in ``jobs`` worker processes of ``threads`` torch threads each.

    Groups that another process is at are left to it.
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
        progress.refresh()


def work(
    groups: Sequence[Group], threads: int, results: Path, root: Path | None, sender: Connection
) -> None:
    """A worker's life: claim and run groups; report; end with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    threading.Thread(target=end_with_parent, daemon=True).start()
    import torch

    from benchmarks.grid import run_group

    torch.set_num_threads(threads)
    try:
        for group in groups:
            run_group(group, results, root, lambda kind, content: sender.send((kind, content)))
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
        self._bar = tqdm(
            total=sum(cell.cost() for cell in cells),
            bar_format="{percentage:3.0f}%|{bar:30}| {postfix} [{elapsed}<{remaining}]",
            file=sys.stderr,
        )
        self.refresh()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def note(self, kind: str, content: object) -> None:
        """Take a worker's message into account."""
        if kind == "done" and isinstance(content, Cell):
            self._bar.update(0 if content in self.done else content.cost())
            self.done.add(content)

    def refresh(self) -> None:
        """Redraw, so that the elapsed time moves."""
        self._bar.set_postfix_str(f"{len(self.done)} of {self.total} cells")
