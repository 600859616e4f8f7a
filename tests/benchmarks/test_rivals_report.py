"""The rivals' table and figure say what the rows say."""

import numpy as np
import pytest
from benchmark_rows import lines_of, rows_for

from benchmarks.grid.rows import as_text, write_rows
from benchmarks.report import figures, rivals

METHODS = ["reservoir", "gmc", "grand"]


def made_up(experiment="rivals", **columns):
    """Differences of .1 and -.05; the deviation over the seeds is known."""
    rows = rows_for(
        experiment, streams=["digits"], methods=METHODS, sizes=(50, 200), seeds=range(3)
    )
    for row in rows:
        level = {"reservoir": 0.5, "gmc": 0.6 + 0.01 * row["seed"], "grand": 0.45}[row["method"]]
        row["accuracy"] = level
        row["selection_seconds"] = {"reservoir": 0.1, "gmc": 2.0, "grand": 1.0}[row["method"]]
        row["embedding_seconds"] = 0.5 if row["method"] == "gmc" else None
        row.update(columns)
    return [{name: as_text(value) for name, value in row.items()} for row in rows]


def test_table_has_differences_intervals_and_seconds_best_first():
    header, _, *body = lines_of(rivals.comparison(made_up()))
    assert header[0] == "memory" and header[1].endswith("50") and header[-1] == "seconds"
    assert [line[0] for line in body] == ["GMC (default)", "reservoir", "GraNd"]
    half = 4.302653 * 0.01 / np.sqrt(3)  # Student's t, two degrees of freedom
    assert body[0][1:] == [f"+0.110 ± {half:.3f}"] * 2 + ["2.5"]
    assert body[1][1:] == ["0.500", "0.500", "0.1"]
    assert body[2][1] == "-0.050 ± 0.000"


def test_wrong_labels_are_told_where_there_are_some():
    body = lines_of(rivals.comparison(made_up("label-noise", wrong_labels=0.25)))[2:]
    assert body[1][1] == "0.500 (25% wrong)"
    weighted = made_up("label-noise", wrong_labels=0.25, wrong_weight=0.125)
    assert lines_of(rivals.comparison(weighted))[3][1] == "0.500 (25% wrong, 12% by weight)"


def test_page_has_the_experiments_with_rows(tmp_path):
    assert rivals.markdown(tmp_path) == "Not run yet."
    write_rows(tmp_path / "rivals.csv", made_up())
    assert "`rivals`" in rivals.markdown(tmp_path)
    assert "`label-noise`" not in rivals.markdown(tmp_path)


def test_single_seeds_have_no_interval():
    rows = [row for row in made_up() if row["seed"] == "0"]
    assert lines_of(rivals.comparison(rows))[2][1] == "+0.100"
    rivals.draw(rows)
    assert rivals.settings(rows).endswith(": 1 seed.")
    some = [row for row in made_up() if row["seed"] == "0" or row["method"] == "gmc"]
    assert rivals.settings(some).endswith(": 1 to 3 seeds.")


def test_figure_has_a_mark_for_each_difference_and_the_times(tmp_path):
    figure = rivals.draw(made_up())
    differences, times = figure.axes
    middles = [bars.lines[0].get_xdata()[0] for bars in differences.containers]
    assert sorted(middles) == pytest.approx([-0.05, -0.05, 0.11, 0.11])
    assert [label.get_text() for label in differences.get_yticklabels()][-1] == "GMC (default)"
    assert sorted(line.get_xdata()[0] for line in times.lines) == pytest.approx([0.1, 1.0, 2.5])
    assert len(figures.draw("rivals", made_up(), tmp_path)) == 2


def test_what_is_far_behind_is_written_and_does_not_stretch_the_axis():
    rows = made_up()
    for row in rows:
        if row["method"] == "grand":
            row["accuracy"] = "0.3" if row["memory_size"] == "50" else "0.45"
    axis = rivals.draw(rows).axes[0]
    assert [text.get_text() for text in axis.texts] == ["◂ 50: -0.20"]
    assert -0.2 < axis.get_xlim()[0] < -0.05 and axis.get_xlim()[1] > 0.11
    middles = [bars.lines[0].get_xdata()[0] for bars in axis.containers]
    assert sorted(middles) == pytest.approx([-0.05, 0.11, 0.11])


@pytest.mark.parametrize(("seconds", "text"), [(0.0123, "0.012"), (12.3, "12"), (212.3, "212")])
def test_seconds_have_two_digits_or_are_whole(seconds, text):
    assert rivals.seconds_text(seconds) == text


def test_each_stream_has_its_own_largest_memory_seconds_and_setting():
    small, large = made_up(), made_up()
    for row in large:
        row["stream"], row["memory_size"] = "split-fashion-mnist", f"{10 * int(row['memory_size'])}"
        row["selection_seconds"] = "7" if row["memory_size"] == "2000" else "1"
        row["train_fraction"], row["precision"] = "0.2", "bf16"
    header, _, *body = lines_of(rivals.comparison([*small, *large]))
    assert body[0][-1] == "7.5 / 2.5" and len(header) == 6
    assert rivals.settings([*small, *large]) == (
        "Split Fashion-MNIST: 3 seeds, a fifth of the stream, bf16; "
        "Digits, two new classes at a time: 3 seeds (seconds in this order)."
    )
    times = rivals.draw([*small, *large]).axes[-1]
    assert sorted(len(line.get_xdata()) for line in times.lines) == [2, 2, 2]


def test_memories_that_were_not_run_everywhere_come_last():
    gone = [r for r in made_up() if r["method"] != "gmc" or r["memory_size"] == "50"]
    assert [line[0] for line in lines_of(rivals.comparison(gone))[2:]] == [
        *("reservoir", "GraNd", "GMC (default)"),
    ]
