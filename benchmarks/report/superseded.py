"""Rows that later ones make needless: the same cells with more of the stream, or faster; no torch.

A row is superseded if the same memory (experiment, stream, method with its options, size) has at
least the same seeds with a larger part of the stream, or with the same part and more epochs, or
with the same of both in bfloat16 instead of float32. Some are worth keeping all the same: both
precisions for the comparison of the two, and a reservoir that other rows are still paired with.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from benchmarks.report.averages import SETTING, Frame, Row, frame_of, setting_text

MEMORY = ["experiment", "stream", "variant", "memory_size"]


def superseded(rows: Sequence[Row]) -> Frame:
    """One line for each memory and setting that another setting supersedes, with their seeds.

    Columns: those of the memory, ``seeds``, and both settings in words, ``old`` and ``new``.
    """
    if not any(row["accuracy"] for row in rows):
        return pd.DataFrame(columns=[*MEMORY, "seeds", "old", "new"])
    found = []
    for memory, own in frame_of(rows).groupby(MEMORY, sort=False):
        settings = [
            (rank(part.iloc[0]), set(part["seed"]), words(part))
            for _, part in own.groupby(SETTING, sort=False)
        ]
        for level, seeds, old in settings:
            better = [new for above, others, new in settings if above > level and seeds <= others]
            if better:
                found.append([*memory, len(seeds), old, better[-1]])
    return pd.DataFrame(found, columns=[*MEMORY, "seeds", "old", "new"])


def rank(row: Row) -> tuple[float, int, bool]:
    """Settings in the order in which they supersede each other."""
    return float(row["train_fraction"]), int(row["epochs"]), row["precision"] == "bf16"


def words(own: Frame) -> str:
    """A setting in words."""
    return ", ".join(setting_text(own)) or "as in the paper"
