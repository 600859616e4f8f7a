"""The README's first command: a table, a figure, its path, and nothing to download."""

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.grid import runner, workers
from benchmarks.grid.rows import ResultsFile

ROOT = Path(__file__).resolve().parents[2]


def run_grid_here(groups, *, jobs, threads, results, root):
    """In place of worker processes."""
    for group in groups:
        runner.run_group(group, results, root)


def test_demo_prints_tables_and_the_path_of_a_figure(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(workers, "run_grid", run_grid_here)
    monkeypatch.setattr("socket.socket.connect", None)  # offline
    options = ["--seeds", "1", "--epochs", "3", "--output", str(tmp_path)]
    assert main(["demo", *options]) == 0
    assert main(["demo", *options]) == 0  # again: fresh rows, not twice as many
    output = capsys.readouterr().out
    figure = Path(re.search(r"^Figure: (.+)$", output, re.MULTILINE)[1])
    assert figure.exists() and figure.is_absolute()
    for name in ("GMC (default)", "reservoir", "class-balanced", "sliding window"):
        assert output.count(f"| {name}") >= 2
    rows = ResultsFile(tmp_path / "demo.csv").rows()
    assert len(rows) == 2 * 4 * 4
    assert {row["memory_size"] for row in rows} == {"20", "50", "100", "200"}


@pytest.mark.slow
def test_make_demo_in_a_clean_clone(tmp_path):
    """Everything but the installation, which would fetch gigabytes: this environment is used."""
    clone, venv = tmp_path / "clone", Path(sys.prefix)
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    assert shutil.which("make")
    stamps = [f"{venv}/.installed-dev"]
    command = ["make", "demo", f"VENV={venv}", *(f"-o{stamp}" for stamp in stamps)]
    start = time.monotonic()
    done = subprocess.run(command, cwd=clone, capture_output=True, text=True, timeout=600)
    seconds = time.monotonic() - start
    assert done.returncode == 0, done.stderr
    figure = Path(re.search(r"^Figure: (.+)$", done.stdout, re.MULTILINE)[1])
    assert figure.exists() and clone in figure.parents
    rows = ResultsFile(clone / "results/demo/demo.csv").rows()
    assert len(rows) == 160
    means = {}
    for row in rows:
        means.setdefault((row["stream"], row["method"], row["memory_size"]), []).append(
            float(row["accuracy"])
        )
    for stream in ("digits", "sorted-digits"):
        gmc, reservoir = (sum(means[stream, m, "20"]) for m in ("gmc", "reservoir"))
        assert gmc > reservoir
    status = subprocess.run(["git", "status", "--short"], cwd=clone, capture_output=True, text=True)
    assert status.stdout == "", "the demo leaves the working tree clean"
    assert seconds < 600
