"""What others report stands beside what our rows say."""

from benchmark_rows import lines_of, rows_for

from benchmarks.grid.experiments import EXPERIMENTS
from benchmarks.grid.methods import METHODS
from benchmarks.grid.rows import as_text, write_rows
from benchmarks.report import published
from benchmarks.streams.registry import STREAMS

KNOWN = EXPERIMENTS["gdumb-published"].published


def made_up(seeds=(0, 1)):
    """Gradient matching is ahead by .04 with the first seed and by .06 with the second."""
    rows = rows_for(
        "gdumb-published",
        streams=["split-mnist"],
        methods=["class-balanced", "gmc"],
        sizes=(300,),
        seeds=seeds,
    )
    for row in rows:
        row["accuracy"] = 0.5 + (row["method"] == "gmc") * (0.04 + 0.02 * row["seed"])
    return [{name: as_text(value) for name, value in row.items()} for row in rows]


def test_a_line_has_our_accuracy_the_published_one_and_the_paired_difference():
    header, _, ours, balanced, *_ = lines_of(published.beside(made_up(), KNOWN))
    assert header[-2:] == ["published", "GMC (default) minus it"]
    assert ours[0].startswith("Split-MNIST, MLP-100") and balanced[0] == ""
    assert ours[1:] == ["300", "GMC (default)", "0.550 ± 0.014", "2", "", ""]
    # Student's t with one degree of freedom, 12.706, times .01
    assert balanced[1:] == [
        *("300", "class-balanced", "0.500 ± 0.000", "2", "0.891 ± 0.004", "+0.050 ± 0.127")
    ]


def test_published_figures_without_rows_are_not_run():
    lines = lines_of(published.beside(made_up(seeds=(0,)), KNOWN))
    (large,) = (line for line in lines if len(line) == 7 and line[1] == "1000")
    assert large[2:] == ["class-balanced", "not run", "0", "0.612 ± 0.010", ""]
    assert lines[2][3] == "0.540" and lines[3][-1] == "+0.040"


def test_rows_of_other_options_are_left_out():
    unlike = [row | {"method": "gmc-last-layer", "draws": "9"} for row in made_up()]
    lines = lines_of(published.beside([*made_up(), *unlike], KNOWN))
    assert all("last layer" not in cell for line in lines for cell in line)


def test_rows_of_a_users_own_table_come_last_and_need_no_published_figure():
    own = [row | {"stream": "csv:/home/me/mine.csv?target=y"} for row in made_up()]
    lines = lines_of(published.beside([*own, *made_up()], KNOWN))
    *_, ours, other = (line for line in lines if len(line) == 7)
    assert "mine.csv" in ours[0] and ours[5:] == ["", ""]
    assert other[5:] == ["", "+0.050 ± 0.127"]
    only_unlike = [row | {"method": "gmc-last-layer", "draws": "9"} for row in own]
    assert "not run" in published.beside(only_unlike, KNOWN)


def test_page_has_the_experiments_with_rows(tmp_path):
    assert published.markdown(tmp_path) == "Not run yet."
    write_rows(tmp_path / "gdumb-published.csv", made_up())
    text = published.markdown(tmp_path)
    assert text.count("Published: ") == 1 and "`gdumb-published`" in text


def test_published_figures_are_of_streams_and_methods_that_are_run():
    for experiment in EXPERIMENTS.values():
        known = experiment.published
        for stream, method, _ in known.figures if known else ():
            assert stream in experiment.streams and stream in STREAMS
            assert method in experiment.methods and method in METHODS
            assert known.ours in experiment.methods
