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
        if not isinstance(experience, OnlineCLExperience):
            return _is_last(experience)
        with experience.no_attribute_masking():
            length, origin = experience.sub_stream_length, experience.origin_experience
            if not (experience.is_last_subexp or self.seen == length):
                return False
            return bool(experience.access_task_boundaries) or _is_last(origin)


def _is_last(experience: Any) -> bool:
    if not hasattr(experience, "no_attribute_masking"):
        return False
    with experience.no_attribute_masking():
        stream = getattr(experience, "origin_stream", None)
        place = getattr(experience, "current_experience", None)
    return isinstance(stream, Sized) and place == len(stream) - 1
