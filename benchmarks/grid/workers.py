"""Worker processes for a grid: each runs groups until none is left; the parent watches the rows."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from tqdm import tqdm

from benchmarks.grid.cells import Group, cost
from benchmarks.grid.rows import ResultsFile

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


ALLOCATION = {"MALLOC_MMAP_THRESHOLD_": 2**30, "MALLOC_TRIM_THRESHOLD_": 2**31 - 1}
"""Of glibc: keep freed memory. Training a CNN spends a quarter of its time on fresh pages else."""


class GridStopped(RuntimeError):
    """A cell failed or a worker died."""


def run_grid(
    groups: Sequence[Group], *, jobs: int, threads: int, results: Path, root: Path | None
) -> None:
    """Run the groups in ``jobs`` worker processes of ``threads`` torch threads each.

    It returns when every cell has a row, whoever computed it.
    """
    for variable in THREAD_VARIABLES:  # read by the numerical libraries when a worker imports them
        os.environ[variable] = str(threads)
    for variable, size in ALLOCATION.items():
        os.environ.setdefault(variable, str(size))
    others = set(multiprocessing.active_children())
    workers = ProcessPoolExecutor(
        min(jobs, len(groups)),
        multiprocessing.get_context("spawn"),
        initializer=begin,
        initargs=(threads,),
    )
    try:
        watch(workers, groups, results, root)
        workers.shutdown()  # they release what they hold, which a killed process would leave behind
    except BrokenProcessPool:
        raise GridStopped("a worker process was killed, perhaps for want of memory") from None
    finally:
        workers.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - others:
            process.kill()
            process.join()


def watch(
    workers: ProcessPoolExecutor, groups: Sequence[Group], results: Path, root: Path | None
) -> None:
    """Hand out the groups until all are finished; stop at the first failure."""
    running = {workers.submit(work, group, results, root): group for group in groups}
    with Progress(groups, results) as progress:
        while running:
            done, _ = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
            for future in done:
                group = running.pop(future)
                if not future.result():  # another process has claimed it and may still die
                    running[workers.submit(work, group, results, root)] = group
            progress.refresh()


def begin(threads: int) -> None:
    """Prepare a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    threading.Thread(target=end_with_parent, daemon=True).start()
    import torch

    torch.set_num_threads(threads)


def work(group: Group, results: Path, root: Path | None) -> bool:
    """Run a group, in a worker."""
    from benchmarks.grid.runner import run_group
    from benchmarks.grid.selection import CellError

    try:
        return run_group(group, results, root)
    except CellError as error:
        raise GridStopped(str(error)) from None


def end_with_parent() -> None:
    """Leave at once when the parent is gone, even by ``kill -9``."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class Progress:
    """A bar on stderr over the cost of the cells, which tells the time left better than a count."""

    def __init__(self, groups: Sequence[Group], results: Path) -> None:
        self._costs = {cell.key(): cost(cell) for group in groups for cell in group.cells}
        self._file = ResultsFile(results / f"{groups[0].cells[0].experiment}.csv")
        form = "{percentage:3.0f}%|{bar:30}| {desc} [{elapsed}<{remaining}]"
        # A log file needs no line per second.
        seconds = 1.0 if sys.stderr.isatty() else 30.0
        total = sum(self._costs.values())
        self._bar = tqdm(total=total, bar_format=form, mininterval=seconds, miniters=0)

    def __enter__(self) -> Progress:
        self.refresh()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.refresh()
        self._bar.close()

    def refresh(self) -> None:
        """Count the rows that are there by now."""
        finished = self._file.finished()
        done = [cost for key, cost in self._costs.items() if key in finished]
        self._bar.set_description_str(f"{len(done)} of {len(self._costs)} cells", refresh=False)
        self._bar.update(sum(done) - self._bar.n)
