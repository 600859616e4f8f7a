"""Figures and tables come from the CSV alone, and their numbers are right."""

import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import matplotlib.colors
import pytest
from benchmark_rows import rows_for
from PIL import Image

from benchmarks import UsageError
from benchmarks.__main__ import main
from benchmarks.grid.methods import METHODS
from benchmarks.grid.rows import COLUMNS, as_text, write_rows
from benchmarks.report import figures, plots, tables
from benchmarks.report.averages import curves, frame_of, summarized, trajectories


def text_rows(*arguments, **options):
    rows = rows_for(*arguments, **options)
    return [{column: as_text(value) for column, value in row.items()} for row in rows]


def write(folder, experiment, **options):
    rows = text_rows(experiment, **options)
    if experiment == "class-frequencies":
        rows = [row | {"class_counts_per_experience": "3;1|2;2"} for row in rows]
    write_rows(folder / f"{experiment}.csv", [{c: row[c] for c in COLUMNS} for row in rows])


ROWS = text_rows("gdumb", streams=["digits"], methods=["reservoir", "gmc-last-layer"])


def test_every_experiment_is_drawn_without_torch(tmp_path):
    both = ["digits", "sorted-digits"]
    write(tmp_path, "gdumb", streams=both, methods=["reservoir", "gmc-last-layer"])
    write(tmp_path, "gdumb-per-task", streams=both, methods=["reservoir"], sizes=(1000,))
    write(tmp_path, "class-frequencies", streams=both, methods=["stream"])
    script = (
        "import sys; from benchmarks.__main__ import main; "
        f"code = main(['figures', '--results', {str(tmp_path)!r}]); "
        "assert 'torch' not in sys.modules, 'torch was imported'; sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in ("gdumb", "gdumb-per-task", "class-frequencies"):
        stem = tmp_path / "figures" / name
        for path in (f"{stem}.png", f"{stem}.svg", tmp_path / "tables" / f"{name}.md"):
            assert str(path) in done.stdout
        with Image.open(f"{stem}.png") as image:
            assert image.width > 1000
            assert len(image.convert("L").getcolors(256)) > 10
        ElementTree.parse(f"{stem}.svg")


def test_same_rows_give_the_same_files(tmp_path):
    for folder in ("a", "b"):
        figures.draw("gdumb", ROWS, tmp_path / folder)
    for name in ("gdumb.png", "gdumb.svg"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def heights(band):
    values = band.get_paths()[0].vertices[:, 1]
    return values.min(), values.max()


def test_lines_are_means_with_bands_below_paired_differences():
    """Reservoir .52 and .61, one deviation .02 / √2; the other is always .1 ahead."""
    figure = figures.draw_curves(ROWS)
    above, below = figure.axes
    labels = [line.get_label() for line in below.lines if not line.get_label().startswith("_")]
    line = next(entry for entry in below.lines if entry.get_label() == "reservoir")
    assert list(line.get_xdata()) == [100, 1000]
    assert line.get_ydata() == pytest.approx([0.52, 0.61])
    deviation = 0.02 / 2**0.5
    band = below.collections[labels.index("reservoir")]
    assert heights(band) == pytest.approx((0.52 - deviation, 0.61 + deviation))
    assert below.get_xscale() == above.get_xscale() == "log"
    (line,) = (entry for entry in above.lines if entry.get_label() == "GMC, last layer")
    assert line.get_ydata() == pytest.approx([0.1, 0.1])
    assert heights(above.collections[0]) == pytest.approx((0.1, 0.1))
    assert above.get_ylim()[0] < 0
    plots.plt.close(figure)


@pytest.mark.parametrize("method", ["reservoir", "gmc-last-layer"])
def test_of_one_method_there_are_accuracies_only(method):
    rows = [row for row in ROWS if row["method"] == method]
    figure = figures.draw_curves(rows)
    assert len(figure.axes) == 1
    plots.plt.close(figure)
    assert "Difference" not in tables.markdown("gdumb", rows)


def test_failing_methods_are_marked_with_their_values_instead_of_stretching_the_axes():
    rows = text_rows("gdumb", streams=["digits"], methods=["sliding-window", "reservoir", "gmc"])
    for row in rows:
        if row["method"] == "sliding-window":
            row["accuracy"] = str(float(row["accuracy"]) - 0.4)
    figure = figures.draw_curves(rows)
    above, below = figure.axes
    assert above.get_ylim()[0] > -0.3 and below.get_ylim()[0] > 0.3
    values = [text.get_text() for text in below.texts if text.get_text().startswith(".")]
    assert values == [".12", ".21"]
    assert [text.get_text() for text in above.texts if "−" in text.get_text()] == ["−.50", "−.50"]
    plots.plt.close(figure)


def test_fewer_seeds_are_hollow_and_incomplete_curves_have_no_line():
    methods = ["reservoir", "gmc", "class-balanced"]
    rows = text_rows("gdumb", streams=["digits"], methods=methods, sizes=(100, 200, 500))
    gone = {("class-balanced", "200", "0"), ("class-balanced", "200", "1"), ("gmc", "500", "1")}
    rows = [r for r in rows if (r["method"], r["memory_size"], r["seed"]) not in gone]
    figure = figures.draw_curves(rows)
    below = figure.axes[1]
    lines = {line.get_label(): line for line in below.lines}
    assert lines["class-balanced"].get_linestyle() == "None"
    assert lines["GMC (default)"].get_linestyle() == "-"
    hollow = [line for line in below.lines if line.get_markerfacecolor() == "white"]
    assert [list(line.get_xdata()) for line in hollow if len(line.get_xdata())] == [[500]]
    assert "hollow: fewer seeds" in lines
    plots.plt.close(figure)


def test_more_draws_are_drawn_against_dimensions_per_exemplar(tmp_path):
    """Digits: ten classes, 128 features and a bias, so 1,290 dimensions a draw."""
    rows = text_rows("gdumb", streams=["digits"], methods=["reservoir", "gmc-last-layer"])
    for draws, mode in ((16, "fast"), (4, "fast"), (16, "exact")):
        more = {"methods": ["gmc-last-layer"], "sizes": (100,), "draws": draws, "mode": mode}
        rows += text_rows("gdumb", streams=["digits"], **more)
    for row in rows:
        row["class_counts"] = ";".join("1" * 10)
        if row["draws"] == "16":
            row["accuracy"] = str(float(row["accuracy"]) + (0.13 if row["mode"] == "exact" else 0))
    found = figures.draws.gains(rows)
    assert found["memory_size"].tolist() == [100, 100]
    assert found["per_exemplar"].tolist() == pytest.approx([51.6, 206.4])
    assert found["mean"].tolist() == pytest.approx([0.1, 0.13])
    assert found["count"].tolist() == [2, 2]
    (tmp_path / "ablations").mkdir()
    for name in ("gdumb", "ablations/gdumb"):
        write_rows(tmp_path / f"{name}.csv", [{c: row[c] for c in COLUMNS} for row in rows])
    assert main(["figures", "draws", "--results", str(tmp_path)]) == 0
    assert (tmp_path / "figures" / "draws.svg").exists()


def test_draws_and_dimensions_are_told_apart(tmp_path):
    """Digits have 1,290 dimensions a draw: 4 whole draws, or 16 and 64 of fewer features."""
    rows = []
    for variant in ({"draws": 4}, {"draws": 16}, {"draws": 16, "same_dim_as": 4}):
        methods = ["reservoir", "gmc-last-layer"]
        rows += text_rows("gdumb", streams=["digits"], methods=methods, sizes=(100,), **variant)
    for row in rows:
        row["class_counts"], row["experiment"] = ";".join("1" * 10), "draws"
    found = figures.draws.gains(rows).set_index(["kind", "draws"])["per_exemplar"]
    whole, same = (found[kind] for kind in ("all features", "dimensions of 4 draws"))
    assert whole.to_dict() == pytest.approx({4: 51.6, 16: 206.4})
    assert same.to_dict() == pytest.approx({4: 51.6, 16: 51.52})
    others = []
    for number in (2, 8):
        methods, both = ["reservoir", "gmc-last-layer"], ["digits", "sorted-digits"]
        others += text_rows("gdumb", streams=both, methods=methods, sizes=(100,), draws=number)
    found = figures.draws.gains([*rows, *others])
    assert set(found["stream"]) == {"digits"}
    assert set(found["draws"]) == {4, 16}
    figure = figures.draws.draw(rows)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "100 exemplars",
        "all features",
        "dimensions of 4 draws",
    ]
    plots.plt.close(figure)


def test_tables_name_the_setting_that_they_show():
    thin = text_rows("gdumb", streams=["digits"], methods=["reservoir"], train_fraction=0.1)
    assert "train fraction 1," in tables.markdown("gdumb", [*ROWS, *thin])


def test_a_figure_shows_one_setting_that_of_the_first_method():
    thin = text_rows("gdumb", streams=["digits"], methods=["reservoir"], train_fraction=0.1)
    variants = curves([*ROWS, *thin, *thin], "digits").index.unique("variant")
    assert set(variants) == {"reservoir", "gmc-last-layer"}
    new = text_rows("gdumb", streams=["digits"], methods=["gmc"], seeds=(0,), train_fraction=0.1)
    lines = curves([*ROWS, *thin, *new], "digits")
    assert set(lines.index.unique("variant")) == {"reservoir", "gmc"}


def test_methods_differ_in_colour_and_in_grey():
    looks = [(method.look[1], method.look[2]) for method in METHODS.values()]
    assert len(set(looks)) == len(looks)
    colors = [matplotlib.colors.to_rgb(method.look[0]) for method in METHODS.values()]
    assert len(set(colors)) == len(colors)


def test_a_class_has_the_colour_that_the_legend_gives_it():
    """Panels may have different numbers of classes."""
    rows = text_rows("class-frequencies", streams=["digits", "sorted-digits"], methods=["stream"])
    for row, counts in zip(rows, ("1;1|1;1", "1;1;1;1;1|1;1;1;1;1"), strict=True):
        row["class_counts_per_experience"] = counts
    figure = figures.draw_class_frequencies(rows)
    legend = {
        text.get_text(): handle.get_facecolor()
        for text, handle in zip(
            figure.legends[0].get_texts(), figure.legends[0].get_patches(), strict=True
        )
    }
    assert len(legend) == 5
    for axis in figure.axes:
        for bars in axis.containers:
            assert {bar.get_facecolor() for bar in bars} == {legend[bars.get_label()]}
    plots.plt.close(figure)


def test_variants_of_a_method_share_its_colour_but_not_its_line():
    four = text_rows("gdumb", streams=["digits"], methods=["gmc-last-layer"], draws=4)
    eight = text_rows("gdumb", streams=["digits"], methods=["gmc-last-layer"], draws=8)
    lines = curves([*four, *eight], "digits")
    variants = lines.index.unique("variant")
    assert set(variants) == {"gmc-last-layer", "gmc-last-layer, draws 8"}
    (_, first), (_, second) = plots.styled(variants)
    assert first.color == second.color and first.line != second.line


def test_statistics_are_sample_statistics():
    rows = [dict(row, accuracy=str(a)) for row, a in zip(ROWS[:3], (0.5, 0.7, 0.9), strict=True)]
    found = summarized(frame_of(rows), ["stream"]).iloc[0]
    assert (found["mean"], found["std"], found["count"]) == pytest.approx((0.7, 0.2, 3))
    assert summarized(frame_of(rows[:1]), ["stream"]).iloc[0]["std"] == 0


def test_trajectories_average_each_experience():
    rows = text_rows("gdumb", streams=["digits"], methods=["reservoir"])
    lines = trajectories(rows, "digits")
    assert lines["mean"]["reservoir, 100 exemplars", 1] == pytest.approx(0.26)


def test_trajectories_have_paired_differences_above_them():
    """Of methods .1 and .4 apart after two experiences, half of that after one."""
    methods, sizes = ["reservoir", "gmc", "sliding-window"], (1000,)
    rows = text_rows("gdumb-per-task", streams=["digits"], methods=methods, sizes=sizes)
    for row in rows:
        if row["method"] == "sliding-window":
            row["accuracy_per_experience"] = "0.1;0.1"
    figure = figures.draw_trajectories(rows)
    above, below = figure.axes
    (line,) = (line for line in above.lines if not line.get_label().startswith("_"))
    assert line.get_label() == "GMC (default)"
    assert list(line.get_xdata()) == [1, 2]
    assert line.get_ydata() == pytest.approx([0.05, 0.1])
    drawn = {line.get_label() for line in below.lines if not line.get_label().startswith("_")}
    assert drawn == {"GMC (default)", "reservoir", "sliding window"}
    plots.plt.close(figure)
    text = tables.markdown("gdumb-per-task", rows)
    assert "| GMC (default)    | +0.050 ± 0.000 (n=2) | +0.100 ± 0.000 (n=2) |" in text


def test_table_marks_the_best_and_pairs_differences_by_seed():
    text = tables.markdown("gdumb", ROWS)
    assert "| GMC, last layer | **0.620 ± 0.014** | **0.710 ± 0.014** |" in text
    assert "| reservoir       | 0.520 ± 0.014     | 0.610 ± 0.014     |" in text
    # The deviation of the difference is 0: seeds shift both methods alike.
    assert "| GMC, last layer | +0.100 ± 0.000 (n=2) | +0.100 ± 0.000 (n=2) |" in text
    assert "seeds 0, 1" in text and "epochs 200" in text


def test_difference_uses_only_seeds_that_both_have():
    fewer = [r for r in ROWS if not (r["method"] == "reservoir" and r["seed"] == "1")]
    assert "+0.100 ± 0.000 (n=1)" in tables.markdown("gdumb", fewer)


@pytest.mark.parametrize(
    ("arguments", "message"), [([], "holds no results"), (["gdumb"], "no rows"), (["x"], "unknown")]
)
def test_nothing_to_draw_exits_2(tmp_path, capsys, arguments, message):
    assert main(["figures", *arguments, "--results", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("methods", "draws", "says"),
    [
        (["reservoir"], [4], "rows of gmc-last-layer and of the reservoir"),
        (["gmc-last-layer"], [4, 16], "rows of gmc-last-layer and of the reservoir"),
        (["reservoir", "gmc-last-layer"], [4], "rows of several numbers of draws"),
    ],
    ids=["no draws", "no reservoir", "one number"],
)
def test_draws_that_cannot_be_compared_are_refused(methods, draws, says):
    rows = []
    for number in draws:
        rows += text_rows("gdumb", streams=["digits"], methods=methods, draws=number)
    for row in rows:
        row["class_counts"] = ";".join("1" * 10)
    with pytest.raises(UsageError, match=says):
        figures.draws.draw(rows)


def test_trajectories_need_accuracies_after_each_experience():
    with pytest.raises(UsageError, match="no row has accuracies after each experience"):
        figures.draw_trajectories([row | {"accuracy_per_experience": ""} for row in ROWS])


def test_a_cell_that_was_measured_twice_counts_once():
    again = [row | {"accuracy": "0.9"} for row in ROWS if row["seed"] == "0"]
    found = frame_of([*ROWS, *again])
    assert len(found) == len(ROWS)
    assert set(found["accuracy"][found["seed"] == "0"]) == {0.9}


def test_bold_is_the_best_of_those_with_most_seeds():
    rows = text_rows("gdumb", streams=["digits"], methods=["reservoir", "gmc"], sizes=(100,))
    for row in rows:
        row["accuracy"] = "0.8" if row["method"] == "gmc" else "0.5"
    fewer = [row for row in rows if row["method"] == "reservoir" or row["seed"] == "0"]
    assert "**0.800 ± 0.000**" in tables.markdown("gdumb", rows)
    text = tables.markdown("gdumb", fewer)
    assert "**0.500 ± 0.000**" in text
    assert "| 0.800 (n=1) " in text
