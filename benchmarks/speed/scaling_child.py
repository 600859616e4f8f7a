"""Measure one row of ``python -m benchmarks scaling``, in this process.

    python -m benchmarks.speed.scaling_child '{"part": "large", ...}'

Takes a case as JSON, prints its measurements as JSON. A process of its own for each row gives every
row an honest peak of memory. Gigabytes are 10⁹ bytes. ``seconds`` is the selection alone, but for a
stream everything: making the examples, embedding them, selecting.

Letters: N examples, D dimensions, n picks, F features, K classes.
"""

from __future__ import annotations

import json
import platform
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from avalanche_gmc import (
    DenseDictionary,
    GradientMatchingBuffer,
    LastLayerEmbedding,
    orthogonal_matching_pursuit,
)
from avalanche_gmc.dictionary import Dictionary
from benchmarks import UsageError
from benchmarks.data.arrays import fashion_mnist
from benchmarks.speed.peak_memory import peak_memory
from benchmarks.speed.scaling import DIM_STEP, FINISHED, SCIKIT_LEARN, Case
from benchmarks.speed.selection import scikit_learn
from benchmarks.streams import block_stream
from benchmarks.streams.models import mlp

DRAWS, CLASSES = 4, 10
EXPERIENCES = 10
ROWS = 1024

Measurement = dict[str, Any]


def measure(case: Case, data_root: str | None = None) -> Measurement:
    """All measurements of one case."""
    torch.set_num_threads(case.threads)
    measured = stream(case) if case.part == "stream" else selection(case, data_root)
    # Linux counts in kibibytes, macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return {
        "status": FINISHED,
        "peak_gb": peak / 1e9,
        "versions": f"torch {torch.__version__}",
        "device": platform.machine(),
        **measured,
    }


def selection(case: Case, data_root: str | None) -> Measurement:
    """One selection from a dense ("growth") or a structured dictionary ("large").

    In the growth weights are signed for all, as scikit-learn's.
    """
    dictionary, embedding_seconds = last_layer(case, data_root)
    if case.part == "growth":
        dictionary = DenseDictionary(dense(dictionary))
    target = dictionary.sum()
    mode: Any = case.method
    start = time.perf_counter()
    with peak_memory() as peak:
        if case.method == SCIKIT_LEARN and isinstance(dictionary, DenseDictionary):
            indices, weights = scikit_learn(dictionary.atoms, target.float(), case.size)
        else:
            coreset = orthogonal_matching_pursuit(
                dictionary, target, case.size, mode=mode, nonnegative=case.part == "large"
            )
            indices, weights = coreset.indices, coreset.weights
        seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "embedding_seconds": embedding_seconds,
        "extra_gb": peak[0] / 1e9,
        "dictionary_gb": dictionary.nbytes / 1e9,
        "picked": len(indices),
        "residual": missed(dictionary, target.double(), indices, weights.double()),
    }


def stream(case: Case) -> Measurement:
    """A buffer fed by experiences whose examples exist only while they are read."""
    embedding = make_embedding(case.dim, block_stream.FEATURES)
    clock = Clock(embedding.embed)
    mode: Any = case.method
    embedding.embed = clock  # type: ignore[method-assign, assignment]
    buffer = GradientMatchingBuffer(case.size, embedding, mode=mode, chunk_size=case.chunk or None)
    start = time.perf_counter()
    with peak_memory() as peak:
        for data in block_stream.experiences(case.examples, EXPERIENCES):
            buffer.update_from_dataset(data)
            elapsed = time.perf_counter() - start
            print(f"{buffer.num_seen} seen, {elapsed:.0f} s", file=sys.stderr, flush=True)
    return {
        "seconds": time.perf_counter() - start,
        "embedding_seconds": clock.seconds,
        "extra_gb": peak[0] / 1e9,
        "dictionary_gb": clock.largest / 1e9,
        "picked": len(buffer.buffer),
        "residual": buffer.residual_norm,
    }


class Clock:
    """Adds up the seconds that a function takes, and remembers its largest dictionary."""

    def __init__(self, function: Callable[..., Dictionary]) -> None:
        self._function = function
        self.seconds = 0.0
        self.largest = 0

    def __call__(self, *args: Any) -> Dictionary:
        start = time.perf_counter()
        dictionary = self._function(*args)
        self.seconds += time.perf_counter() - start
        self.largest = max(self.largest, dictionary.nbytes)
        return dictionary


def make_embedding(dim: int, features: int) -> LastLayerEmbedding:
    """Last-layer gradients of D dimensions, of an MLP that is as wide as that needs."""
    width = dim // DIM_STEP - 1  # a bias counts as one more hidden unit
    return LastLayerEmbedding(lambda: mlp(features, CLASSES, width), draws=DRAWS)


def last_layer(case: Case, data_root: str | None) -> tuple[Dictionary, float]:
    """The dictionary of a case, and the seconds that its embedding took."""
    if case.source == "synthetic":
        inputs, labels = block_stream.examples(case.examples)
    else:
        inputs, labels = images(case.examples, data_root)
    embedding = make_embedding(case.dim, inputs.shape[1])
    start = time.perf_counter()
    dictionary = embedding.embed(inputs, labels)
    return dictionary, time.perf_counter() - start


def images(count: int, data_root: str | Path | None) -> tuple[Tensor, Tensor]:
    """Fashion-MNIST, standardised: N×784 and N."""
    pixels, labels = (torch.from_numpy(array) for array in fashion_mnist(data_root).train)
    if count > len(labels):
        raise UsageError(f"Fashion-MNIST has {len(labels)} images, {count} were asked for")
    inputs = pixels[:count].flatten(1).float()
    return (inputs - inputs.mean()) / inputs.std(), labels[:count]


def dense(dictionary: Dictionary) -> Tensor:
    """N×D, of unit length, which scikit-learn asks for."""
    atoms = torch.empty(len(dictionary), dictionary.dim)
    for part in torch.split(torch.arange(len(atoms)), ROWS):
        atoms[part] = torch.nn.functional.normalize(dictionary.rows(part), dim=1)
    return atoms


def missed(dictionary: Dictionary, target: Tensor, indices: Tensor, weights: Tensor) -> float:
    """``||target − Σ weights·atoms|| / ||target||``."""
    rest = target.clone()
    for part, some in zip(torch.split(indices, ROWS), torch.split(weights, ROWS), strict=True):
        rest -= some @ dictionary.rows(part).double()
    return float(rest.norm() / target.norm())


def main(argv: list[str]) -> int:
    """The case is the first argument, the folder of the data sets the second."""
    case = Case(**json.loads(argv[0]))
    print(json.dumps(measure(case, argv[1] if len(argv) > 1 else None)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
