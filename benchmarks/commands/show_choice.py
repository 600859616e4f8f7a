"""Draw what gradient matching and reservoir sampling choose, on a map of a stream's gradients.

    python -m benchmarks show-choice
    python -m benchmarks show-choice split-fashion-mnist --memory-size 60 --output choice.svg

Each example is a dot, placed by a t-SNE of its loss gradients at the draws: close dots have similar
gradients. Exemplars are discs as large as their weights; the numbers count those of each class.
Nothing is trained.
"""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.commands import show_memory
from benchmarks.grid.methods import METHODS
from benchmarks.streams.registry import STREAMS

MOST_DOTS = 3000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m benchmarks show-choice``."""
    methods = [name for name, method in METHODS.items() if method.family in show_memory.EMBEDDED]
    show_memory.add_arguments(parser, tuple(STREAMS), methods)
    parser.set_defaults(stream="digits", memory_size=30)


def run(args: argparse.Namespace) -> int:
    """Select both memories, place them on one map and draw it."""
    from benchmarks.report import choice
    from benchmarks.report.plots import save

    cell, stream, memory = show_memory.selected(args, args.method)
    *_, reservoir = show_memory.selected(args, "reservoir")
    places, labels, memories = mapped(cell, stream, {args.method: memory, "reservoir": reservoir})
    names = STREAMS[args.stream].class_names.split() or list(map(str, range(stream.num_classes)))
    path = show_memory.path_of(args, "-choice.png")
    print(save(choice.draw(places, labels, memories, names), path))
    return 0


def mapped(cell: Any, stream: Any, memories: dict[str, Any]) -> tuple[Any, Any, list[Any]]:
    """Places N×2 and labels N of examples of the stream, and the memories on the same map."""
    import numpy as np
    import torch
    from sklearn.manifold import TSNE

    from benchmarks.grid.buffers import make_embedding
    from benchmarks.report.choice import Chosen
    from benchmarks.streams.assembly import stacked

    embedding = make_embedding(cell, stream.make_model)
    assert embedding is not None
    inputs, labels = stacked(stream.benchmark.train_stream)
    some = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))[:MOST_DOTS]
    parts = [(inputs[some], labels[some]), *((m.inputs, m.labels) for m in memories.values())]
    embedded = [embedding.embed(*part) for part in parts]
    atoms = [part.rows(torch.arange(len(part))).numpy() for part in embedded]
    places = TSNE(init="pca", random_state=0).fit_transform(np.concatenate(atoms))
    stream_places, *others = np.split(places, np.cumsum([len(part) for part in atoms])[:-1])
    target, found = atoms[0].mean(axis=0), []
    for (name, memory), own, where in zip(memories.items(), atoms[1:], others, strict=True):
        shares = np.full(len(own), 1 / len(own))
        if memory.weights is not None:
            shares = memory.weights.numpy() / len(inputs)
        missed = np.linalg.norm(target - shares @ own) / np.linalg.norm(target)
        shown = METHODS[name].label, where, memory.labels.numpy(), shares / shares.mean()
        found.append(Chosen(*shown, float(missed)))
    return stream_places, parts[0][1].numpy(), found
