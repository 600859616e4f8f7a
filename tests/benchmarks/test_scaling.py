"""The scaling benchmark in miniature: its rows, its figure, its table."""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from scaling_rows import rows

from benchmarks.__main__ import main
from benchmarks.grid.rows import write_rows
from benchmarks.speed import scaling, scaling_child
from benchmarks.speed.scaling import FINISHED, STOPPED, Case
from benchmarks.streams import block_stream

TINY = ["--source", "synthetic", "--sizes", "5", "20", "--atoms", "60", "90", "--dims", "80", "120"]
TINY += ["--stream", "300", "80", "20", "--large", "80", "120", "30", "--threads", "1"]

CASE = Case("growth", "exact", "synthetic", "last-layer", 60, 80, 5, 0, 1)


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def one_process(monkeypatch):
    """Measure in this process, which saves the start of a new one for every row."""
    threads = torch.get_num_threads()
    monkeypatch.setattr(scaling, "in_a_process", lambda case, *_: scaling_child.measure(case))
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_process")
def test_rows_figure_and_predictions_then_nothing_left_to_measure(tmp_path, capsys, monkeypatch):
    path = tmp_path / "scaling.csv"
    (tmp_path / "scaling.md").write_text(
        "before\n<!-- measured -->\nold\n<!-- end of measured -->\nafter\n"
    )
    command = ["scaling", *TINY, "--csv", str(path), "--output", str(tmp_path)]
    assert main([*command, "--part", "growth", "--sizes", "5", "--atoms", "90"]) == 0
    first = path.read_text()
    assert main(command) == 0
    found = read(path)
    assert path.read_text().startswith(first)
    assert {row["part"] for row in found} == {"growth", "stream", "large"}
    assert {row["status"] for row in found} == {FINISHED}
    assert all(int(row["picked"]) <= int(row["size"]) for row in found)
    assert all(float(row["seconds"]) > 0 and float(row["peak_gb"]) > 0.1 for row in found)
    residuals = {row["method"]: float(row["residual"]) for row in found if row["size"] == "20"}
    assert residuals["exact"] < 0.5
    assert "| large, fast" in capsys.readouterr().out
    page = (tmp_path / "scaling.md").read_text()
    assert page.startswith("before\n")
    assert page.endswith("<!-- end of measured -->\nafter\n")
    assert "| large, fast" in page
    assert "old" not in page
    monkeypatch.setattr(scaling, "in_a_process", lambda *_: pytest.fail("measured again"))
    assert main(command) == 0
    assert read(path) == found
    assert (tmp_path / "scaling.png").stat().st_size > 10_000
    assert (tmp_path / "scaling.svg").stat().st_size > 10_000


def test_rows_over_the_limit_are_noted_and_larger_ones_not_tried(tmp_path, monkeypatch):
    tried = []

    def pretend(case, limit, data_root):
        tried.append(case)
        slow = case.method == "scikit-learn" and case.size >= 20
        return {"status": STOPPED} if slow else {**measured(), "status": FINISHED}

    def measured():
        keys = ("seconds", "peak_gb", "extra_gb", "dictionary_gb", "residual")
        return dict.fromkeys(keys, 1.0) | {"picked": 1}

    monkeypatch.setattr(scaling, "in_a_process", pretend)
    path = tmp_path / "scaling.csv"
    options = ["--part", "growth", "--sizes", "5", "20", "40", "--atoms", "60", "90"]
    command = ["scaling", *TINY, *options, "--csv", str(path), "--output", str(tmp_path)]
    assert main(command) == 0
    slow = [row for row in read(path) if row["status"] == STOPPED]
    assert {row["size"] for row in slow} == {"20", "40"}
    assert [case for case in tried if case.method == "scikit-learn" and case.size == 40] == []
    assert len([case for case in tried if case.method == "fast"]) == len(
        [row for row in read(path) if row["method"] == "fast"]
    )


def test_a_row_is_measured_in_a_process_of_its_own():
    measured = scaling.in_a_process(CASE, None, None)
    assert measured["status"] == FINISHED
    assert measured["picked"] == 5


def test_a_process_that_takes_too_long_is_stopped():
    assert scaling.in_a_process(CASE, 0.01, None) == {"status": STOPPED}


def test_a_process_that_fails_ends_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    command = ["scaling", *TINY, "--part", "large", "--csv", str(tmp_path / "scaling.csv")]
    assert main([*command, "--output", str(tmp_path)]) == 1
    assert "the process that measures it ended with 1" in capsys.readouterr().err
    assert not (tmp_path / "scaling.csv").exists()


@pytest.mark.parametrize(
    "bad",
    [
        ["--part", "everything"],
        ["--dims", "81"],
        ["--stream", "100", "40", "20"],
        ["--sizes", "0"],
        ["--limit", "0"],
        ["--part", "stream", "--stream", "10", "80", "20"],
        ["--part", "large", "--large", "10", "80", "20"],
    ],
)
def test_bad_options_exit_with_2_and_one_sentence(bad, tmp_path, capsys):
    assert main(["scaling", *bad, "--csv", str(tmp_path / "scaling.csv")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("python -m benchmarks scaling: error: ")
    assert error.count("\n") == 1


def test_the_figure_needs_no_torch(tmp_path):
    path = tmp_path / "scaling.csv"
    write_rows(path, rows())
    code = (
        "import sys; from benchmarks.__main__ import main;"
        f"code = main(['scaling', '--part', 'none', '--csv', {str(path)!r},"
        f" '--output', {str(tmp_path)!r}]);"
        "assert 'torch' not in sys.modules; sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "scaling.png").exists()


def test_no_rows_are_no_error(tmp_path, capsys):
    command = ["scaling", "--part", "none", "--csv", str(tmp_path / "none.csv")]
    assert main([*command, "--output", str(tmp_path)]) == 0
    assert "no rows of the growth" in capsys.readouterr().out


def test_the_stream_is_the_same_however_it_is_read():
    inputs, labels = block_stream.examples(700)
    parts = list(block_stream.experiences(700, 3))
    assert sum(map(len, parts)) == 700
    samples = [sample for part in parts for sample in part]
    assert torch.equal(torch.stack([sample[0] for sample in samples]), inputs)
    assert [int(sample[1]) for sample in samples] == labels.tolist()
    assert [int(t) for part in parts for t in part.targets] == labels.tolist()
    assert len(set(labels.tolist())) == block_stream.CLASSES
