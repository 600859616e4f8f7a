"""Paired differences and their tests, against scipy and by hand."""

import numpy as np
import pandas as pd
import pytest
from claim_rows import write
from scipy import stats

from benchmarks.report import contrasts, evidence

LAST, RESERVOIR = {"method": "gmc-last-layer"}, {"method": "reservoir"}
PAPER = {"draws": "4", "mode": "exact", "weighted": "yes"}


def pairs_of(gaps, sizes=(100,), stream="digits"):
    """Pairs with the gaps of the seeds 0, 1, …, by memory size."""
    rows = [
        {"stream": stream, "memory_size": size, "seed": str(seed), "gap": gap}
        for size in sizes
        for seed, gap in enumerate(gaps[size] if isinstance(gaps, dict) else gaps)
    ]
    return pd.DataFrame(rows)


def test_differences_are_paired_by_seed(tmp_path):
    # The seeds differ by far more than the methods do; only pairs show it.
    rows = write(
        tmp_path,
        "gdumb",
        {
            "gmc-last-layer": lambda size, seed: 0.5 + 0.1 * seed + [0.02, 0.03, 0.04][seed],
            "reservoir": lambda size, seed: 0.5 + 0.1 * seed,
        },
    )
    found = contrasts.tested(contrasts.compared(rows, LAST | PAPER, RESERVOIR))
    assert list(found.index) == [("sorted-electricity", 100), ("sorted-electricity", 1000)]
    assert found.iloc[0][["mean", "std"]].tolist() == pytest.approx([0.03, 0.01])


def test_test_and_interval_are_those_of_scipy():
    gaps = [0.012, 0.004, 0.021, -0.002, 0.013]
    found = contrasts.tested(pairs_of(gaps)).iloc[0]
    expected = stats.ttest_1samp(gaps, 0)
    low, high = expected.confidence_interval(0.95)
    assert found["p"] == pytest.approx(expected.pvalue)
    assert found["half"] == pytest.approx((high - low) / 2)


@pytest.mark.parametrize(
    ("gaps", "level", "not_worse"),
    [
        ([0.001, -0.001, 0.0005, 0.0], True, True),
        ([0.01, -0.01, 0.02, -0.02], False, False),  # not significant, yet nothing is shown
        ([0.03, 0.031, 0.029], False, True),
        ([-0.03, -0.031, -0.029], False, False),
        ([0.0, 0.0], True, True),
        ([0.0], False, False),
    ],
)
def test_level_must_be_shown(gaps, level, not_worse):
    found = contrasts.tested(pairs_of(gaps)).iloc[0]
    assert (found["level"], found["not_worse"]) == (level, not_worse)
    if level:  # the two one-sided tests that the interval stands for
        for margin, side in ((-0.005, "greater"), (0.005, "less")):
            with np.errstate(all="ignore"):
                p = stats.ttest_1samp(gaps, margin, alternative=side).pvalue
            assert not p >= 0.05


def test_equal_differences_are_certain_and_a_single_one_is_not():
    assert contrasts.tested(pairs_of([0.1, 0.1])).iloc[0]["p"] == pytest.approx(0, abs=1e-6)
    assert contrasts.tested(pairs_of([0.0, 0.0])).iloc[0]["p"] == 1
    assert contrasts.tested(pairs_of([0.1])).iloc[0]["p"] == 1


def test_holm_by_hand():
    found = contrasts.corrected(pd.Series([0.04, 0.01, 0.03, 0.5]))
    assert found.tolist() == pytest.approx([0.09, 0.04, 0.09, 0.5])


def test_shrinking_compares_the_ends_seed_by_seed():
    pairs = pairs_of({100: [0.1, 0.3], 500: [9, 9], 1000: [0.05, 0.1]}, (100, 500, 1000))
    found = contrasts.shrinking(pairs)
    assert found["gap"].tolist() == pytest.approx([0.05, 0.2])
    assert set(found["memory_size"]) == {"100 against 1000"}
    assert contrasts.shrinking(pairs_of([0.1, 0.2])).empty


def test_shrinking_passes_over_sizes_of_a_single_seed_where_others_have_several():
    gaps = {100: [0.1, 0.3], 1000: [0.05, 0.1], 5000: [9]}
    found = contrasts.shrinking(pairs_of(gaps, tuple(gaps)))
    assert set(found["memory_size"]) == {"100 against 1000"} and len(found) == 2
    found = contrasts.shrinking(pairs_of({100: [0.1], 5000: [0.4]}, (100, 5000)))
    assert found["gap"].tolist() == pytest.approx([-0.3])


def test_average_over_sizes_takes_those_with_most_seeds():
    pairs = pairs_of({100: [0.1, 0.2, 0.3], 500: [0.3, 0.4, 0.5], 1000: [9.0]}, (100, 500, 1000))
    assert contrasts.over_sizes(pairs)["gap"].tolist() == pytest.approx([0.2, 0.3, 0.4])


def test_rows_without_a_partner_are_left_out(tmp_path):
    write(tmp_path, "gdumb", {"gmc-last-layer": lambda *_: 0.9}, seeds=(0, 1, 2, 3))
    rows = write(tmp_path, "gdumb", {"reservoir": lambda *_: 0.5}, seeds=(2, 3, 4))
    found = contrasts.tested(contrasts.compared(rows, LAST | PAPER, RESERVOIR))
    assert list(found["count"]) == [2, 2]


def test_what_was_measured_twice_counts_once(tmp_path):
    (tmp_path / "again").mkdir()
    once = write(tmp_path, "gdumb", {"gmc-last-layer": lambda *_: 0.5, "reservoir": lambda *_: 0.5})
    again = write(tmp_path / "again", "gdumb", {"gmc-last-layer": lambda *_: 0.7})
    found = contrasts.tested(contrasts.compared([*once, *again], LAST | PAPER, RESERVOIR))
    assert list(found["count"]) == [3, 3]
    assert list(found["mean"]) == pytest.approx([0.2, 0.2])


OTHERS = [{"epochs": 5}, {"train_fraction": 0.1}, {"precision": "bf16"}]


@pytest.mark.parametrize("other", OTHERS)
def test_settings_are_never_mixed(tmp_path, other):
    other = other | {"streams": ["split-cifar10"]}
    write(tmp_path, "gdumb", {"gmc-last-layer": lambda *_: 0.9}, **other)
    images = {"streams": ["split-cifar10"]}
    rows = write(tmp_path, "gdumb", {"reservoir": lambda *_: 0.5}, **images)
    assert contrasts.compared(rows, LAST | PAPER, RESERVOIR).empty
    write(tmp_path, "gdumb", {"gmc-last-layer": lambda *_: 0.6}, seeds=(0, 1), **images)
    rows = write(tmp_path, "gdumb", {"reservoir": lambda *_: 0.1}, seeds=(0,), **other)
    pairs = contrasts.compared(rows, LAST | PAPER, RESERVOIR)
    assert pairs["gap"].tolist() == pytest.approx([0.1] * 4)
    assert set(pairs["left_out"]) == {2}


def test_seeds_that_only_the_other_precision_has_count_too(tmp_path):
    def run(gap, seeds, precision):
        gains = {"gmc-last-layer": lambda *_: 0.5 + gap, "reservoir": lambda *_: 0.5}
        images = {"streams": ["split-cifar10"], "precision": precision}
        return write(tmp_path, "gdumb", gains, sizes=(100,), seeds=seeds, **images)

    run(0.1, (0, 1, 2), "bf16")
    rows = run(0.3, (2, 3), "float32")
    pairs = contrasts.compared(rows, LAST | PAPER, RESERVOIR)
    found = pairs.set_index("seed")["gap"].round(3).to_dict()
    assert found == {"0": 0.1, "1": 0.1, "2": 0.1, "3": 0.3}
    assert set(pairs["left_out"]) == {1}
    assert evidence.tested(pairs)["setting"].tolist() == ["bf16 or float32"]


def test_a_setting_that_both_sides_name_may_differ(tmp_path):
    for epochs, accuracy in ((5, 0.5), (200, 0.7)):
        rows = write(tmp_path, "gdumb", {"reservoir": lambda *_, a=accuracy: a}, epochs=epochs)
    few, many = ({"method": "reservoir", "epochs": epochs} for epochs in ("5", "200"))
    assert contrasts.compared(rows, many, few)["gap"].tolist() == pytest.approx([0.2] * 6)
