"""Running a group of cells: claim it, select its memories, train on them, append rows.

A group of cells shares one pass over its stream: the data is loaded and embedded once for all its
memory sizes. Selected memories are kept beside the results until the group is done, so that a run
that was killed repeats one selection or one training. Claims are file locks, which the operating
system drops with the process that held them.
"""

from __future__ import annotations

import hashlib
import platform
import time
import traceback
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path

import torch
from filelock import FileLock, Timeout

import avalanche_gmc
from benchmarks import UsageError
from benchmarks.grid.buffers import make_buffer
from benchmarks.grid.cells import Group, make_groups
from benchmarks.grid.experiments import EXPERIMENTS
from benchmarks.grid.methods import METHODS
from benchmarks.grid.rows import COLUMNS, Cell, Key, ResultsFile
from benchmarks.grid.selection import (
    CellError,
    Selected,
    load,
    memory_of,
    naming,
    needs_all,
    save,
    select,
)
from benchmarks.grid.training import (
    Memory,
    PlayedBackBuffer,
    Recipe,
    Stopwatch,
    accuracy,
    in_precision,
    train,
)
from benchmarks.streams.opening import Stream, open_stream
from benchmarks.streams.registry import stream_info

WAIT_SECONDS = 1.0


def run_group(group: Group, results: Path, root: Path | None) -> bool:
    """Run the unfinished cells of a group, unless another process is at it.

    :param results: folder of the CSV files.
    :returns: whether the group is finished.
    """
    claim = FileLock(work_folder(results) / f"{group.name()}.lock")
    try:
        claim.acquire(timeout=0)
    except Timeout:
        time.sleep(WAIT_SECONDS)
        return False
    try:
        run_claimed(group, results, root)
    except CellError as error:
        if not isinstance(error.__cause__, (UsageError, OSError)):
            traceback.print_exc()
        raise
    finally:
        claim.release()
    return True


def work_folder(results: Path) -> Path:
    """Where claims and selected memories are kept."""
    folder = results / ".work"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def run_claimed(group: Group, results: Path, root: Path | None) -> None:
    """Run what has no row yet; every finished cell is on disk before the next one starts."""
    file = ResultsFile(results / f"{group.cells[0].experiment}.csv")
    finished = file.finished()
    cells = [cell for cell in group.cells if cell.key() not in finished]
    if not cells:
        return
    with naming(cells[0]):
        stream = open_for(cells[0], root)
    kept = work_folder(results) / f"{group.name()}-{source_digest()}.pt"
    selected = selections(cells, stream, kept)
    for cell in cells:
        with naming(cell):
            file.append(measure(cell, stream, selected.get(cell.key())))
    kept.unlink(missing_ok=True)


def open_for(cell: Cell, root: Path | None) -> Stream:
    """The stream of a cell."""
    return open_stream(cell.stream, root, cell.train_fraction, stream_seed(cell))


def stream_seed(cell: Cell) -> int:
    """What tells apart the streams of a name: 0 where all runs share one."""
    return cell.seed if stream_info(cell.stream).seeded else 0


def final_memories(
    cells: Sequence[Cell], root: Path | None
) -> Iterator[tuple[Cell, Stream, Memory]]:
    """Each cell, its stream, and its memory of the whole stream; nothing is trained or kept."""
    for group in make_groups(cells):
        stream = open_for(group.cells[0], root)
        selected = select(group.cells, stream)
        for cell in group.cells:
            found = selected[cell.key()]
            yield cell, stream, found.memories[found.steps[-1]]


def selections(cells: Sequence[Cell], stream: Stream, kept: Path) -> dict[Key, Selected]:
    """The memories of the cells, taken from an interrupted run or selected now."""
    first = cells[0]  # all cells of a group are of one family
    if first.method not in METHODS or METHODS[first.method].family == "local":
        return {}
    found = load(kept)
    if not all(cell.key() in found for cell in cells):
        found = select(cells, stream)
        with naming(first):
            save(found, kept)
    return found


def measure(cell: Cell, stream: Stream, selected: Selected | None) -> dict[str, object]:
    """The row of one cell."""
    row: dict[str, object] = {**dict.fromkeys(COLUMNS), **cell.row(), **environment()}
    if EXPERIMENTS[cell.experiment].paradigm == "count":
        return row | {"class_counts_per_experience": stream.class_counts()}
    return row | measure_training(cell, stream, selected)


def recipe_of(cell: Cell, stream: Stream) -> Recipe:
    """The training that the cell's configuration asks for."""
    return Recipe(
        stream.make_model,
        cell.epochs,
        cell.batch_size,
        cell.learning_rate,
        cell.seed,
        weighted=cell.weighted,
        memory_factor=EXPERIMENTS[cell.experiment].memory_factor(cell.method),
        precision=cell.precision,
        published=stream_info(cell.stream).data if cell.experiment == "gdumb-published" else "",
    )


def score(model: torch.nn.Module, stream: Stream, precision: str) -> float:
    """Accuracy on the test set; the mean over its parts where it has several."""
    inputs = torch.split(stream.test_inputs, stream.test_sizes)
    labels = torch.split(stream.test_labels, stream.test_sizes)
    with in_precision(precision):
        accuracies = [accuracy(model, *part) for part in zip(inputs, labels, strict=True)]
    return sum(accuracies) / len(accuracies)


def measure_training(cell: Cell, stream: Stream, selected: Selected | None) -> dict[str, object]:
    """Train on selected memories, or with a memory that looks at the model, and test."""
    experiment, experiences = EXPERIMENTS[cell.experiment], list(stream.benchmark.train_stream)
    # Where experiences are short batches, only the accuracy after the last one is of interest.
    each = needs_all(cell) and not experiment.memory_factors
    accuracies: list[float] = []

    def note(model: torch.nn.Module) -> None:
        accuracies.append(score(model, stream, cell.precision))

    start, stopwatch = time.perf_counter(), Stopwatch()
    run = partial(train, experiment.paradigm, recipe_of(cell, stream), plugins=[stopwatch])
    play = partial(PlayedBackBuffer, cell.memory_size, weighted=cell.weighted)
    if selected is not None and experiment.paradigm == "gdumb":
        for step, memory in sorted(selected.memories.items()):
            note(run([experiences[step]], play([memory]), index=step))
    else:
        memories = None if selected is None else [selected.memories[k] for k in selected.steps]
        policy = make_buffer(cell, None) if memories is None else play(memories)
        model = run(experiences, policy, after_each=note if each else None)
        if not each:
            note(model)
        selected = selected or Selected({0: memory_of(policy)}, stopwatch.seconds)
    return {
        **selected.columns(stream),
        "accuracy": accuracies[-1],
        "accuracy_per_experience": accuracies if each else None,
        "training_seconds": time.perf_counter() - start - stopwatch.seconds,
    }


@lru_cache(maxsize=1)
def environment() -> dict[str, object]:
    """What a row was computed with."""
    import avalanche
    import numpy

    versions = {
        "avalanche-gmc": f"{avalanche_gmc.__version__}+{source_digest()}",
        "avalanche": avalanche.__version__,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
    }
    threads = torch.get_num_threads()
    return {
        "versions": " ".join(f"{name}={version}" for name, version in versions.items()),
        "device": f"cpu {platform.machine()} threads={threads}",
    }


@lru_cache(maxsize=1)
def source_digest() -> str:
    """Eight digits that change with the library's source: memories of other code are not reused."""
    folder = Path(avalanche_gmc.__file__).parent
    content = b"".join(path.read_bytes() for path in sorted(folder.rglob("*.py")))
    return hashlib.sha256(content).hexdigest()[:8]
