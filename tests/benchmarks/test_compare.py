"""Two memories of an experiment, paired by seed, from the command line."""

import pytest
from benchmark_rows import rows_for
from scipy import stats

from benchmarks.__main__ import main
from benchmarks.grid.rows import write_rows


def made_up():
    """Gains of .1, .2 and .3 over the reservoir, and one seed without a partner."""
    rows = rows_for("rivals", streams=["digits"], methods=["gmc", "reservoir"], seeds=range(3))
    for row in rows:
        row["accuracy"] = 0.5 + 0.1 * (row["seed"] + 1) * (row["method"] == "gmc")
    lonely = rows_for("rivals", streams=["digits"], methods=["gmc"], sizes=[100], seeds=[3])
    return rows + lonely


def test_differences_are_paired_by_seed(tmp_path, capsys):
    write_rows(tmp_path / "rivals.csv", made_up())
    assert main(["compare", "rivals", "gmc", "reservoir", "--results", str(tmp_path)]) == 0
    header, _, *body = (
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in capsys.readouterr().out.splitlines()
    )
    assert header[2:4] == ["GMC (default)", "reservoir"]
    half = stats.t.ppf(0.975, 2) * 0.1 / 3**0.5
    p = stats.ttest_1samp([0.1, 0.2, 0.3], 0).pvalue
    expected = ["0.700", "0.500", f"+0.200 ± {half:.3f}", f"{p:.2g}", "3"]
    assert [line[1] for line in body] == ["100", "1000"]
    assert [line[2:] for line in body] == [expected] * 2


def test_one_seed_has_no_interval(tmp_path, capsys):
    write_rows(tmp_path / "rivals.csv", [row for row in made_up() if row["seed"] == 0])
    assert main(["compare", "rivals", "reservoir", "gmc", "--results", str(tmp_path)]) == 0
    assert "| -0.100     |   | 1     |" in capsys.readouterr().out


def test_rows_of_other_options_are_left_out(tmp_path, capsys):
    methods = ["gmc-last-layer", "reservoir"]
    rows = rows_for("local", streams=["digits"], methods=methods, sizes=[100], seeds=[0])
    write_rows(tmp_path / "local.csv", [*rows, {**rows[0], "draws": 16, "accuracy": 0.9}])
    assert (
        main(["compare", "local", "gmc-last-layer", "reservoir", "--results", str(tmp_path)]) == 0
    )
    assert "0.9" not in capsys.readouterr().out


def test_every_training_that_both_have_is_compared(tmp_path, capsys):
    grid = {"streams": ["digits"], "methods": ["gmc", "reservoir"], "sizes": [100]}
    rows = rows_for("gdumb", seeds=[0], epochs=10, **grid) + rows_for("gdumb", **grid)
    write_rows(tmp_path / "gdumb.csv", rows)
    assert main(["compare", "gdumb", "gmc", "reservoir", "--results", str(tmp_path)]) == 0
    _, _, first, second = capsys.readouterr().out.splitlines()
    assert "epochs" not in first and first.endswith("| 2     |")
    assert ", 10 epochs | 100 " in second and second.endswith("| 1     |")


def test_the_setting_of_the_pairs_counts_and_is_named(tmp_path, capsys):
    grid = {"streams": ["digits"], "sizes": [100], "seeds": [0]}
    whole = rows_for("gdumb", methods=["gmc", "reservoir"], **grid)
    thin = rows_for("gdumb", methods=["gmc-projection", "reservoir"], **grid)
    write_rows(tmp_path / "gdumb.csv", [*whole, *({**r, "train_fraction": 0.1} for r in thin)])
    options = ["--results", str(tmp_path)]
    assert main(["compare", "gdumb", "gmc-projection", "reservoir", *options]) == 0
    assert "a tenth of the stream | 100 " in capsys.readouterr().out
    assert main(["compare", "gdumb", "gmc", "reservoir", *options]) == 0
    assert "tenth" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["rivals", "replay"], ids=["other methods", "no file"])
def test_without_pairs_it_says_so(tmp_path, capsys, name):
    write_rows(tmp_path / f"{name}.csv", made_up())
    assert main(["compare", "rivals", "gmc", "herding", "--results", str(tmp_path)]) == 2
    assert "has no rows of gmc and herding" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["compare", "rivals", "gmc", "herding"], ["superseded"]])
def test_a_folder_without_rows_is_named(tmp_path, capsys, command):
    assert main([*command, "--results", str(tmp_path / "typo")]) == 2
    assert "typo holds no results" in capsys.readouterr().err
