"""Superseded rows have newer ones for all their seeds."""

import subprocess
import sys

from claim_rows import write

from benchmarks.__main__ import main
from benchmarks.report.superseded import superseded

STREAM = {"streams": ["split-fashion-mnist"], "sizes": (100,)}


def rows_of(tmp_path, **settings):
    """A hundred exemplars of the reservoir with seeds of each setting."""
    rows = []
    for seeds, options in settings.values():
        rows = write(
            tmp_path, "gdumb", {"reservoir": lambda *_: 0.5}, seeds=seeds, **STREAM, **options
        )
    return rows


def test_more_of_the_stream_or_the_faster_precision_supersedes(tmp_path):
    rows = rows_of(
        tmp_path,
        thin=((0, 1), {"train_fraction": 0.1}),
        whole=((0, 1, 2), {}),
        fast=((0, 1, 2, 3), {"precision": "bf16"}),
    )
    found = superseded(rows)
    assert found[["memory_size", "seeds", "old", "new"]].values.tolist() == [
        [100, 2, "a tenth of the stream", "bf16"],
        [100, 3, "as in the paper", "bf16"],
    ]


def test_rows_with_a_seed_of_their_own_stay(tmp_path):
    thin, whole = ((0, 5), {"train_fraction": 0.1}), ((0, 1, 2), {})
    assert superseded(rows_of(tmp_path, thin=thin, whole=whole)).empty
    assert superseded([]).empty


def test_the_command_prints_them(tmp_path, capsys):
    rows_of(tmp_path, thin=((0,), {"train_fraction": 0.1}), whole=((0,), {}))
    assert main(["superseded", "--results", str(tmp_path)]) == 0
    line = "| gdumb | split-fashion-mnist | reservoir | 100 | 1 | a tenth of the stream |"
    assert line in capsys.readouterr().out


def test_a_reader_that_leaves_is_no_error(tmp_path):
    """As with ``… | head``."""
    rows_of(tmp_path, thin=((0,), {"train_fraction": 0.1}), whole=((0,), {}))
    command = [sys.executable, "-m", "benchmarks", "superseded", "--results", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=60) == 0
