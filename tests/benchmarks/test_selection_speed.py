"""The selection benchmark, in miniature."""

from __future__ import annotations

import csv

import pytest

from benchmarks import DataUnavailable
from benchmarks.__main__ import main
from benchmarks.speed import selection
from benchmarks.speed.selection_panel import Case, gaussian, low_rank, tabular

TINY = {
    "dense": Case(10, gaussian(60, 40), is_small=True),
    "structured": Case(12, tabular("digits", 80, 10, draws=1), is_small=True),
    "plain-panel": Case(6, low_rank(50, 60, clusters=3)),
}
COMMON = {"scikit-learn", "plain", "exact", "fast"}
SLOW = {"textbook", "CORDS-style", "DeepCore-style"}


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Run the command on tiny dictionaries; gives the rows of its CSV file."""
    monkeypatch.setattr(selection, "CASES", dict(TINY))
    path = tmp_path / "speed.csv"

    def run(*options):
        assert main(["selection-speed", "--threads", "1", *options, "--csv", str(path)]) == 0
        with path.open(encoding="utf-8") as file:
            return list(csv.DictReader(file))

    return run


def test_all_methods_pick_as_well_on_every_dictionary(command, capsys):
    rows = command("--repeats", "1")
    assert {row["dictionary"] for row in rows} == set(TINY)
    for name, case in TINY.items():
        found = {row["method"]: row for row in rows if row["dictionary"] == name}
        assert found.keys() >= COMMON
        assert (found.keys() >= SLOW) == case.is_small
        plain = float(found["plain"]["residual"])
        residuals = [float(row["residual"]) for row in found.values()]
        assert residuals == pytest.approx([plain] * len(found), rel=0.1)
        picked = {key: int(row["picked"]) for key, row in found.items()}
        assert picked.pop("CORDS-style", 0) <= case.size
        assert set(picked.values()) == {case.size}
        assert max(float(found[key]["ratio"]) for key in ("scikit-learn", "plain")) == 1.0
    output = capsys.readouterr().out
    assert "exact: at least" in output
    assert "fast: at least" in output
    assert "rows: 3" in output


def test_rows_of_other_dictionaries_stay_in_the_file(command):
    before = command("--rows", "dense")
    after = command("--rows", "plain-panel")
    assert after[: len(before)] == before
    assert {row["dictionary"] for row in after[len(before) :]} == {"plain-panel"}


def test_a_dictionary_without_its_data_is_skipped(command, monkeypatch, capsys):
    def missing(root):
        raise DataUnavailable("no source delivered it")

    monkeypatch.setitem(selection.CASES, "structured", Case(5, missing))
    assert {row["dictionary"] for row in command("--repeats", "1")} == {"dense", "plain-panel"}
    assert "structured: skipped, no source delivered it" in capsys.readouterr().out


@pytest.mark.parametrize("bad", [["--rows", "imagenet"], ["--repeats", "0"], ["--threads", "x"]])
def test_bad_options_exit_with_2(bad, capsys):
    assert main(["selection-speed", *bad]) == 2
    assert "error" in capsys.readouterr().err
