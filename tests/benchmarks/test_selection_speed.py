"""The selection benchmark, in miniature."""

from __future__ import annotations

import csv

import pytest

from benchmarks.__main__ import main


def test_rows_compare_all_methods_on_the_same_dictionary(tmp_path, capsys):
    path = tmp_path / "speed.csv"
    options = ["--source", "synthetic", "--sizes", "5", "20", "--atoms", "60", "90", "--dim", "40"]
    assert main(["selection-speed", *options, "--threads", "1", "--csv", str(path)]) == 0
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    methods = {"scikit-learn", "exact", "exact, w ≥ 0", "fast", "textbook"}
    cases = {(row["atoms"], row["size"]) for row in rows}
    assert cases == {("90", "5"), ("90", "20"), ("60", "20")}
    assert {row["method"] for row in rows} == methods
    assert all(row["picked"] == row["size"] for row in rows)
    residuals = {(row["method"], row["size"], row["atoms"]): row["residual"] for row in rows}
    for atoms, size in cases:
        assert residuals["exact", size, atoms] == residuals["textbook", size, atoms]
    assert "speedup" in capsys.readouterr().out


@pytest.mark.parametrize("bad", [["--dim", "6"], ["--sizes", "0"], ["--source", "imagenet"]])
def test_bad_options_exit_with_2(bad, capsys):
    assert main(["selection-speed", *bad]) == 2
    assert "error" in capsys.readouterr().err
