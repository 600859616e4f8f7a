"""Samples that a memory owns: copies, with their transforms laid over them again."""

from avalanche_gmc.exemplars.owned import (
    WEIGHTS,
    Exemplars,
    check_dataset,
    materialize,
    with_weights,
)

__all__ = ["WEIGHTS", "Exemplars", "check_dataset", "materialize", "with_weights"]
