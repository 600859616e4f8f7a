"""Draws from a model's initialisation distribution, without touching the global random state."""

from avalanche_gmc.initialization.drawing import (
    Factory,
    ModelOrFactory,
    as_factory,
    draw_from,
    fresh_draws,
    reset_in_place,
)
from avalanche_gmc.initialization.headless import Headless, growing_head
from avalanche_gmc.initialization.isolation import derive_seed, plain_arithmetic, seeded
from avalanche_gmc.initialization.modules import (
    named_tensors,
    parameter_shapes,
    refuse_dynamic,
    unwrapped,
)
from avalanche_gmc.initialization.redrawn import Redrawn
from avalanche_gmc.initialization.trained import looks_trained, warn_if_trained

__all__ = [
    "Factory",
    "Headless",
    "ModelOrFactory",
    "Redrawn",
    "as_factory",
    "derive_seed",
    "draw_from",
    "fresh_draws",
    "growing_head",
    "looks_trained",
    "named_tensors",
    "parameter_shapes",
    "plain_arithmetic",
    "refuse_dynamic",
    "reset_in_place",
    "seeded",
    "unwrapped",
    "warn_if_trained",
]
