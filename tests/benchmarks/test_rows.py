"""Rows survive crashes and other writers, and identify their cells."""

import csv
import subprocess
import sys
import textwrap

import pytest
from benchmark_rows import rows_for

from benchmarks import UsageError
from benchmarks.grid.rows import (
    COLUMNS,
    CONFIGURATION,
    LATER_COLUMNS,
    PUBLISHED,
    ResultsFile,
    as_text,
    key,
    numbers,
    write_rows,
)

ROWS = rows_for("gdumb", streams=["digits"], methods=["reservoir", "gmc-last-layer"])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1 + 0.2, "0.3"),
        (200, "200"),
        (True, "yes"),
        (False, "no"),
        (None, ""),
        ([1, 2], "1;2"),
        ([0.5, 0.25], "0.5;0.25"),
        ([[1, 2], [3]], "1;2|3"),
        ("exact", "exact"),
    ],
)
def test_values_are_written_alike_everywhere(value, text):
    assert as_text(value) == text


def test_numbers_reads_back_what_was_written():
    assert numbers(as_text([0.25, 3])) == [0.25, 3.0]
    assert numbers("") == []


def test_rows_read_back_have_the_key_they_were_written_with(tmp_path):
    file = ResultsFile(tmp_path / "new" / "gdumb.csv")
    for row in ROWS:
        file.append(row)
    assert [key(row) for row in file.rows()] == [key(row) for row in ROWS]
    assert len(file.finished()) == len(ROWS)
    with file.path.open(newline="") as stream:
        assert tuple(next(csv.reader(stream))) == COLUMNS


def test_a_cell_is_written_once(tmp_path):
    file = ResultsFile(tmp_path / "gdumb.csv")
    file.append(ROWS[0])
    file.append({**ROWS[0], "accuracy": 0.9})
    assert [row["accuracy"] for row in file.rows()] == [as_text(ROWS[0]["accuracy"])]


def test_every_configuration_column_tells_cells_apart():
    for column in CONFIGURATION:
        assert key({**ROWS[0], column: "other"}) != key(ROWS[0])


def test_text_with_commas_and_line_ends_is_quoted(tmp_path):
    file = ResultsFile(tmp_path / "gdumb.csv")
    file.append({**ROWS[0], "device": 'cpu, "two"'})
    assert file.rows()[0]["device"] == 'cpu, "two"'


@pytest.mark.parametrize("cut", [1, 10, 60])
def test_line_cut_short_by_a_crash_is_ignored_then_replaced(tmp_path, cut):
    file = ResultsFile(tmp_path / "gdumb.csv")
    file.append(ROWS[0])
    file.append(ROWS[1])
    whole = file.path.read_bytes()
    file.path.write_bytes(whole[:-cut])
    assert [key(row) for row in file.rows()] == [key(ROWS[0])]
    file.append(ROWS[1])
    assert file.path.read_bytes() == whole


def test_header_cut_short_starts_the_file_anew(tmp_path):
    file = ResultsFile(tmp_path / "gdumb.csv")
    file.path.write_text("experiment,str")
    assert file.rows() == []
    file.append(ROWS[0])
    assert [key(row) for row in file.rows()] == [key(ROWS[0])]


def test_missing_or_unknown_column_is_refused(tmp_path):
    with pytest.raises(ValueError, match="must have the columns"):
        ResultsFile(tmp_path / "gdumb.csv").append({"accuracy": 1.0})


def test_file_of_another_version_is_refused(tmp_path):
    (tmp_path / "gdumb.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match="other columns"):
        ResultsFile(tmp_path / "gdumb.csv").rows()


def test_rows_older_than_a_column_count_as_what_was_done_then(tmp_path):
    """They are read, recognised as finished, and get the column with the next row."""
    file = ResultsFile(tmp_path / "gdumb.csv")
    old = [column for column in COLUMNS if column not in LATER_COLUMNS]
    write_rows(file.path, [{column: ROWS[0][column] for column in old}])
    assert file.rows()[0]["precision"] == "float32" and key(ROWS[0]) in file.finished()
    file.append({**ROWS[0], "precision": "bf16"})
    with file.path.open(newline="") as stream:
        assert tuple(next(csv.reader(stream))) == COLUMNS
    assert [row["precision"] for row in file.rows()] == ["float32", "bf16"]
    assert [key(row)[:5] for row in file.rows()] == [key(ROWS[0])[:5]] * 2


@pytest.mark.parametrize("path", sorted(PUBLISHED.glob("gdumb*.csv")), ids=lambda p: p.stem)
def test_published_rows_can_be_read(path):
    assert {row["precision"] for row in ResultsFile(path).rows()} <= {"float32", "bf16"}


def test_processes_that_write_at_once_lose_and_mix_nothing(tmp_path):
    script = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        sys.path.insert(0, sys.argv[1])
        from benchmark_rows import rows_for
        from benchmarks.grid.rows import ResultsFile
        rows = rows_for("gdumb", streams=["digits"], methods=["reservoir"],
                        sizes=range(1, 21), seeds=(0, 1))
        for row in rows if sys.argv[3] == "forward" else reversed(rows):
            ResultsFile(Path(sys.argv[2])).append(row)
        """
    )
    path = tmp_path / "gdumb.csv"
    here = __file__.rpartition("/")[0]
    command = [sys.executable, "-c", script, here, str(path)]
    writers = [subprocess.Popen([*command, order]) for order in ("forward", "backward", "forward")]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0]
    rows = ResultsFile(path).rows()
    assert len(rows) == 40 and len({key(row) for row in rows}) == 40
    assert path.read_text().count("\n") == 41


@pytest.mark.parametrize(
    ("column", "value"), [("accuracy", "good"), ("memory_size", "memory_size"), ("seed", "one")]
)
def test_a_word_in_the_place_of_a_number_is_named_with_its_line(tmp_path, column, value):
    texts = [{name: as_text(row[name]) for name in COLUMNS} for row in ROWS[:2]]
    write_rows(path := tmp_path / "gdumb.csv", [texts[0], texts[1] | {column: value}])
    with pytest.raises(UsageError, match=f"line 3: {column} must be a number but is '{value}'"):
        ResultsFile(path).rows()


def test_a_file_that_is_no_text_is_refused(tmp_path):
    (path := tmp_path / "gdumb.csv").write_bytes(b"\xff\xfe\x00broken\n")
    with pytest.raises(UsageError, match="not UTF-8"):
        ResultsFile(path).rows()
