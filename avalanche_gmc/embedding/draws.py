"""S draws of a model: seeds, from which the models are made when they are needed.

What is stored of a draw is what was calibrated, and a checksum that shows whether its seed still
gives the same numbers. Letters: S draws.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from avalanche_gmc.embedding.calibration import (
    calibrate_batch_norm,
    refuse_batch_statistics,
    untrained_statistics,
)
from avalanche_gmc.embedding.checksum import checksum, same_checksum
from avalanche_gmc.initialization import (
    Factory,
    ModelOrFactory,
    Redrawn,
    as_factory,
    derive_seed,
    draw_from,
    named_tensors,
    parameter_shapes,
)
from avalanche_gmc.initialization.drawing import check_count

CACHE_BYTES = 2**29
"""If all draws together are larger, they are made one at a time."""


class Draws:
    """A sequence of S models in eval mode, for reading only.

    :param model: a callable that returns a fresh model, or a module with ``reset_parameters()``.
    :param count: S.
    :param seed: of all draws.
    :param save: keep the models themselves, here, in states and in pickles.
    """

    def __init__(self, model: ModelOrFactory, count: int, seed: int, *, save: bool = False) -> None:
        check_count(count)
        self._factory: Factory | None = as_factory(model)
        self._count = count
        self.seed = seed
        self._save = save
        self._statistics: list[dict[str, Tensor]] = [{} for _ in range(count)]
        self._checksums = torch.zeros(count, 2, dtype=torch.float64)  # 0 until a draw is made
        self._saved: list[nn.Module] | None = None
        self._made: dict[int, nn.Module] = {}
        tensors = named_tensors(self[0])
        self.shapes = parameter_shapes(self[0])
        self._statistics_shapes = {
            n: tuple(tensors[n].shape) for n in untrained_statistics(self[0])
        }
        self.at_once = count * sum(t.nbytes for t in tensors.values()) <= CACHE_BYTES
        if save:
            self._saved = [self._make(draw) for draw in range(count)]

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, draw: int) -> nn.Module:
        """Hold no reference to another draw meanwhile: there may be room for one only."""
        if not 0 <= draw < self._count:
            raise IndexError(draw)
        if self._saved is not None:
            return self._saved[draw]
        if draw not in self._made:
            if not getattr(self, "at_once", True):
                self._made.clear()
            self._made[draw] = self._make(draw)
        return self._made[draw]

    def calibrate(self, draw: int, inputs: Tensor) -> None:
        """Measure the batch-norm statistics of a draw on N examples."""
        self._statistics[draw] = calibrate_batch_norm(self[draw], inputs)

    def _make(self, draw: int) -> nn.Module:
        if self._factory is None:
            raise ValueError(
                "the callable that makes the model could not be pickled, so this copy has only the "
                "draws that it came with; make the embedding anew, with a function that can be "
                "imported in place of a lambda."
            )
        # A draw is never trained, so all of them may share what is kept.
        factory = self._factory.sharing if isinstance(self._factory, Redrawn) else self._factory
        model = draw_from(factory, derive_seed(self.seed, draw))
        refuse_batch_statistics(model)
        self._verify(draw, checksum(model))
        _set_buffers(model, self._statistics[draw])
        # Convolutions and pooling are faster channels last on CPUs.
        return model.eval().to(memory_format=torch.channels_last)

    def _verify(self, draw: int, found: Tensor) -> None:
        if not self._is_known(draw):
            self._checksums[draw] = found
        elif not same_checksum(found, self._checksums[draw]):
            raise ValueError(
                f"draw {draw} of seed {self.seed} has other numbers than when it was first made: "
                f"this version of torch ({torch.__version__}) draws others, or the model, its "
                "factory or its frozen weights have changed; go back to those, or load a state "
                "saved by an embedding with save_draws=True."
            )

    def state_dict(self) -> dict[str, Any]:
        """Seed, checksums and statistics; all tensors of the draws only if they are saved."""
        state: dict[str, Any] = {"seed": self.seed, "checksums": self._checksums.clone()}
        for draw, statistics in enumerate(self._statistics):
            state |= {f"statistics.{draw}.{name}": t.clone() for name, t in statistics.items()}
        for draw, model in enumerate(self._saved or []):
            tensors = model.state_dict().items()
            state |= {f"draws.{draw}.{name}": tensor.clone() for name, tensor in tensors}
        return state

    def loaded(self, state: Mapping[str, Any]) -> Draws:
        """The draws that a state came from; until that is certain, these ones stay as they are.

        :raises ValueError: if this model or this torch draws other numbers from the state's seed.
        """
        new = object.__new__(Draws)
        new.__dict__.update(self.__dict__)
        new.seed, new._checksums = state.get("seed", None), state.get("checksums", torch.empty(0))
        if not isinstance(new.seed, int) or new._checksums.shape != self._checksums.shape:
            raise ValueError(
                f"the state has no seed or no checksums of {self._count} draws; load what "
                "state_dict() of an embedding with the same options returned."
            )
        new._checksums = new._checksums.clone()
        new._statistics = [self._statistics_in(state, draw) for draw in range(self._count)]
        if any(key.startswith("draws.") for key in state):
            new._made, new._saved = {}, [_filled(self[0], state, d) for d in range(self._count)]
            return new
        new._made = new._verified(self if self.seed == new.seed else None)
        if self._save:
            new._saved = [new[draw] for draw in range(self._count)]
        for draw, model in new._made.items():
            _set_buffers(model, new._statistics[draw])
        return new

    def _verified(self, made: Draws | None) -> dict[int, nn.Module]:
        """Compare the known checksums, with those of draws that were made or by making them."""
        self._made, self._saved = {}, None
        for draw in filter(self._is_known, range(self._count)):
            if made is not None and made._is_known(draw):
                self._verify(draw, made._checksums[draw])
                self._made |= {draw: made._made[draw]} if draw in made._made else {}
            else:
                self[draw]
        return self._made

    def _is_known(self, draw: int) -> bool:
        return bool(self._checksums[draw].any())

    def _statistics_in(self, state: Mapping[str, Any], draw: int) -> dict[str, Tensor]:
        found = _under(f"statistics.{draw}.", state)
        shapes = {name: tuple(tensor.shape) for name, tensor in found.items()}
        if found and shapes != self._statistics_shapes:
            raise ValueError(
                f"the state's batch-norm statistics of draw {draw} are not those of this model; "
                "make the embedding with the same model before loading."
            )
        return found

    def __getstate__(self) -> dict[str, Any]:
        factory, saved = self._factory, self._saved
        if not isinstance(factory, Redrawn) and not _can_be_pickled(factory):
            # Without the callable, the seed alone is of no use.
            factory, saved = None, saved or [self[draw] for draw in range(self._count)]
        return self.__dict__ | {"_made": {}, "_factory": factory, "_saved": saved}


def _set_buffers(model: nn.Module, values: Mapping[str, Tensor]) -> None:
    for name, value in values.items():
        model.get_buffer(name).copy_(value)


def _under(prefix: str, state: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors whose names begin with the prefix, without it."""
    return {
        key.removeprefix(prefix): value.clone()
        for key, value in state.items()
        if key.startswith(prefix) and isinstance(value, Tensor)
    }


def _filled(model: nn.Module, state: Mapping[str, Any], draw: int) -> nn.Module:
    """A copy of the model with the tensors of a saved draw."""
    saved = _under(f"draws.{draw}.", state)
    for name, tensor in model.state_dict().items():
        if name not in saved or saved[name].shape != tensor.shape:
            raise ValueError(
                f"the state has no tensor draws.{draw}.{name} of shape {tuple(tensor.shape)}; make "
                "the embedding with the same model and number of draws before loading."
            )
    filled = copy.deepcopy(model)
    filled.load_state_dict(saved)
    return filled


def _can_be_pickled(factory: Any) -> bool:
    try:
        pickle.dumps(factory)
    except Exception:  # pickle raises what it likes
        return False
    return True
