"""The paper's claims against made-up rows whose outcome is known."""

import subprocess
import sys

import pytest
from benchmark_rows import rows_for

from benchmarks.__main__ import main
from benchmarks.grid.rows import COLUMNS, ResultsFile, write_rows
from benchmarks.report.averages import differences
from benchmarks.report.claims import CLAIMS, markdown, measured, updated, verdict, verdicts

_, BETTER, SMALLER, WINDOW = CLAIMS[:4]
METHODS = {"gmc-last-layer": 0.7, "reservoir": 0.5}


def write(folder, name, accuracies, *, sizes=(100, 1000), seeds=(0, 1, 2), **options):
    """A file of rows: method → f(size, seed) gives the accuracy."""
    rows = rows_for(
        "gdumb",
        streams=["sorted-electricity"],
        methods=list(accuracies),
        sizes=sizes,
        seeds=seeds,
        **options,
    )
    for row in rows:
        row["accuracy"] = accuracies[row["method"]](row["memory_size"], row["seed"])
        row["selection_seconds"] = 2.0 if row["method"] == "reservoir" else 3.0
    file = ResultsFile(folder / f"{name}.csv")
    write_rows(file.path, [*file.rows(), *({c: row[c] for c in COLUMNS} for row in rows)])
    return file.rows()


def noise(seed):
    return 0.01 * seed


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
    found = differences(rows, {"method": "gmc-last-layer"}, {"method": "reservoir"})
    assert list(found.index) == [("sorted-electricity", 100), ("sorted-electricity", 1000)]
    first = found.iloc[0]
    assert (first["mean"], first["std"]) == pytest.approx((0.03, 0.01))
    assert first["sign"] == 1
    assert first["time_ratio"] == pytest.approx(1.5)


def test_rows_without_a_partner_are_left_out(tmp_path):
    write(tmp_path, "gdumb", {"gmc-last-layer": lambda size, seed: 0.9}, seeds=(0, 1, 2, 3))
    rows = write(tmp_path, "gdumb", {"reservoir": lambda size, seed: 0.5}, seeds=(2, 3, 4))
    found = differences(rows, {"method": "gmc-last-layer"}, {"method": "reservoir"})
    assert list(found["count"]) == [2, 2]


def test_what_was_measured_twice_counts_once(tmp_path):
    (tmp_path / "again").mkdir()
    once = write(tmp_path, "gdumb", {m: lambda size, seed: 0.5 for m in METHODS})
    again = write(tmp_path / "again", "gdumb", {m: lambda *_, m=m: METHODS[m] for m in METHODS})
    found = differences([*once, *again], *({"method": method} for method in METHODS))
    assert list(found["count"]) == [3, 3]
    assert list(found["mean"]) == pytest.approx([0.2, 0.2])


def test_a_part_takes_what_its_file_lacks_from_another(tmp_path):
    (tmp_path / "ablations").mkdir()
    write(tmp_path, "gdumb", {"gmc-last-layer": lambda size, seed: 0.5}, draws=4)
    (draws,) = (claim for claim in CLAIMS if claim.text == "Four draws are enough")
    assert verdict(draws, tmp_path) == "not run"
    write(tmp_path / "ablations", "gdumb", {"gmc-last-layer": lambda *_: 0.6}, draws=8)
    assert verdict(draws, tmp_path) == "**not reproduced**, 0 of 2"


@pytest.mark.parametrize(
    ("gain", "expected"),
    [
        (lambda size: 0.05, "**reproduced**, 2 of 2"),
        (lambda size: 0.05 if size == 100 else -0.05, "**partly**, 1 of 2"),
        (lambda size: -0.05, "**not reproduced**, 0 of 2"),
    ],
)
def test_verdict_follows_the_rows(tmp_path, gain, expected):
    write(
        tmp_path,
        "gdumb",
        {
            "gmc-last-layer": lambda size, seed: 0.5 + gain(size) + noise(seed),
            "reservoir": lambda size, seed: 0.5,
        },
    )
    assert verdict(BETTER, tmp_path) == expected


def test_a_difference_within_two_standard_errors_does_not_count(tmp_path):
    spread = [-0.05, 0.0, 0.08]
    write(
        tmp_path,
        "gdumb",
        {
            "sliding-window": lambda size, seed: 0.5 + spread[seed],
            "reservoir": lambda size, seed: 0.5,
        },
    )
    assert verdict(WINDOW, tmp_path) == "**not reproduced**, 0 of 2"
    assert "(100: +0.010 ± 0.066)" in markdown(tmp_path)


def test_gains_must_shrink_with_the_memory(tmp_path):
    def rows(gain):
        return {
            "gmc-last-layer": lambda size, seed: 0.5 + gain(size),
            "reservoir": lambda size, seed: 0.5,
        }

    write(tmp_path, "gdumb", rows(lambda size: 1 / size))
    assert verdict(SMALLER, tmp_path) == "**reproduced**, 1 of 1"
    other = tmp_path / "other"
    other.mkdir()
    write(other, "gdumb", rows(lambda size: size / 10000))
    assert verdict(SMALLER, other) == "**not reproduced**, 0 of 1"


def test_other_options_are_another_variant(tmp_path):
    """A fast, unweighted or two-draw memory says nothing about the paper's."""
    accuracies = {"gmc-last-layer": lambda size, seed: 0.9}
    write(tmp_path, "gdumb", accuracies, mode="fast")
    write(tmp_path, "gdumb", {"reservoir": lambda size, seed: 0.5})
    assert verdict(BETTER, tmp_path) == "not run"


def test_nothing_run_is_said_so(tmp_path):
    text = markdown(tmp_path)
    assert text.count("not run |") >= len(CLAIMS)
    assert "reproduced" not in text


def test_pages_are_updated_between_their_marks(tmp_path, capsys):
    long, short = tmp_path / "long.md", tmp_path / "short.md"
    long.write_text("before\n<!-- claims -->\nold\n<!-- end of claims -->\nafter\n")
    short.write_text("before\n<!-- verdicts -->\n<!-- end of verdicts -->\nafter\n")
    command = ["claims", "--results", str(tmp_path), "--update", str(long), str(short)]
    assert main(command) == 0
    text = long.read_text()
    assert text.startswith("before\n<!-- claims -->\n\n| the paper says")
    assert text.endswith("|\n\n<!-- end of claims -->\nafter\n")
    assert "old" not in text
    assert verdicts(tmp_path) in short.read_text()
    assert updated(long, tmp_path) == text
    capsys.readouterr()


@pytest.mark.parametrize("text", ["no marks", "<!-- claims -->\nnever closed\n"])
def test_page_without_marks_is_refused_and_left_alone(tmp_path, capsys, text):
    page, good = tmp_path / "page.md", tmp_path / "good.md"
    page.write_text(text)
    good.write_text("<!-- claims -->\n<!-- end of claims -->\n")
    assert main(["claims", "--results", str(tmp_path), "--update", str(good), str(page)]) == 2
    assert page.read_text() == text
    assert "paper" not in good.read_text()
    assert main(["claims", "--update", str(tmp_path / "none.md")]) == 2
    capsys.readouterr()


def test_torch_is_not_imported():
    code = "import benchmarks.report.claims, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_single_seed_is_shown_but_not_judged(tmp_path):
    accuracies = {
        "gmc-last-layer": lambda size, seed: 0.6,
        "reservoir": lambda size, seed: 0.5,
    }
    write(tmp_path, "gdumb", accuracies, seeds=(0,))
    assert verdict(BETTER, tmp_path) == "not run"
    assert "(100: +0.100 ± 0.000), (1000: +0.100 ± 0.000); 1 seed " in markdown(tmp_path)


def test_rows_of_other_settings_and_private_tables_change_nothing(tmp_path):
    """A look with few epochs, or at a thin stream, says nothing about the paper's claims."""

    def rows(gain):
        return {"gmc-last-layer": lambda *_: 0.5 + gain, "reservoir": lambda *_: 0.5}

    write(tmp_path, "gdumb", rows(0.05))
    before, judged = measured(BETTER, tmp_path), verdict(BETTER, tmp_path)
    write(tmp_path, "gdumb", rows(-0.4), seeds=(0, 1), epochs=5)
    write(tmp_path, "gdumb", rows(-0.4), seeds=(7,), train_fraction=0.05)
    assert verdict(BETTER, tmp_path) == judged
    assert measured(BETTER, tmp_path) == [f"{before[0]}; 6 pairs of other settings left out"]
    file = ResultsFile(tmp_path / "gdumb.csv")
    private = [row | {"stream": "csv:/home/me/private.csv?target=y"} for row in file.rows()]
    write_rows(file.path, [*file.rows(), *private])
    assert "private" not in markdown(tmp_path) and verdict(BETTER, tmp_path) == judged
