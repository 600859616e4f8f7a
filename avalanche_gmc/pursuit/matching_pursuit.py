"""Matching pursuit: pick n weighted atoms whose sum matches a target.

Letters: N atoms, D dimensions, n picks.

Algorithm 1 of the paper, in full::

    residual, picks = target, []
    for _ in range(n):
        scores = atoms @ residual / norms
        scores[picks] = -inf
        picks.append(argmax(scores))
        weights = lstsq(atoms[picks].T, target)
        residual = target - weights @ atoms[picks]

Where this departs from its letter:

1. Picks of a large dense dictionary are found several at a time. They are made on trial among a few
   candidates, one matrix–matrix product checks them against all atoms, and those that agree stay.
   With ``mode="exact"`` they are the picks of the loop above, at a fraction of its passes over the
   dictionary.
2. Last-layer gradients, whose inner products cost little, are picked one by one on inner products
   alone (:mod:`.gram_sweep`; in fast mode on trial, :mod:`.gram_trials`), and so are dense atoms if
   they are a few hundred; other small dense dictionaries by the loop above (:mod:`.stepwise`).
3. The factorisation is an orthonormal basis with its triangular factor, extended and never
   rebuilt. The picks depend on the residual only, so the weights are solved for once, at the end.
4. An atom in the span of the picked ones would make the refit singular and is passed over. When
   none is left, or the residual is spent, another sweep starts on the atoms not picked yet.
"""

from __future__ import annotations

import operator
import warnings
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal, SupportsIndex, get_args

import numpy as np
import torch
from torch import Tensor

from avalanche_gmc.dictionary import DenseDictionary, Dictionary
from avalanche_gmc.dictionary.base import without_autocast
from avalanche_gmc.pursuit.gram_choice import gram_for, is_factored
from avalanche_gmc.pursuit.gram_sweep import GramSweep
from avalanche_gmc.pursuit.gram_trials import GramTrials
from avalanche_gmc.pursuit.progress import Progress, progress_bar
from avalanche_gmc.pursuit.scoreboard import Scoreboard
from avalanche_gmc.pursuit.sharded_scoreboard import scoreboard_of, start_together
from avalanche_gmc.pursuit.stepwise import is_light, is_small, one_thread
from avalanche_gmc.pursuit.sweep import Sweep
from avalanche_gmc.pursuit.weights import PickedAtoms, divide_between_sweeps, fit_sweep

Mode = Literal["exact", "fast"]
MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True)
class Coreset:
    """A weighted subset of a dictionary's atoms.

    :param indices: n, distinct, in picking order.
    :param weights: n, float64, on the CPU.
    :param residual_norm: ``||target − Σ weights·atoms|| / ||target||``.
    :param residual_trace: n, float64: the same after each pick, with least-squares weights (once a
        sweep has matched the target, that of the best sweep).
    """

    indices: Tensor
    weights: Tensor
    residual_norm: float
    residual_trace: Tensor

    def __len__(self) -> int:
        return len(self.indices)


@without_autocast
def orthogonal_matching_pursuit(
    dictionary: Dictionary | Tensor | np.ndarray[Any, Any],
    target: Tensor | np.ndarray[Any, Any],
    size: int,
    *,
    mode: Mode = "exact",
    nonnegative: bool = True,
    tolerance: float = 0.0,
    progress: bool | None = None,
) -> Coreset:
    """Pick ``size`` weighted atoms whose sum matches the target.

    Returns exactly ``size`` distinct atoms (unless ``tolerance`` stops it). If the residual is
    spent or the atoms' span exhausted before that, as for ``size`` > D, further sweeps over the
    atoms not picked yet match the same target again; the weights are divided between the sweeps
    in proportion to their sizes and adjusted so that the whole sum still matches the target. Zero
    atoms come last, with weight 0 and a warning. Ties go to the lowest index.

    :param dictionary: N atoms: a :class:`Dictionary`, or a tensor or NumPy array N×D, float32 or
        float64. All ranks of a :class:`ShardedDictionary` make this call, with the same arguments,
        and get the same coreset.
    :param target: D.
    :param size: n, at most N.
    :param mode: "exact": the picks of the plain loop. "fast": picks made among a few candidates
        are not checked against all atoms; a slightly larger residual in a fraction of the time.
        From a small dictionary, up to 32 MiB, both find the same.
    :param nonnegative: refit the weights of the picked atoms with weights ≥ 0. If false, plain
        least squares as in the paper, where a negative weight makes a training loss unbounded
        below. The picks are the same.
    :param tolerance: stop as soon as the least-squares residual is at most this fraction of the
        target's norm.
    :param progress: whether to show a progress bar on stderr. None shows it on a terminal or in a
        notebook if the selection takes more than a few seconds, and writes to the log elsewhere
        (``avalanche_gmc``, level INFO). Of several ranks, the first shows it.
    :raises ValueError: if the input is not usable; the message names the offender.
    """
    given = dictionary if isinstance(dictionary, Dictionary) else DenseDictionary(dictionary)
    goal = _as_tensor(target)
    if is_small(given) and mode == "fast":
        mode = "exact"
    light = is_light(given)
    if light and not isinstance(given, DenseDictionary) and not is_factored(given):
        given = DenseDictionary(given.rows(torch.arange(len(given))))
    with one_thread() if light else nullcontext():
        return _select(given, goal, size, mode, nonnegative, tolerance, progress)


def _select(
    given: Dictionary,
    goal: Tensor,
    size: int,
    mode: Mode,
    nonnegative: bool,
    tolerance: float,
    progress: bool | None,
) -> Coreset:
    def prepare() -> tuple[Scoreboard, int]:
        _check_options(mode, tolerance)
        number = _checked_size(given, size)
        _check_target(given, goal)
        return scoreboard_of(given), number

    board, size = start_together(
        given,
        prepare,
        target=goal,
        size=size,
        mode=mode,
        nonnegative=nonnegative,
        tolerance=tolerance,
    )
    board, factors = _within_range(board)
    wide = goal.cpu().double()
    # Two steps, because the squares of very small or very large entries leave float64's range.
    largest = float(wide.abs().max())
    if largest == 0.0:
        coreset = _without_target(board, 0 if tolerance > 0 else size)
    else:
        wide = wide / largest
        length = float(torch.linalg.vector_norm(wide))
        with progress_bar(size, progress if board.is_first_rank else False) as bar:
            coreset = _pursue(board, wide / length, size, mode, nonnegative, tolerance, bar)
        _, norms, picked = board.picked(coreset.indices)
        lengths = norms[picked].cpu().double()
        weights = coreset.weights * length / lengths * largest
        if factors is not None:
            weights = weights * factors[coreset.indices].cpu()
        coreset = replace(coreset, weights=weights)
    if len(coreset) < size and tolerance == 0.0:
        unmatched = 0.0 if largest == 0.0 else 1.0
        coreset = _fill_with_zero_atoms(coreset, board, given.num_atoms, size, unmatched)
    return coreset


def _within_range(board: Scoreboard) -> tuple[Scoreboard, Tensor | None]:
    """A scoreboard whose inner products stay within the range of the atoms' type.

    :returns: it, and N factors if its atoms are the given ones times these.
    """
    limit = torch.finfo(board.dictionary.dtype).max ** 0.25
    norms = board.norms
    extreme = (norms > limit) | ((norms > 0) & (norms < 1 / limit))
    if not board.is_whole or not bool(extreme.any()):
        return board, None
    factors = torch.where(norms > 0, norms.reciprocal(), 1.0)
    unit = board.dictionary.scaled(factors)
    return Scoreboard(unit, torch.where(norms > 0, 1.0, 0.0).to(norms)), factors


def _pursue(
    board: Scoreboard,
    target: Tensor,
    size: int,
    mode: Mode,
    nonnegative: bool,
    tolerance: float,
    bar: Progress,
) -> Coreset:
    """Sweeps until enough atoms are picked, for a target (D, float64) and atoms of unit length."""
    wanted = min(size, board.num_candidates)
    stop = max(tolerance, board.precision.spent)
    gram = gram_for(board, wanted) if mode == "exact" else None
    on_cpu = board.is_whole and board.dictionary.device.type == "cpu"
    factored = mode == "fast" and on_cpu and is_factored(board.dictionary)
    sweeps: list[Sweep | GramSweep | GramTrials] = []
    weights: list[Tensor] = []
    while wanted > 0 and not (tolerance > 0.0 and sweeps and sweeps[-1].residual_norm <= tolerance):
        bar.now("picking")
        sweep: Sweep | GramSweep | GramTrials
        if gram is not None:
            sweep = GramSweep(board, gram, target, wanted, stop=stop)
        elif factored:
            sweep = GramTrials(board, target, wanted, stop=stop)
        else:
            sweep = Sweep(board, target, wanted, mode=mode, stop=stop)
        sweep.run(bar.picked)
        bar.now("fitting weights")
        atoms = PickedAtoms(*board.picked(sweep.indices))
        factor = sweep.release_factor()
        weights.append(fit_sweep(atoms, factor, sweep.coordinates, target, nonnegative=nonnegative))
        del factor
        sweeps.append(sweep)
        wanted -= len(sweep.indices)
    if not sweeps:
        return _without_target(board, 0)
    indices = torch.cat([sweep.indices for sweep in sweeps])
    atoms = PickedAtoms(*board.picked(indices))
    final = weights[0]
    if len(sweeps) > 1:
        final = divide_between_sweeps(atoms, weights, target, nonnegative=nonnegative)
    return Coreset(
        indices=indices,
        weights=final,
        residual_norm=float(torch.linalg.vector_norm(target - atoms.combine(final))),
        residual_trace=torch.cat([sweep.trace for sweep in sweeps]).cummin(dim=0).values,
    )


def _without_target(board: Scoreboard, size: int) -> Coreset:
    """A zero target asks for nothing: the first atoms that are not zero, with weight 0."""
    indices = board.first(size, zero=False)
    nothing = torch.zeros(len(indices), dtype=torch.float64)
    return Coreset(indices, nothing, residual_norm=0.0, residual_trace=nothing.clone())


def _fill_with_zero_atoms(
    coreset: Coreset, board: Scoreboard, num_atoms: int, size: int, unmatched: float
) -> Coreset:
    """Append zero atoms, with weight 0, where there were fewer others than asked for.

    :param unmatched: the residual norm if nothing was picked.
    """
    missing = size - len(coreset)
    warnings.warn(
        f"only {len(coreset)} of the {num_atoms} atoms are not zero and {size} were asked for: "
        f"the last {missing} picks are zero atoms with weight 0.",
        stacklevel=5,
    )
    zeros = board.first(missing, zero=True)
    last = coreset.residual_trace[-1:] if len(coreset) else torch.tensor([unmatched]).double()
    return replace(
        coreset,
        indices=torch.cat([coreset.indices, zeros]),
        weights=torch.cat([coreset.weights, torch.zeros(missing, dtype=torch.float64)]),
        residual_norm=coreset.residual_norm if len(coreset) else unmatched,
        residual_trace=torch.cat([coreset.residual_trace, last.expand(missing)]),
    )


def _as_tensor(target: Any) -> Tensor:
    if not isinstance(target, (Tensor, np.ndarray)):
        kind = type(target).__name__
        raise ValueError(f"target must be a tensor or a NumPy array, got {kind}.")
    return torch.as_tensor(target).detach()


def _check_options(mode: str, tolerance: float) -> None:
    if mode not in MODES:
        raise ValueError(f"mode must be one of {MODES}, got {mode!r}.")
    if not 0.0 <= tolerance < float("inf"):
        raise ValueError(f"tolerance must be a number >= 0, got {tolerance}.")


def _checked_size(dictionary: Dictionary, size: SupportsIndex) -> int:
    if dictionary.num_atoms == 0:
        raise ValueError("the dictionary is empty: there is no atom to pick.")
    if dictionary.dim == 0:
        raise ValueError("the atoms have dimension 0: there is nothing to match.")
    try:
        number = operator.index(size)
    except TypeError:
        raise ValueError(f"size must be an integer, got {size!r}.") from None
    if not 1 <= number <= dictionary.num_atoms:
        raise ValueError(
            f"size must be between 1 and the number of atoms, {dictionary.num_atoms}, got {number}."
        )
    return number


def _check_target(dictionary: Dictionary, target: Tensor) -> None:
    if target.shape != (dictionary.dim,):
        raise ValueError(
            f"target must have the dimension of the atoms, ({dictionary.dim},), "
            f"got shape {tuple(target.shape)}."
        )
    if not target.is_floating_point():
        raise ValueError(f"target must be a floating-point tensor, got {target.dtype}.")
    if not bool(target.isfinite().all()):
        first = int((~target.isfinite()).nonzero()[0, 0])
        raise ValueError(f"target must be finite, got {target[first].item()} at position {first}.")
