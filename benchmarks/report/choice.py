"""What memories keep, on a map of the gradients of a stream; no torch in here.

Shapes: N examples of the stream, n exemplars, K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.patheffects import withStroke

from benchmarks.report.plots import panels

Array = npt.NDArray[Any]
LARGEST = 260.0
"""Square points of a disc of twice the mean weight."""


@dataclass(frozen=True)
class Chosen:
    """A memory on the map.

    :param places: n×2.
    :param labels: n classes.
    :param weights: n numbers of mean 1.
    :param residual: norm of what their weighted gradients miss of the stream's mean gradient,
        divided by its norm.
    """

    name: str
    places: Array
    labels: Array
    weights: Array
    residual: float


def draw(places: Array, labels: Array, memories: Sequence[Chosen], names: Sequence[str]) -> Any:
    """A panel for each memory: the stream as dots, the exemplars as discs as large as their weight.

    :param places: of the stream, N×2.
    :param labels: of the stream, N.
    :param names: of the K classes.
    """
    figure, axes = panels(len(memories), y_label="")
    shades = mpl.colormaps["tab10" if len(names) <= 10 else "tab20"]
    for axis, memory in zip(axes, memories, strict=True):
        axis.scatter(*places.T, s=5, c=[shades(k) for k in labels], alpha=0.35, linewidths=0)
        largest_first = np.argsort(-memory.weights)
        axis.scatter(
            *memory.places[largest_first].T,
            s=LARGEST / 2 * memory.weights[largest_first],
            c=[shades(k) for k in memory.labels[largest_first]],
            edgecolors="black",
            linewidths=1.3,
            zorder=3,
        )
        for label, name in enumerate(names):
            own = places[labels == label]
            if len(own):
                count = f"{name}: {np.sum(memory.labels == label)}"
                where = own[:, 0].mean(), own[:, 1].max()
                text = axis.annotate(count, where, (0, 9), textcoords="offset points", ha="center")
                text.set_path_effects([withStroke(linewidth=3, foreground="white")])
        distance = f"relative distance to the stream's gradient: {memory.residual:.2f}"
        axis.set_title(f"{memory.name}\n{distance}", fontsize=12)
        axis.set(xticks=[], yticks=[])
        axis.margins(0.1)
        axis.spines[:].set_visible(True)
    return figure
