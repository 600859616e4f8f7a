"""Models that return more than their outputs."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


class SelectOutput(nn.Module):
    """A model that returns one entry of what another model returns.

    :param model: returns a tuple, a list, a dict, or an object with attributes.
    :param key: position, key or attribute name of the entry, such as 0 or ``"logits"``.
    """

    def __init__(self, model: nn.Module, key: int | str) -> None:
        super().__init__()
        self.model = model
        self.key = key

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """The chosen entry."""
        returned = self.model(*args, **kwargs)
        by_name = isinstance(self.key, str) and hasattr(returned, self.key)
        entry: Tensor = getattr(returned, str(self.key)) if by_name else returned[self.key]
        return entry
