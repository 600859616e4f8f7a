"""Dictionaries: N atoms of dimension D, seen only as a linear operator.

Letters: N atoms, D dimensions, b vectors at once, m chosen atoms, V values that make an atom,
S draws, K outputs, H features (of the last layer; H counts the constant 1 of the bias where there
is one).

The pursuit asks a dictionary for inner products, norms, sums and a few rows, never for an N×D
matrix. A structured dictionary can therefore hold its atoms in a fraction of that room.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Self

Function = TypeVar("Function", bound=Callable[..., Any])


def without_autocast(function: Function) -> Function:
    """Run a function without gradients and in the precision of its tensors, whatever the caller's
    ``torch.autocast`` says."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with torch.no_grad(), ExitStack() as stack:
            for kind in _autocast_kinds():
                stack.enter_context(torch.autocast(kind, enabled=False))
            return function(*args, **kwargs)

    return run  # type: ignore[return-value]


def _autocast_kinds() -> list[str]:
    """The kinds of devices for which the caller has switched ``torch.autocast`` on."""
    try:
        return [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
    except TypeError:  # before torch 2.4
        enabled = {"cpu": torch.is_autocast_cpu_enabled(), "cuda": torch.is_autocast_enabled()}
        return [kind for kind, yes in enabled.items() if yes]


class Dictionary(ABC):
    """N atoms of dimension D as a linear operator."""

    @property
    @abstractmethod
    def num_atoms(self) -> int:
        """N."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """D."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """The floating-point type of the atoms."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where the atoms live."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes held by the atoms."""

    @abstractmethod
    def correlate(self, vectors: Tensor) -> Tensor:
        """Inner products of all atoms with one vector (D → N) or several (D×b → N×b)."""

    def correlate_numpy(self, vector: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The same for one vector, on the CPU, by NumPy's BLAS where that is faster: D → N."""
        return self.correlate(torch.from_numpy(vector)).numpy()

    def correlate_some(self, indices: Tensor, vector: Tensor) -> Tensor:
        """Inner products of the chosen atoms with a vector, in its precision: m, D → m."""
        return self.rows(indices).to(vector) @ vector

    @abstractmethod
    def norms(self) -> Tensor:
        """Euclidean norms of the atoms: N, float64 (float32 on devices without it)."""

    @abstractmethod
    def rows(self, indices: Tensor) -> Tensor:
        """The chosen atoms, dense: m → m×D."""

    @abstractmethod
    def sum(self) -> Tensor:
        """The sum of all atoms: D, float64 (float32 on devices without it)."""

    def combine(self, indices: Tensor, weights: Tensor) -> Tensor:
        """The weighted sum of the chosen atoms, in the precision of the weights: m, m → D."""
        return weights @ self.rows(indices).to(weights)

    @abstractmethod
    def take(self, indices: Tensor) -> Dictionary:
        """A dictionary of the chosen atoms only, which keeps nothing else alive."""

    @abstractmethod
    def concat(self, other: Self) -> Self:
        """The atoms of this dictionary followed by those of ``other``."""

    @abstractmethod
    def scaled(self, factors: Tensor) -> Dictionary:
        """The same atoms, each multiplied by a factor: N, float64."""

    @abstractmethod
    def to(self, device: torch.device | str) -> Self:
        """The same dictionary on another device."""

    def packed(self, indices: Tensor) -> Tensor:
        """The chosen atoms in the fewest values, to be sent elsewhere: m → m×V.

        V is the same for all atoms; D for atoms without structure.
        """
        return self.rows(indices)

    def unpacked(self, packed: Tensor) -> Dictionary:
        """A dictionary of the atoms that :meth:`packed` gave, here or on a like dictionary."""
        from avalanche_gmc.dictionary.dense import DenseDictionary

        return DenseDictionary(packed)

    def __len__(self) -> int:
        return self.num_atoms

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(num_atoms={self.num_atoms}, dim={self.dim}, "
            f"dtype={str(self.dtype).removeprefix('torch.')}, device='{self.device}')"
        )


def widest(device: torch.device) -> torch.dtype:
    """float64, or what a device without it has."""
    return torch.float32 if device.type == "mps" else torch.float64


def floating(name: str, values: Tensor | np.ndarray[Any, Any]) -> Tensor:
    """A float32 or float64 tensor without gradients; narrower floating-point types become float32.

    :param values: a tensor or a NumPy array.
    """
    if not isinstance(values, (Tensor, np.ndarray)):
        raise ValueError(
            f"{name} must be a tensor or a NumPy array of float32 or float64, got "
            f"{type(values).__name__}."
        )
    tensor = torch.as_tensor(values).detach()
    if not tensor.is_floating_point():
        raise ValueError(f"{name} must be float32 or float64, got {tensor.dtype}; cast them first.")
    return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()


def row_norms(rows: Tensor) -> Tensor:
    """Euclidean norms in the widest type of the device, for rows of any scale: N×D → N."""
    if rows.dtype == torch.float32 and widest(rows.device) == torch.float64:
        # The squares of float32 numbers, however large or small, are within float64's range.
        exact: Tensor = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
        return exact
    wide = rows.to(widest(rows.device))
    largest = wide.abs().amax(dim=1).clamp_min(torch.finfo(wide.dtype).tiny)
    norms: Tensor = torch.linalg.vector_norm(wide / largest[:, None], dim=1) * largest
    return norms


def check_same(what: str, ours: object, theirs: object) -> None:
    if ours != theirs:
        raise ValueError(f"dictionaries must agree in {what}, got {ours} and {theirs}.")
