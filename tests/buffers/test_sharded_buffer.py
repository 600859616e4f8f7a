"""A memory on several ranks is, on each of them, the memory of one process."""

from __future__ import annotations

import io
from typing import Any
from unittest import mock

import pytest
import torch
from avalanche.benchmarks.utils import AvalancheDataset
from avalanche.models import IncrementalClassifier
from rank_group import RankGroup, rank_group
from small_streams import dataset, mlp, naive
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from avalanche_gmc import (
    DenseDictionary,
    GradientMatchingBuffer,
    GrowingHeadEmbedding,
    LastLayerEmbedding,
    RandomProjectionEmbedding,
)
from avalanche_gmc.buffers import gradient_matching
from avalanche_gmc.buffers.memory import Memory
from avalanche_gmc.collectives import OneRank, RankFailure, RankValueError


@pytest.fixture(scope="module")
def three():
    with rank_group(3) as group:
        yield group


def normed() -> nn.Module:
    """A model whose embedding is calibrated on the first data."""
    return mlp(middle=nn.BatchNorm1d(8))


def growing() -> nn.Module:
    """The same with a head that grows with the classes."""
    return nn.Sequential(*normed()[:-1], IncrementalClassifier(8))


BUFFERS = {
    "last layer": lambda: GradientMatchingBuffer(40, LastLayerEmbedding(normed(), draws=2)),
    "chunks": lambda: GradientMatchingBuffer(
        30, LastLayerEmbedding(normed(), draws=2), chunk_size=25
    ),
    "projection": lambda: GradientMatchingBuffer(
        24,
        RandomProjectionEmbedding(normed(), draws=2, dim=40),
        mode="fast",
    ),
    "growing head": lambda: GradientMatchingBuffer(
        30, GrowingHeadEmbedding(growing(), draws=4), chunk_size=25
    ),
    "from the strategy": lambda: GradientMatchingBuffer(20),
    "local": lambda: GradientMatchingBuffer(20, "local"),
}
SIZES = (60, 3, 1, 5, 7, 50, 2)
"""Experiences of many sizes, some with fewer examples than ranks: they wait."""


def experiences() -> list[AvalancheDataset]:
    return [dataset([t % 6, (t + 1) % 6], size, seed=t) for t, size in enumerate(SIZES)]


def feed(buffer: GradientMatchingBuffer, data: list[AvalancheDataset], *, wrap: bool) -> None:
    for place, part in enumerate(data):
        model = mlp(seed=place)
        strategy = naive(DistributedDataParallel(model) if wrap else model)
        buffer.update_from_dataset(part, strategy)


def contents(buffer: GradientMatchingBuffer) -> dict[str, Any]:
    """All of a memory that can be compared."""
    shown = buffer.buffer
    return {
        "inputs": torch.stack([shown[i][0] for i in range(len(shown))]),
        "classes": torch.tensor([int(shown[i][1]) for i in range(len(shown))]),
        "weights": buffer.weights,
        "target": buffer.target,
        "residual": torch.tensor(buffer.residual_norm),
        "seen": torch.tensor(buffer.num_seen),
    }


def alone(make: Any) -> list[dict[str, Tensor]]:
    """What this process would have without the others."""
    with mock.patch.object(gradient_matching, "running_ranks", OneRank):
        return course(make, wrap=False)


def course(make: Any, *, wrap: bool) -> list[dict[str, Tensor]]:
    """A memory after its stream, after a flush and after a resize."""
    buffer = make()
    states = []
    feed(buffer, experiences(), wrap=wrap)
    states.append(contents(buffer))
    buffer.flush()
    states.append(contents(buffer))
    buffer.resize(None, 12)
    states.append(contents(buffer))
    return states


def both_ways(rank: int, name: str, wrap: bool) -> tuple[Any, Any]:
    make = BUFFERS[name]
    return alone(make), course(make, wrap=wrap)


def assert_same(group: RankGroup, name: str, wrap: bool = False) -> None:
    answers = group.results(both_ways, name, wrap)
    for expected, found in answers:
        for before, after, first in zip(expected, found, answers[0][1], strict=True):
            assert {k: torch.equal(after[k], first[k]) for k in after} == dict.fromkeys(after, True)
            for exact in ("inputs", "classes", "seen"):
                assert torch.equal(after[exact], before[exact])
            torch.testing.assert_close(after["weights"], before["weights"], rtol=1e-4, atol=1e-4)
            # Forward passes in other batches, and sums in another order, round differently.
            torch.testing.assert_close(after["target"], before["target"], rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(after["residual"], before["residual"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", BUFFERS)
def test_two_ranks_have_the_memory_of_one_process(pair, name):
    assert_same(pair, name, wrap=name in ("from the strategy", "local"))


@pytest.mark.slow
@pytest.mark.parametrize("name", BUFFERS)
def test_three_ranks_have_the_memory_of_one_process(three, name):
    assert_same(three, name)


def resumed(rank: int, state: bytes | None, stop: int | None) -> bytes | dict[str, Any]:
    """Go on from a state; hand out the state, or at the end the contents."""
    buffer = BUFFERS["last layer"]()
    data = experiences()
    if state is not None:
        buffer.load_state_dict(torch.load(io.BytesIO(state), weights_only=False))
        data = data[3:]
    feed(buffer, data[:stop], wrap=False)
    if stop is None:
        return contents(buffer)
    file = io.BytesIO()
    torch.save(buffer.state_dict(), file)
    return file.getvalue()


def test_a_state_fits_any_number_of_ranks(pair):
    states = pair.results(resumed, None, 3)
    on_two = pair.results(resumed, states[1], None)
    on_one = resumed(0, states[0], None)
    uninterrupted = pair.results(resumed, None, None)
    for found in (*on_two, on_one):
        for field, value in uninterrupted[0].items():
            torch.testing.assert_close(found[field], value, rtol=1e-4, atol=1e-4)
    assert all(torch.equal(on_two[0][k], uninterrupted[0][k]) for k in on_two[0])


def disagree(rank: int, what: str) -> tuple[Exception, bool]:
    """Ranks whose second update differs in something that shapes do not show."""
    seed, backbone = (rank if what == name else 0 for name in ("seed", "backbone"))
    model = mlp(seed=backbone)
    model[0].requires_grad_(False)
    buffer = GradientMatchingBuffer(
        20, seed=seed, mode="fast" if what == "mode" and rank else "exact"
    )
    data = dataset([0, 1], 200)
    if what == "order" and rank:
        data = data.subset([(i + 2) % 200 for i in range(200)])
    if what == "inputs" and rank:
        data = dataset([0, 1], 200, seed=7)
    if what == "one input" and rank:
        # Too few to be among those compared at the start: seen when it is picked.
        changed = [(x * (100 if i == 151 else 1), y) for i, (x, y, _) in enumerate(data)]
        data = AvalancheDataset([changed], data_attributes=list(data._data_attributes.values()))
    try:
        buffer.update_from_dataset(data, naive(model))
    except Exception as error:
        return error, len(buffer.buffer) == buffer.num_seen == 0
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("order", "same new examples before their transforms"),
        ("inputs", "same new examples before their transforms"),
        ("one input", "same exemplars before their transforms"),
        ("seed", "same seed of the embedding, but rank 0 has 0 and rank 1 has 1"),
        ("backbone", "same embedding"),
        ("mode", "same mode of the pursuit, but rank 0 has exact and rank 1 has fast"),
    ],
)
def test_ranks_with_other_data_or_another_embedding_are_refused(pair, what, message):
    for error, untouched in pair.results(disagree, what):
        assert isinstance(error, RankValueError)
        assert message in str(error)
        assert untouched


class Failing:
    """An embedding that fails, or gives a NaN, on one rank for one class."""

    dim = 6

    def __init__(self, rank: int, what: str) -> None:
        self._fails = rank == 1
        self._what = what

    def embed(self, data: Any) -> DenseDictionary:
        rows = torch.stack([data[i][0] for i in range(len(data))])
        if self._fails and any(int(data[i][1]) == 3 for i in range(len(data))):
            if self._what == "raise":
                raise OSError("the disk is gone")
            rows[2] = torch.nan
        return DenseDictionary(rows)


def fail_in_the_second_update(rank: int, what: str) -> tuple[Exception, bool, int]:
    buffer = GradientMatchingBuffer(10, Failing(rank, what))
    buffer.update_from_dataset(dataset([0, 1], 30))
    before: Memory = buffer._memory
    try:
        size = 30 if what != "sizes" else 30 + rank
        classes = {"sizes": [2, 4], "classes": [2, 4 + rank]}.get(what, [2, 3])
        buffer.update_from_dataset(dataset(classes, size))
    except Exception as error:
        untouched = buffer._memory is before
        buffer.update_from_dataset(dataset([4, 5], 20))
        return error, untouched, buffer.num_seen
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    ("what", "kind", "message"),
    [
        ("raise", RankFailure, "taking in new examples, rank 1: the disk is gone"),
        ("NaN", RankValueError, "adding up embeddings, rank 1: the embeddings of the new examples"),
        ("sizes", RankValueError, "number of new examples, but rank 0 has 30 and rank 1 has 31"),
        ("classes", RankValueError, "same targets of the new examples, but rank 0 has"),
    ],
)
def test_all_ranks_stop_and_keep_their_memory(pair, what, kind, message):
    answers = pair.results(fail_in_the_second_update, what)
    assert len({str(error) for error, _, _ in answers}) == 1
    for error, untouched, seen in answers:
        assert isinstance(error, kind)
        assert message in str(error)
        assert untouched
        assert seen == 50


def take_in_a_bad_label(rank: int) -> str:
    buffer = GradientMatchingBuffer(10, LastLayerEmbedding(mlp, draws=1))
    buffer.update_from_dataset(dataset([0, 1], 30))
    data = dataset([0, 1], 28).concat(dataset([99], 2))
    with pytest.raises(RankValueError) as refusal:
        buffer.update_from_dataset(data)
    return str(refusal.value)


def test_an_example_is_named_by_where_its_rank_counts_from(pair):
    first, second = pair.results(take_in_a_bad_label)
    assert first == second
    assert "This rank counts from example 15" in first


def test_one_process_makes_no_call_to_torch_distributed(monkeypatch):
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("torch.distributed was asked")

    for name in ("get_rank", "get_world_size", "all_reduce", "all_gather", "barrier"):
        monkeypatch.setattr(torch.distributed, name, refuse)
    assert len(course(BUFFERS["chunks"], wrap=False)) == 3
