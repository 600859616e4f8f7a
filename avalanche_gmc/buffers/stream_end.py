"""Does a stream, or an experience of an online stream, end with this experience?"""

from __future__ import annotations

from collections.abc import Sized
from typing import Any, NamedTuple

from avalanche.benchmarks import OnlineCLExperience


class Pieces(NamedTuple):
    """How many pieces of an experience came so far.

    An online experience knows the experience it was cut from and into how many pieces that was cut,
    but not which piece it is: its boundary flags are not set when the pieces come out even.
    """

    origin: int = -1
    seen: int = 0

    def after(self, experience: Any) -> Pieces:
        """With one more experience, which may be a piece of a larger one."""
        if not isinstance(experience, OnlineCLExperience):
            return Pieces()
        with experience.no_attribute_masking():
            origin = getattr(experience.origin_experience, "current_experience", -1)
        return Pieces(origin, self.seen + 1 if origin == self.origin else 1)

    def ends_with(self, experience: Any) -> bool:
        """Whether the experience counted last ends the stream.

        In an online stream whose boundaries may be known (``access_task_boundaries=True``), also
        whether it ends the experience it was cut from. False if it cannot be known.
        """
        known = getattr(experience, "access_task_boundaries", False)
        return self._is_last_piece(experience) if known else bool(self.ends_stream(experience))

    def ends_stream(self, experience: Any) -> bool | None:
        """Whether the experience counted last ends the stream; None if it cannot be known."""
        if not isinstance(experience, OnlineCLExperience):
            return _is_last(experience)
        if not self._is_last_piece(experience):
            return False
        with experience.no_attribute_masking():
            return experience.origin_experience is None or _is_last(experience.origin_experience)

    def _is_last_piece(self, experience: Any) -> bool:
        with experience.no_attribute_masking():
            return bool(experience.is_last_subexp or self.seen == experience.sub_stream_length)


def _is_last(experience: Any) -> bool | None:
    if not hasattr(experience, "no_attribute_masking"):
        return None
    with experience.no_attribute_masking():
        stream = getattr(experience, "origin_stream", None)
        place = getattr(experience, "current_experience", None)
    return place == len(stream) - 1 if isinstance(stream, Sized) else None
