"""Selecting the memories of a group of cells in one pass over their stream.

Memories do not depend on the model being trained (the local variant apart), so they are selected
first and trained on later. Buffers of all memory sizes and rules walk through the stream together,
and each experience is embedded once for all of them. A long pass saves itself after an experience,
and one that was killed goes on from there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from avalanche_gmc.buffers.base import OwningBuffer
from avalanche_gmc.initialization import derive_seed, seeded
from benchmarks.grid.cells import EXPERIMENTS, METHODS, Cell
from benchmarks.grid.methods import SharedEmbedding, make_buffer, make_embedding
from benchmarks.grid.training import Memory
from benchmarks.streams.opening import Stream

SAVE_SECONDS = 20.0
"""A pass this long since it was last saved is saved again."""


class CellError(RuntimeError):
    """A cell failed; the message names it."""


@contextmanager
def naming(cell: Cell) -> Iterator[None]:
    """Let an error inside the block say which cell it befell."""
    try:
        yield
    except Exception as error:
        raise CellError(f"{cell.describe()} failed: {error}") from error


@dataclass
class Selected:
    """The memories of one cell, by the position of the experience after which they were kept."""

    memories: dict[int, Memory] = field(default_factory=dict)
    selection_seconds: float = 0.0
    embedding_seconds: float = 0.0

    @property
    def steps(self) -> list[int]:
        """The positions, in order."""
        return sorted(self.memories)

    def columns(self, num_classes: int) -> dict[str, object]:
        """What the row of the cell says about its memory."""
        counts = [self.memories[step].class_counts(num_classes) for step in self.steps]
        return {
            "residual": self.memories[self.steps[-1]].residual,
            "class_counts": counts[-1],
            "class_counts_per_experience": counts if len(counts) > 1 else None,
            "embedding_seconds": self.embedding_seconds,
            "selection_seconds": self.selection_seconds,
        }

    @classmethod
    def of_policy(cls, policy: Any) -> Selected:
        """The present memory of a buffer that was updated elsewhere."""
        return cls({0: memory_of(policy)})


@dataclass
class Pass:
    """Buffers of several cells on their way through a stream, after ``step`` experiences.

    :param embedding: shared by all of them; ``None`` if they need none.
    """

    buffers: dict[Cell, Any]
    embedding: SharedEmbedding | None
    selected: dict[Cell, Selected]
    step: int = 0

    @classmethod
    def begin(cls, cells: Sequence[Cell], stream: Stream) -> Pass:
        """Empty buffers."""
        embedding = None
        if METHODS[cells[0].method] in ("projection", "last-layer"):
            embedding = SharedEmbedding(make_embedding(cells[0], stream.make_model))
        buffers = {cell: make_buffer(cell, embedding) for cell in cells}
        return cls(buffers, embedding, {cell: Selected() for cell in cells})

    @classmethod
    def resumed(cls, path: Path, cells: Sequence[Cell]) -> Pass | None:
        """What an interrupted run of the same cells has saved."""
        if not path.exists():
            return None
        found = torch.load(path, weights_only=False)
        return found if isinstance(found, Pass) and list(found.buffers) == list(cells) else None

    def take(self, experience: Any, report: Callable[[str, Any], None], *, last: bool) -> None:
        """Show one more experience to all buffers."""
        first = next(iter(self.buffers))
        if self.embedding is not None:
            report("cell", f"embedding of {first.describe()}, experience {self.step}")
            with naming(first):
                self.embedding.prepare(experience.dataset)
        for cell, buffer in self.buffers.items():
            report("cell", f"selection of {cell.describe()}, experience {self.step}")
            start = time.perf_counter()
            with naming(cell):
                update(buffer, experience, derive_seed(cell.seed, cell.memory_size, self.step))
            self.selected[cell].selection_seconds += time.perf_counter() - start
            if last or needs_all(cell):
                self.selected[cell].memories[self.step] = memory_of(buffer)
        if self.embedding is not None:
            self.embedding.forget()
        self.step += 1

    @property
    def owns_its_samples(self) -> bool:
        """Whether saving the buffers saves exemplars only; stock buffers drag the stream along."""
        return all(isinstance(buffer, OwningBuffer) for buffer in self.buffers.values())


def select(
    cells: Sequence[Cell],
    stream: Stream,
    report: Callable[[str, Any], None],
    kept: Path | None = None,
) -> dict[tuple[str, ...], Selected]:
    """The memories of cells that differ in size and in methods of one family.

    :param report: told ``("cell", description)`` before each buffer is updated.
    :param kept: where a long pass is saved from time to time, and taken up again.
    """
    walk = (Pass.resumed(kept, cells) if kept else None) or Pass.begin(cells, stream)
    experiences = list(stream.benchmark.train_stream)
    saved = time.monotonic()
    while walk.step < len(experiences):
        walk.take(experiences[walk.step], report, last=walk.step == len(experiences) - 1)
        long = time.monotonic() - saved > SAVE_SECONDS
        if kept is not None and long and walk.owns_its_samples:
            save(walk, kept)
            saved = time.monotonic()
    for result in walk.selected.values():
        result.embedding_seconds = walk.embedding.seconds if walk.embedding else 0.0
    return {cell.key(): result for cell, result in walk.selected.items()}


def save(state: object, path: Path) -> None:
    """Write a file that is there as a whole or not at all."""
    partial = path.with_suffix(f".{os.getpid()}")
    torch.save(state, partial)
    os.replace(partial, path)


def needs_all(cell: Cell) -> bool:
    """Whether the memories of earlier experiences are used."""
    experiment = EXPERIMENTS[cell.experiment]
    return experiment.per_experience or experiment.paradigm == "replay"


def update(buffer: Any, experience: Any, seed: int) -> None:
    """Show an experience to a buffer; stock buffers draw from the global generators."""
    with seeded(seed):
        buffer.update_from_dataset(experience.dataset)


def memory_of(buffer: Any) -> Memory:
    """A buffer's present memory, apart from the buffer."""
    samples = [buffer.buffer[i] for i in range(len(buffer.buffer))]
    weights = getattr(buffer, "weights", None)
    residual = getattr(buffer, "residual_norm", None)
    return Memory(
        torch.stack([sample[0] for sample in samples]),
        torch.tensor([int(sample[1]) for sample in samples]),
        None if weights is None else torch.as_tensor(weights).clone(),
        None if residual is None else float(residual),
    )
