"""The pursuit over ranks finds what one process that holds everything finds."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest
import torch
from rank_group import RankGroup, rank_group
from torch import Tensor

from avalanche_gmc import (
    Coreset,
    DenseDictionary,
    Dictionary,
    LastLayerDictionary,
    ShardedDictionary,
    orthogonal_matching_pursuit,
)
from avalanche_gmc.collectives import RankFailure, RankValueError, Traffic
from avalanche_gmc.pursuit import candidates, stepwise
from avalanche_gmc.pursuit.sharded_scoreboard import ShardedScoreboard

MODES = pytest.mark.parametrize("mode", ["exact", "fast", "large and fast"])

CANDIDATES = 64
"""Smaller than the dictionaries here, so that atoms come and go."""

WEIGHTS = {torch.float32: 1e-5, torch.float64: 1e-10}
"""How far weights may be apart, relative to the largest: a BLAS rounds the inner products of an
atom according to the rows around it, and the residual is cleaned with these."""


@dataclass
class Problem:
    atoms: Dictionary
    target: Tensor
    size: int
    options: dict[str, Any]


def dense(
    shape: tuple[int, int],
    seed: int,
    size: int,
    *,
    dtype: torch.dtype = torch.float32,
    copies: int = 0,
    zeros: int = 0,
    rank: int | None = None,
    **options: Any,
) -> Problem:
    """Atoms that share a direction; every so many are copies of one, or zero."""
    generator = torch.Generator().manual_seed(seed)
    atoms = torch.randn(*shape, generator=generator, dtype=torch.float64)
    atoms += 0.5 * torch.randn(1, shape[1], generator=generator, dtype=torch.float64)
    if rank is not None:
        atoms = atoms[:, :rank] @ torch.randn(rank, shape[1], generator=generator).double()
    atoms = atoms.to(dtype)
    if copies:
        atoms[1::copies] = atoms[1]
    if zeros:
        atoms[::zeros] = 0
    target = atoms.double().sum(dim=0)
    if rank is not None:
        target += torch.randn(shape[1], generator=generator)
    return Problem(DenseDictionary(atoms), target, size, options)


def zero_target() -> Problem:
    problem = dense((9, 4), 5, 4, zeros=4)
    problem.target.zero_()
    return problem


def opposed_copies() -> Problem:
    """After one pick its copies have the best scores without being candidates."""
    copies = torch.tensor([[1.0, 0.0, 0.0]]).repeat(600, 1)
    others = torch.tensor([[0.1, -1.0, 0.0], [0.0, -1.0, 1.0]])
    atoms = torch.cat([copies, others]).double()
    return Problem(DenseDictionary(atoms), torch.tensor([1.0, 0.1, 0.0]).double(), 3, {})


def last_layer() -> Problem:
    generator = torch.Generator().manual_seed(6)
    errors = torch.randn(2, 210, 3, generator=generator)
    features = torch.randn(2, 210, 9, generator=generator)
    atoms = LastLayerDictionary(errors, features)
    return Problem(atoms, atoms.sum(), 40, {})


PROBLEMS = {
    "float32": lambda: dense((700, 60), 0, 50),
    "float64": lambda: dense((500, 50), 1, 40, dtype=torch.float64, nonnegative=False),
    "copies on all ranks": lambda: dense((300, 30), 2, 25, copies=3),
    "zero atoms at the end": lambda: dense((40, 30), 3, 35, zeros=4),
    "more picks than dimensions": lambda: dense((240, 11), 4, 60, dtype=torch.float64),
    "zero target": zero_target,
    "tolerance": lambda: dense((200, 30), 7, 60, tolerance=0.05, dtype=torch.float64),
    "span exhausted": lambda: dense((200, 12), 8, 10, rank=4, dtype=torch.float64),
    "candidates are copies": opposed_copies,
    "last layer": last_layer,
    "one atom": lambda: dense((1, 5), 9, 1),
}


def ids_of(split: str, rank: int, ranks: int, count: int) -> Tensor:
    """Which atoms a rank holds."""
    every = torch.arange(count)
    if split == "even":
        return every[count * rank // ranks : count * (rank + 1) // ranks]
    if split == "uneven":
        bounds = [int(count * (r / ranks) ** 3) for r in range(ranks + 1)]
        return every[bounds[rank] : bounds[rank + 1]]
    if split == "all on the last":
        return every if rank == ranks - 1 else every[:0]
    if split == "interleaved":
        return every[rank::ranks]
    assert split == "shuffled"
    owners = torch.randint(ranks, (count,), generator=torch.Generator().manual_seed(count))
    return every[owners == rank]


SPLITS = ("even", "uneven", "all on the last", "interleaved", "shuffled")


def sharded(problem: Problem, split: str, rank: int, ranks: int) -> ShardedDictionary:
    ids = ids_of(split, rank, ranks, len(problem.atoms))
    local = problem.atoms.take(ids)
    if split in ("interleaved", "shuffled"):
        return ShardedDictionary(local, ids=ids)
    return ShardedDictionary(local)


def both_ways(
    rank: int, ranks: int, name: str, split: str, options: dict[str, Any]
) -> tuple[Coreset, Coreset]:
    """A selection by this process alone and by all ranks together."""
    problem = PROBLEMS[name]()
    arguments = problem.target, problem.size
    options = {**problem.options, **options}
    large = options.get("mode") == "large and fast"
    if large:
        options["mode"] = "fast"
    small = mock.patch.object(stepwise, "SMALL_BYTES", 0 if large else stepwise.SMALL_BYTES)
    with small, mock.patch.object(candidates, "MOST_CANDIDATES", CANDIDATES):
        alone = orthogonal_matching_pursuit(problem.atoms, *arguments, **options)
        shards = sharded(problem, split, rank, ranks)
        return alone, orthogonal_matching_pursuit(shards, *arguments, **options)


def assert_same(group: RankGroup, name: str, split: str, options: dict[str, Any]) -> None:
    answers = group.results(both_ways, group.size, name, split, options)
    alone, first = answers[0]
    close = WEIGHTS[PROBLEMS[name]().atoms.dtype]
    for _, coreset in answers:
        assert torch.equal(coreset.indices, alone.indices), (name, split)
        largest = float(alone.weights.abs().max()) if len(alone) else 0.0
        torch.testing.assert_close(coreset.weights, alone.weights, rtol=0, atol=close * largest)
        torch.testing.assert_close(
            coreset.residual_trace, alone.residual_trace, rtol=1e-6, atol=1e-6
        )
        assert coreset.residual_norm == pytest.approx(alone.residual_norm, abs=1e-6)
        for field in ("indices", "weights", "residual_trace"):
            assert torch.equal(getattr(coreset, field), getattr(first, field))


@pytest.fixture(scope="module")
def four():
    with rank_group(4) as group:
        yield group


@MODES
def test_two_ranks_find_what_one_process_finds(pair, mode):
    # Every problem and every split, in changing company.
    shift = 2 * ["exact", "fast", "large and fast"].index(mode)
    for place, name in enumerate(PROBLEMS):
        split = SPLITS[(place + shift) % len(SPLITS)]
        assert_same(pair, name, split, {"mode": mode})


@pytest.mark.slow
@pytest.mark.parametrize("split", SPLITS)
@MODES
def test_four_ranks_find_what_one_process_finds(four, mode, split):
    for name in PROBLEMS:
        assert_same(four, name, split, {"mode": mode})


def random_problem(rank: int, ranks: int, seed: int) -> tuple[Coreset, Coreset]:
    """Shape, size, copies, zeros, options and split by chance."""
    draw = random.Random(seed)
    shape = draw.randint(1, 600), draw.randint(1, 50)
    problem = dense(
        shape,
        seed,
        draw.randint(1, min(shape[0], 90)),
        dtype=draw.choice([torch.float32, torch.float64]),
        copies=draw.choice([0, 0, 2, 5]),
        zeros=draw.choice([0, 0, 3]),
    )
    options = {
        # What fast mode picks from a spent residual is up to rounding.
        "mode": draw.choice(["exact", "fast"]) if problem.size < shape[1] // 2 else "exact",
        "nonnegative": draw.choice([True, False]),
    }
    arguments = problem.target, problem.size
    shards = sharded(problem, draw.choice(SPLITS), rank, ranks)
    with mock.patch.object(candidates, "MOST_CANDIDATES", CANDIDATES):
        alone = orthogonal_matching_pursuit(problem.atoms, *arguments, **options)
        return alone, orthogonal_matching_pursuit(shards, *arguments, **options)


@pytest.mark.slow
def test_problems_and_splits_by_chance(four):
    for seed in range(60):
        for alone, coreset in four.results(random_problem, 4, seed):
            assert torch.equal(coreset.indices, alone.indices), seed
            assert coreset.residual_norm == pytest.approx(alone.residual_norm, abs=1e-5)


def test_what_one_rank_holds_alone_is_found_bit_for_bit(pair):
    for name in ("float32", "last layer"):
        for alone, coreset in pair.results(
            both_ways, 2, name, "all on the last", {"mode": "large and fast"}
        ):
            assert torch.equal(coreset.indices, alone.indices)
            assert torch.equal(coreset.weights, alone.weights)
            assert coreset.residual_norm == alone.residual_norm


def answers_of(rank: int, ranks: int, split: str) -> list[Tensor]:
    problem = last_layer()
    shards = sharded(problem, split, rank, ranks)
    chosen = torch.tensor([200, 0, 7, 100])
    vectors = torch.randn(shards.dim, 3, generator=torch.Generator().manual_seed(0))
    both = shards.concat(shards)
    return [
        *(d.correlate(vectors) for d in (shards, problem.atoms)),
        *(d.norms() for d in (shards, problem.atoms)),
        *(d.rows(chosen) for d in (shards, problem.atoms)),
        *(d.take(chosen).sum() for d in (shards, problem.atoms)),
        *(d.sum() for d in (shards, problem.atoms)),
        *(d.rows(chosen + 210) for d in (both, problem.atoms.concat(problem.atoms))),
        *(torch.tensor([len(d), d.dim, d.nbytes]) for d in (shards, problem.atoms)),
    ]


def test_a_sharded_dictionary_answers_as_the_whole(pair):
    for split in SPLITS:
        for answers in pair.results(answers_of, 2, split):
            torch.testing.assert_close(answers[::2], answers[1::2])


def traffic_of(rank: int, ranks: int, shape: tuple[int, int], size: int, mode: str) -> Traffic:
    problem = dense(shape, 0, size)
    shards = sharded(problem, "even", rank, ranks)
    made = shards.traffic.calls
    large = mock.patch.object(stepwise, "SMALL_BYTES", 0)
    with large, mock.patch.object(candidates, "MOST_CANDIDATES", CANDIDATES):
        orthogonal_matching_pursuit(shards, problem.target, size, mode=mode)
    shards.traffic.calls -= made
    return shards.traffic


@pytest.mark.parametrize("mode", ["exact", "fast"])
@pytest.mark.parametrize("shape", [(400, 90), (3000, 300)], ids=str)
@pytest.mark.parametrize("size", [30, 80])
def test_six_exchanges_a_round_and_the_bytes_of_the_docstring(pair, mode, shape, size):
    for traffic in pair.results(traffic_of, 2, shape, size, mode):
        per_round = 6 if mode == "exact" else 4
        around = 6  # agreeing on the input, counting the candidates, copying the picked atoms
        assert traffic.rounds > 1
        assert traffic.calls <= per_round * traffic.rounds + around
        count, width = CANDIDATES, 4
        bytes_per_round = (
            16 * 31 + width * size + width * count + (width + 8) * count
            + (width * shape[1] + 2 * width + 1) * count + 80
        )  # fmt: skip
        once = size * (width * shape[1] + 8) + 2000
        assert traffic.bytes <= bytes_per_round * traffic.rounds + once


def pursue_badly(rank: int, ranks: int, what: str) -> None:
    """One rank, the last, differs from the others."""
    different = rank == ranks - 1
    problem = dense((30, 6), 0, 5)
    atoms, target, size = problem.atoms.atoms, problem.target, 5
    if what == "a NaN" and different:
        atoms[25, 3] = torch.nan
    if what == "targets" and different:
        target = target + 1
    if what == "sizes" and different:
        size = 6
    if what == "a size too large" and different:
        size = 99
    if what == "dimensions" and different:
        atoms = atoms[:, :5]
    if what == "precisions" and different:
        atoms = atoms.double()
    local = DenseDictionary(atoms[15 * rank : 15 * rank + 15])
    if what == "kinds" and different:
        local = LastLayerDictionary(torch.ones(1, 15, 2), torch.ones(1, 15, 3))
    if what == "no dictionary" and different:
        local = local.atoms
    ids = None
    if what == "overlapping ids":
        ids = torch.arange(15)
    if what == "falling ids":
        ids = torch.arange(15 * rank, 15 * rank + 15).flip(0)
    if what == "ids of equal sums":
        # 1 + 2 + 3 + 6 + 1 + 2 + 6 is the sum of 0 to 6, and so are the squares' sums.
        local = DenseDictionary(atoms[: 4 - rank])
        ids = torch.tensor([[1, 2, 3, 6], [1, 2, 6]][rank])
    if what == "ids outside" and different:
        ids = torch.arange(16, 31)
    if what == "ids outside" and not different:
        ids = torch.arange(15)
    shards = ShardedDictionary(local, ids=ids)
    orthogonal_matching_pursuit(shards, target, size)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("a NaN", "rank 1: atoms must be finite, but row 25 has a NaN"),
        ("targets", "same target, but rank 0 has .* and rank 1 has"),
        ("sizes", "same size, but rank 0 has 5 and rank 1 has 6"),
        ("a size too large", "rank 1: size must be between 1 and the number of atoms, 30, got 99"),
        ("dimensions", "same dimension, but rank 0 has 6 and rank 1 has 5"),
        ("precisions", "same dtype, but rank 0 has torch.float32 and rank 1 has torch.float64"),
        ("kinds", "same kind of dictionary, but rank 0 has Dense"),
        ("no dictionary", "rank 1: the local part must be a dictionary"),
        ("overlapping ids", "must be 0 to 29, each once"),
        ("falling ids", "rank 0: ids must ascend"),
        ("ids of equal sums", "must be 0 to 6, each once"),
        ("ids outside", "must be 0 to 29, each once"),
    ],
)
def test_all_ranks_refuse_with_the_same_words(pair, what, message):
    first, second = pair.run(pursue_badly, 2, what)
    assert isinstance(first, RankValueError)
    assert isinstance(second, ValueError)
    assert str(first) == str(second)
    with pytest.raises(ValueError, match=message):
        raise first
    # The group is in order: the next selection works.
    assert_same(pair, "one atom", "even", {})


def fail_in_a_block(rank: int, ranks: int, kind: type[Exception] | None) -> str:
    shards = ShardedDictionary(DenseDictionary(torch.ones(2, 3)))
    with shards.ranks.in_step("a step of the test"):
        if rank == 1 and kind is not None:
            raise kind("no luck")
        shards.ranks.together("another step", lambda: None)
    return "done"


def test_a_rank_that_raises_stops_all(pair):
    assert pair.run(fail_in_a_block, 2, None) == ["done", "done"]
    for kind, expected in [(ValueError, RankValueError), (OSError, RankFailure)]:
        answers = pair.run(fail_in_a_block, 2, kind)
        assert [type(answer) for answer in answers] == [expected, expected]
        assert {str(answer) for answer in answers} == {"a step of the test, rank 1: no luck"}


def go_separate_ways(rank: int, ranks: int) -> None:
    shards = ShardedDictionary(DenseDictionary(torch.eye(4)[2 * rank : 2 * rank + 2]))
    shards.ranks.together("left" if rank else "right", lambda: None)


def test_ranks_at_different_steps_notice(pair):
    for answer in pair.run(go_separate_ways, 2):
        assert isinstance(answer, RankFailure)
        assert "rank 0 came to the step 'right' and rank 1 to the step 'left'" in str(answer)


def disagree(rank: int, ranks: int) -> None:
    """What rank 1 marks is not what rank 0 marks."""
    problem = PROBLEMS["float32"]()
    plain = ShardedScoreboard.mark_picked

    def mark_picked(board: ShardedScoreboard, indices: Tensor) -> None:
        plain(board, indices if rank == 0 else indices.flip(0))

    with mock.patch.object(ShardedScoreboard, "mark_picked", mark_picked):
        shards = sharded(problem, "even", rank, ranks)
        orthogonal_matching_pursuit(shards, problem.target, problem.size)


def test_ranks_that_pick_differently_notice(pair):
    for answer in pair.run(disagree, 2):
        assert isinstance(answer, RankFailure)
        assert "the ranks came to different picks" in str(answer)


def test_without_a_process_group_the_error_says_what_to_do():
    with pytest.raises(ValueError, match="start the script with torchrun"):
        ShardedDictionary(DenseDictionary(torch.eye(3)))


def on_gpus(rank: int, ranks: int, name: str) -> tuple[Coreset, Coreset]:
    problem = PROBLEMS[name]()
    alone = orthogonal_matching_pursuit(problem.atoms, problem.target, problem.size)
    shards = sharded(problem, "uneven", rank, ranks).to(f"cuda:{torch.cuda.current_device()}")
    found = orthogonal_matching_pursuit(shards, problem.target, problem.size)
    return alone, found


def needs_gpus(count: int) -> Any:
    return pytest.mark.skipif(torch.cuda.device_count() < count, reason=f"needs {count} GPUs")


@pytest.mark.parametrize(
    "backend",
    [pytest.param("gloo", marks=needs_gpus(1)), pytest.param("nccl", marks=needs_gpus(2))],
)
def test_gpus_find_the_same(backend):
    with rank_group(2, backend=backend) as group:
        for name in ("float64", "last layer"):
            for alone, coreset in group.results(on_gpus, 2, name):
                assert torch.equal(coreset.indices.cpu(), alone.indices)
                torch.testing.assert_close(coreset.weights, alone.weights, rtol=1e-4, atol=1e-6)
