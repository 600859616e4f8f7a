"""The memory a computation takes, by watching the process.

    python -m benchmarks.speed.peak_memory

prints the peak of two updates of a memory with a model of a hundred million parameters, in copies
of the model: itself, and whatever the updates need. Goal: two copies, and the activations.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import psutil

SAMPLING_SECONDS = 0.005
EMBEDDINGS = ("last-layer", "random-projection")
LAYERS = {"25 layers": 25, "2 layers": 2}
PARAMETERS, FEATURES, CLASSES, EXAMPLES = 10**8, 2000, 4, 8


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


def copies_of_a_model(embedding: str, model: str) -> float:
    """The peak of updates in a process of their own, in copies of the model.

    :param embedding: one of ``EMBEDDINGS``.
    :param model: one of ``LAYERS``.
    """
    command = [sys.executable, "-m", "benchmarks.speed.peak_memory", embedding, model]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def measure(embedding: str, layers: int) -> float:
    """The same in this process, which must not have needed as much memory before."""
    import torch
    from torch import nn

    from avalanche_gmc import GradientMatchingBuffer
    from benchmarks.streams.assembly import task_free

    def model(parameters: int) -> nn.Module:
        # One hidden layer as wide as it takes, or square ones.
        width = FEATURES if layers > 2 else parameters // FEATURES
        hidden = [nn.Linear(FEATURES, width) for _ in range(parameters // (FEATURES * width))]
        return nn.Sequential(*hidden, nn.Linear(width, CLASSES))

    def update(model: nn.Module) -> None:
        labels = torch.arange(EXAMPLES) % CLASSES
        data = task_free(torch.randn(EXAMPLES, FEATURES), labels.numpy())
        memory = GradientMatchingBuffer(CLASSES, embedding)  # type: ignore[arg-type]
        for _ in range(2):
            memory.update_from_dataset(data, SimpleNamespace(model=model))

    torch.set_num_threads(1)
    update(model(FEATURES * FEATURES))
    before = highest_memory()
    large = model(PARAMETERS)
    update(large)
    size = sum(parameter.nbytes for parameter in large.parameters())
    return (highest_memory() - before) / size


def highest_memory() -> int:
    """The most resident memory that the process ever had, in bytes; on Linux."""
    import resource  # not on every system

    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    """Print one measurement, or a line for each."""
    if len(sys.argv) == 3:
        print(measure(sys.argv[1], LAYERS[sys.argv[2]]))
        return
    for embedding in EMBEDDINGS:
        for model in LAYERS:
            print(f"{embedding}, {model}: {copies_of_a_model(embedding, model):.2f} copies")


if __name__ == "__main__":
    main()
