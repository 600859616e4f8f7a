"""Selecting the memories of a group of cells in one pass over their stream.

Memories do not depend on the model being trained (the local variant apart), so they are selected
first and trained on later. Buffers of all memory sizes walk through the stream together, and each
experience is embedded once for all of them.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from avalanche_gmc import LastLayerEmbedding
from avalanche_gmc.buffers import chunks
from avalanche_gmc.embedding import GradientEmbedding
from avalanche_gmc.exemplars.values import digest
from avalanche_gmc.initialization import derive_seed, fresh_draws, seeded
from benchmarks.files import read_sealed, write_sealed
from benchmarks.grid.buffers import SharedEmbedding, make_buffer, make_embedding
from benchmarks.grid.experiments import EXPERIMENTS
from benchmarks.grid.rows import Cell, Key
from benchmarks.grid.training import Memory
from benchmarks.streams.opening import Stream


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

    def columns(self, stream: Stream) -> dict[str, object]:
        """What the row of the cell says about its memory."""
        counts = [self.memories[step].class_counts(stream.num_classes) for step in self.steps]
        last, wrong = self.memories[self.steps[-1]], stream.share_of_wrong_labels
        return {
            "residual": last.residual,
            "wrong_labels": wrong(last.inputs),
            "wrong_weight": None if last.weights is None else wrong(last.inputs, last.weights),
            "class_counts": counts[-1],
            "class_counts_per_experience": counts if len(counts) > 1 else None,
            "embedding_seconds": self.embedding_seconds,
            "selection_seconds": self.selection_seconds,
        }


def select(cells: Sequence[Cell], stream: Stream) -> dict[Key, Selected]:
    """The memories of cells that differ in size and in methods of one family."""
    embeddings = shared_embeddings(cells, stream)
    buffers = {cell: make_buffer(cell, embeddings.get(cell)) for cell in cells}
    selected = {cell: Selected() for cell in cells}
    # Some buffers make their embedding from the model that they will be used with.
    (model,) = fresh_draws(stream.make_model, 1, derive_seed(cells[0].seed))
    strategy = SimpleNamespace(model=model)
    experiences = list(stream.benchmark.train_stream)
    for step, experience in enumerate(experiences):
        for embedding in embeddings.values():
            embedding.begin_experience()
        for cell, buffer in buffers.items():
            start, embedded = time.perf_counter(), 0.0
            if (shared := embeddings.get(cell)) is not None:
                shared.begin_buffer()
                embedded = shared.waited
            with naming(cell):
                update(buffer, experience, strategy, derive_seed(cell.seed, cell.memory_size, step))
            seconds = time.perf_counter() - start
            if shared is not None:
                seconds -= shared.waited - embedded
            selected[cell].selection_seconds += seconds
            if step == len(experiences) - 1 or needs_all(cell):
                selected[cell].memories[step] = memory_of(buffer)
    for cell, shared in embeddings.items():
        selected[cell].embedding_seconds = shared.seconds
    return {cell.key(): result for cell, result in selected.items()}


def shared_embeddings(cells: Sequence[Cell], stream: Stream) -> dict[Cell, SharedEmbedding]:
    """The embeddings of the cells that have one; cells with equal ones share it.

    The draws of a last layer that some cells use are among those of cells that use more.
    """
    made = {cell: make_embedding(cell, stream.make_model) for cell in cells}
    found: dict[Cell, SharedEmbedding] = {}
    by_state: dict[str, SharedEmbedding] = {}
    largest: SharedEmbedding | None = None
    for cell, embedding in sorted(made.items(), key=lambda item: -(item[1].dim if item[1] else 0)):
        if embedding is None:
            continue
        state = digest(sorted(embedding.state_dict().items()))
        if state not in by_state:
            plain = type(embedding) is LastLayerEmbedding and at_once(embedding, stream)
            by_state[state] = SharedEmbedding(embedding, largest if plain else None)
            largest = largest or (by_state[state] if plain else None)
        found[cell] = by_state[state]
    return found


def at_once(embedding: GradientEmbedding, stream: Stream) -> bool:
    """Whether memories embed each experience in one chunk."""
    longest = max(len(experience.dataset) for experience in stream.benchmark.train_stream)
    return longest * 4 * embedding.dim <= chunks.CHUNK_BYTES


def needs_all(cell: Cell) -> bool:
    """Whether the memories of earlier experiences are used."""
    experiment = EXPERIMENTS[cell.experiment]
    return experiment.per_experience or experiment.paradigm == "replay"


def update(buffer: Any, experience: Any, strategy: Any, seed: int) -> None:
    """Show an experience to a buffer; Avalanche's draw from the global generators."""
    with seeded(seed):
        buffer.post_adapt(strategy, experience)


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


def save(selected: dict[Key, Selected], path: Path) -> None:
    """Keep selected memories until they have been trained on; tensors and numbers, no code."""
    content = io.BytesIO()
    torch.save({key: asdict(result) for key, result in selected.items()}, content)
    write_sealed(path, content.getvalue())


def load(path: Path) -> dict[Key, Selected]:
    """What :func:`save` wrote; nothing if the file is not there or is not as it was written."""
    content = read_sealed(path)
    if content is None:
        return {}
    try:
        found = torch.load(io.BytesIO(content), weights_only=True)
        for result in found.values():
            result["memories"] = {k: Memory(**memory) for k, memory in result["memories"].items()}
        return {key: Selected(**result) for key, result in found.items()}
    except Exception:  # whatever else the file holds, it is not ours
        return {}
