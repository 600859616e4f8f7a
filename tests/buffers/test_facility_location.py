"""Sieve streaming against a plain loop, plain greedy and apricot."""

import numpy as np
import pytest
import torch
from avalanche.benchmarks.utils import AvalancheDataset
from avalanche.benchmarks.utils.data_attribute import DataAttribute
from avalanche.benchmarks.utils.transform_groups import TransformGroups
from torch.utils.data import TensorDataset

from avalanche_gmc.buffers import FacilityLocationBuffer
from avalanche_gmc.buffers.baselines.sieve import Sieves


def points(size, seed=0, clusters=8, features=5):
    rng = np.random.default_rng(seed)
    centers = 4 * rng.normal(size=(clusters, features))
    spread = rng.gamma(1, 1, size=(size, 1))
    x = centers[rng.integers(clusters, size=size)] + spread * rng.normal(size=(size, features))
    return x.astype(np.float32).astype(np.float64)


def dataset(x, transforms=None):
    y = torch.zeros(len(x), dtype=torch.long)
    return AvalancheDataset(
        [TensorDataset(torch.tensor(x).float(), y)],
        data_attributes=[DataAttribute(y.tolist(), "targets")],
        transform_groups=transforms,
    )


def similarities(x):
    distances = np.linalg.norm(x[:, None] - x[None], axis=2)
    return distances.max() - distances


def value(matrix, chosen):
    return matrix[chosen].max(axis=0).mean()


def exemplars(buffer):
    return np.stack([sample[0].numpy() for sample in buffer.buffer]).astype(np.float64)


def numbers(buffer, x):
    """Where in x the exemplars come from."""
    return [int(np.abs(x - e).sum(axis=1).argmin()) for e in exemplars(buffer)]


def plain_sieves(matrix, size, epsilon):
    """The algorithm as published, one guess and one element at a time."""
    best_single, chosen = 0.0, {}
    for element, row in enumerate(matrix):
        best_single = max(best_single, row.mean())
        powers = [
            i
            for i in range(-500, 500)
            if best_single <= (1 + epsilon) ** i <= 2 * size * best_single
        ]
        chosen = {i: chosen.get(i, []) for i in powers}
        for i, members in chosen.items():
            now = value(matrix, members) if members else 0.0
            gain = value(matrix, [*members, element]) - now
            room = size - len(members)
            if room and gain >= ((1 + epsilon) ** i / 2 - now) / room:
                members.append(element)
    return list(chosen.values())


@pytest.mark.parametrize("epsilon", [0.1, 0.3])
@pytest.mark.parametrize("size", [1, 5, 12])
def test_sieves_equal_the_plain_loop(size, epsilon):
    matrix = similarities(points(60))
    sieves = Sieves(size, epsilon)
    for element, row in enumerate(matrix):
        sieves.offer(element, row)
    assert sieves.members == plain_sieves(matrix, size, epsilon)


def test_changed_witnesses_are_judged_as_if_they_had_always_been_there():
    matrix = similarities(points(40))
    sieves = Sieves(6, 0.1)
    for element in range(20):
        sieves.offer(element, matrix[element, :30])
    sieves.change_witnesses([3, 30, 31], matrix[:20][:, [35, 30, 31]])
    columns = [*range(3), 35, *range(4, 32)]
    for members, total in zip(sieves.members, sieves._totals, strict=True):
        expected = value(matrix[:, columns], members) if members else 0.0
        assert total == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(3))
def test_at_least_nine_tenths_of_plain_greedy_and_more_than_a_random_sample(seed):
    x = points(300, seed)
    buffer = FacilityLocationBuffer(15)
    for part in np.split(x, 6):
        buffer.update_from_dataset(dataset(part))
    matrix = similarities(x)
    greedy, covered = [], np.zeros(len(x))
    for _ in range(15):
        greedy.append(int(np.maximum(matrix, covered).mean(axis=1).argmax()))
        covered = np.maximum(covered, matrix[greedy[-1]])
    rng = np.random.default_rng(0)
    chance = np.mean([value(matrix, rng.choice(300, 15, replace=False)) for _ in range(50)])
    reached = value(matrix, numbers(buffer, x))
    assert reached > 0.9 * value(matrix, greedy)
    assert reached > chance


@pytest.fixture(scope="module")
def selector():
    """Apricot's own choice of 20 from 200 points; it compiles for seconds."""
    apricot = pytest.importorskip("apricot")
    # Not "euclidean", which apricot squares.
    selection = apricot.FacilityLocationSelection(20, metric="l2", random_state=0)
    selection.partial_fit(points(200))
    return selection


@pytest.mark.slow  # apricot compiles for ten seconds
def test_sieves_make_apricots_choices(selector):
    guesses = np.array(selector.optimizer.thresholds)
    sieves = Sieves(20, 0.1)
    sieves._best_single = np.inf  # the guesses stay apricot's
    sieves._guesses, sieves._powers = guesses, range(len(guesses))
    sieves._counts, sieves._totals = np.zeros(len(guesses)), np.zeros(len(guesses))
    sieves._values = np.zeros((len(guesses), 200))
    sieves.members = [[] for _ in guesses]
    for element, row in enumerate(similarities(points(200))):
        sieves.offer(element, row)
    theirs = [
        row[:count].tolist()
        for row, count in zip(selector.sieve_selections_, selector.sieve_n_selected_, strict=True)
    ]
    assert sieves.members == theirs


@pytest.mark.slow
def test_the_memory_is_worth_as_much_as_apricots(selector):
    x = points(200)
    buffer = FacilityLocationBuffer(20)
    buffer.update_from_dataset(dataset(x))
    matrix = similarities(x)
    assert value(matrix, numbers(buffer, x)) > 0.97 * value(matrix, selector.ranking)


def test_candidates_are_bounded_and_the_witnesses_uniform():
    buffer = FacilityLocationBuffer(10, num_witnesses=50, epsilon=0.1)
    x = points(2000)
    for part in np.split(x, 20):
        buffer.update_from_dataset(dataset(part))
    assert len(buffer._state._candidates) <= 10 * np.log(20) / np.log(1.1) + 10
    witnesses = buffer._state.witnesses.features
    places = [int(np.abs(x - w).sum(axis=1).argmin()) for w in witnesses]
    assert len(set(places)) == 50
    assert 15 <= sum(place < 1000 for place in places) <= 35


def test_features_are_those_of_the_eval_transform():
    x = points(100)
    transforms = TransformGroups({"train": lambda x: x * 0, "eval": lambda x: -x})
    plain = FacilityLocationBuffer(10)
    plain.update_from_dataset(dataset(x))
    transformed = FacilityLocationBuffer(10)
    transformed.update_from_dataset(dataset(x, transforms))
    raw = transformed.buffer.remove_current_transform_group()
    found = np.stack([sample[0].numpy() for sample in raw])
    np.testing.assert_array_equal(found, exemplars(plain))


def test_given_features():
    x = points(100)
    x[:, 1:] *= 1000
    buffer = FacilityLocationBuffer(10, features=lambda inputs: inputs[:, :1])
    buffer.update_from_dataset(dataset(x))
    narrow = FacilityLocationBuffer(10)
    narrow.update_from_dataset(dataset(x[:, :1]))
    assert numbers(buffer, x) == numbers(narrow, x[:, :1])
    wrong = FacilityLocationBuffer(10, features=lambda inputs: inputs.sum())
    with pytest.raises(ValueError, match="row for each of 100 inputs"):
        wrong.update_from_dataset(dataset(x))


def test_equal_examples():
    buffer = FacilityLocationBuffer(5)
    buffer.update_from_dataset(dataset(np.ones((20, 3))))
    assert len(buffer.buffer) == 5


@pytest.mark.parametrize("options", [{"epsilon": 0.0}, {"epsilon": 1.0}, {"num_witnesses": 0}])
def test_bad_options(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        FacilityLocationBuffer(10, **options)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_examples_that_are_not_finite_are_refused_and_change_nothing(bad):
    x = points(40)
    buffer = FacilityLocationBuffer(10)
    buffer.update_from_dataset(dataset(x))
    before = exemplars(buffer)
    x[7, 2] = bad
    with pytest.raises(ValueError, match="features of example 7 are not finite"):
        buffer.update_from_dataset(dataset(x))
    np.testing.assert_array_equal(exemplars(buffer), before)
