"""Which experience is the last one of its stream?"""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

from avalanche.benchmarks import OnlineCLExperience


class StreamEnd:
    """Recognises the last experience, also in online streams, which have no length.

    An online experience knows the experience it was cut from and into how many pieces that was cut,
    but not which piece it is: its boundary flags are not set when the pieces come out even. Hence
    the pieces are counted.
    """

    def __init__(self) -> None:
        self._origin: int | None = None
        self._pieces = 0

    def reached(self, experience: Any) -> bool:
        """True if `experience` is the last; call it once for every experience, in order."""
        with experience.no_attribute_masking():
            if isinstance(experience, OnlineCLExperience):
                return self._last_piece(experience)
            return _is_last(experience)

    def _last_piece(self, piece: Any) -> bool:
        origin = piece.origin_experience
        index = -1 if origin is None else origin.current_experience
        if index != self._origin:
            self._origin, self._pieces = index, 0
        self._pieces += 1
        done = piece.is_last_subexp or self._pieces == piece.sub_stream_length
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
