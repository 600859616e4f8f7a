"""A contact sheet of the exemplars of a memory, with their weights; no torch in here.

Shapes: n exemplars, C channels, H×W pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt

from benchmarks.report.plots import save

MOST_COLUMNS = 24

Array = npt.NDArray[Any]


def draw(
    images: Array,
    labels: Sequence[int],
    weights: Sequence[float] | None,
    names: Sequence[str],
    title: str,
    path: Path,
) -> None:
    """Write the contact sheet: each class is a row, the heaviest exemplars first.

    :param images: n×C×H×W, on any scale.
    :param names: of the classes.
    """
    shown = rows_of_classes(labels, weights)
    columns = max(len(members) for _, members in shown)
    size = (0.62 * columns + 1.2, 0.78 * len(shown) + 0.6)
    figure, axes = plt.subplots(len(shown), columns, figsize=size, squeeze=False)
    for line, (label, members) in zip(axes, shown, strict=True):
        for axis in line:
            axis.axis("off")
        line[0].text(-0.25, 0.5, names[label], ha="right", va="center", transform=line[0].transAxes)
        for axis, index in zip(line, members, strict=False):
            axis.imshow(displayable(images[index]), cmap="gray", interpolation="nearest")
            if weights is not None:
                relative = weights[index] / max(float(np.mean(weights)), 1e-12)
                axis.set_title(f"{relative:.2g}", y=-0.42, fontsize=7)
    figure.suptitle(title, fontsize=10)
    figure.subplots_adjust(left=1.1 / size[0], right=0.995, bottom=0.03, top=1 - 0.45 / size[1])
    save(figure, path)


def rows_of_classes(
    labels: Sequence[int], weights: Sequence[float] | None
) -> list[tuple[int, list[int]]]:
    """Positions of each class's exemplars, heaviest first, wrapped into rows of equal length."""
    rows = []
    for label in sorted(set(labels)):
        members = [i for i, other in enumerate(labels) if other == label]
        if weights is not None:
            members.sort(key=lambda i: -weights[i])
        rows += [
            (label, members[i : i + MOST_COLUMNS]) for i in range(0, len(members), MOST_COLUMNS)
        ]
    return rows


def displayable(image: Array) -> Array:
    """An image scaled to 0…1, H×W or H×W×3, from C×H×W numbers on any scale."""
    low, high = float(image.min()), float(image.max())
    scaled: Array = (image - low) / max(high - low, 1e-12)
    return np.asarray(scaled[0] if len(scaled) == 1 else scaled.transpose(1, 2, 0))
