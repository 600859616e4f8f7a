"""Which experience is the last one of its stream?"""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

from avalanche.benchmarks import OnlineCLExperience

from avalanche_gmc.buffers.stream_end import Pieces


class StreamEnd:
    """Recognises the last experience, also in online streams, which have no length."""

    def __init__(self) -> None:
        self._pieces = Pieces()

    def reached(self, experience: Any) -> bool:
        """True if `experience` is the last; call it once for every experience, in order."""
        self._pieces = self._pieces.after(experience)
        with experience.no_attribute_masking():
            if not isinstance(experience, OnlineCLExperience):
                return _is_last(experience)
            origin, length = experience.origin_experience, experience.sub_stream_length
            done = experience.is_last_subexp or self._pieces.seen == length
            return bool(done and (origin is None or _is_last(origin)))


def _is_last(experience: Any) -> bool:
    stream = experience.origin_stream
    if not isinstance(stream, Sized):
        raise ValueError(
            f"train_on='last' needs a stream with a known end, and {type(stream).__name__} "
            f"'{getattr(stream, 'name', '?')}' has no length; use train_on='every', or set the "
            "plugin's `train_on` to 'every' before the last experience"
        )
    return bool(experience.current_experience == len(stream) - 1)
