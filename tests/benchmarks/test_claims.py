"""The paper's claims against made-up rows whose outcome is known."""

import subprocess
import sys

import pytest
from claim_rows import write

from benchmarks.__main__ import main
from benchmarks.grid.rows import ResultsFile, write_rows
from benchmarks.report import claims, runs
from benchmarks.report.claims import CLAIMS, markdown, summary, updated, verdicts

BETTER, _, SMALLER, WINDOW = CLAIMS[:4]
ELSEWHERE = "not run on Covertype, sorted, Split Fashion-MNIST, Split CIFAR-10"
(DRAWS,) = (claim for claim in CLAIMS if claim.text == "Four draws are enough")
LAST, GMC = "gmc-last-layer", "gmc"
NOISE = (0.001, -0.002, 0.0015)


def gaining(gain, method=LAST):
    """Rows of a method that has ``gain(size)`` more than the reservoir, and a little noise."""
    return {
        method: lambda size, seed: 0.5 + gain(size) + NOISE[seed % 3],
        "reservoir": lambda size, seed: 0.5,
    }


def verdict(claim, results):
    return claims.verdict(claim, claims.evidence(claim, results))


def measured(claim, results):
    return claims.measured(claim, claims.evidence(claim, results))


@pytest.mark.parametrize(
    ("gain", "expected"),
    [
        (lambda size: 0.05, "**reproduced**: 1 of 1 stream"),
        (lambda size: 0.05 if size == 100 else -0.01, "0 of 1 stream, not at Electricity, sorted"),
        (lambda size: -0.05, "**not reproduced**: 0 of 1 stream, not at Electricity, sorted (100"),
        (lambda size: 0.001, "0 of 1 stream, not clear on Electricity, sorted"),
    ],
)
def test_verdict_follows_the_rows(tmp_path, gain, expected):
    write(tmp_path, "gdumb", gaining(gain))
    assert expected in verdict(BETTER, tmp_path)
    assert ("too few dimensions" in verdict(BETTER, tmp_path)) == ("0 of 1" in expected)


def test_a_claim_holds_partly_if_on_some_streams(tmp_path):
    write(tmp_path, "gdumb", gaining(lambda size: 0.05))
    write(tmp_path, "gdumb", gaining(lambda size: -0.05), streams=["sorted-covertype"])
    text = verdict(BETTER, tmp_path)
    assert text.startswith("**partly**: 1 of 2 streams, not at Covertype, sorted (100, 1000)")


def test_the_default_may_reproduce_what_the_papers_settings_do_not(tmp_path):
    write(tmp_path, "gdumb", gaining(lambda size: -0.05))
    write(tmp_path, "gdumb", gaining(lambda size: 0.05, GMC))
    text = verdict(BETTER, tmp_path)
    start = f"**reproduced with the library's default**: 1 of 1 stream, {ELSEWHERE}; the paper's"
    assert text.startswith(start)
    write(tmp_path, "gdumb", gaining(lambda size: 0.05), streams=["split-cifar10"])
    text = verdict(BETTER, tmp_path)  # the default has not been run there
    places = "not at Electricity, sorted (100, 1000), not run on Covertype, sorted, Split Fashion"
    assert text.startswith(f"**partly**: 1 of 2 streams, {places}-MNIST;")
    write(tmp_path, "gdumb", gaining(lambda size: -0.05, GMC), streams=["split-cifar10"])
    assert verdict(BETTER, tmp_path).startswith("**partly**: 1 of 2 streams")


def test_a_part_takes_what_its_file_lacks_from_another(tmp_path):
    (tmp_path / "ablations").mkdir()
    write(tmp_path, "gdumb", {LAST: lambda size, seed: 0.5}, draws=4)
    assert verdict(DRAWS, tmp_path) == "not run"
    write(tmp_path / "ablations", "gdumb", {LAST: lambda *_: 0.6}, draws=8)
    assert verdict(DRAWS, tmp_path).startswith("**not reproduced**: 0 of 1 stream")


def test_a_stream_at_which_several_comparisons_fail_is_named_once(tmp_path):
    (tmp_path / "ablations").mkdir()
    write(tmp_path, "gdumb", {LAST: lambda size, seed: 0.5}, sizes=(100, 200, 500), draws=4)
    for draws, sizes in ((8, (100, 500)), (16, (200, 500))):
        more = {"sizes": sizes, "draws": draws}
        write(tmp_path / "ablations", "gdumb", {LAST: lambda *_: 0.6}, **more)
    text = verdict(DRAWS, tmp_path)
    assert f"0 of 2 comparisons, not at Electricity, sorted (100 to 500), {ELSEWHERE};" in text


def test_level_is_shown_not_assumed(tmp_path):
    (tmp_path / "ablations").mkdir()
    write(tmp_path, "gdumb", {LAST: lambda size, seed: 0.5}, draws=4)
    noisy = [0.03, -0.03, 0.002]
    write(tmp_path / "ablations", "gdumb", {LAST: lambda _, s: 0.5 + noisy[s]}, draws=8)
    assert "not clear" in verdict(DRAWS, tmp_path)
    write(tmp_path / "ablations", "gdumb", {LAST: lambda _, s: 0.5 + NOISE[s] / 2}, draws=16)
    assert verdict(DRAWS, tmp_path).startswith("**partly**: 1 of 2 comparisons")
    assert "+0.000 ± 0.002 ≈" in measured(DRAWS, tmp_path)


def test_many_comparisons_are_corrected_together(tmp_path):
    """t = 6.9, p = .02 with three seeds: clear alone, not one of six."""
    spread = [0.03, 0.05, 0.04]
    rows = {"sliding-window": lambda _, s: 0.5 - spread[s], "reservoir": lambda *_: 0.5}
    write(tmp_path, "gdumb", rows, sizes=(100,))
    assert ": 100: -0.040 ± 0.025;" in measured(WINDOW, tmp_path)
    write(tmp_path, "gdumb", rows, sizes=(200, 300, 400, 500, 600))
    assert ": (100: -0.040 ± 0.025)," in measured(WINDOW, tmp_path)


def test_gains_must_shrink_with_the_memory(tmp_path):
    write(tmp_path, "gdumb", gaining(lambda size: 10 / size))
    assert verdict(SMALLER, tmp_path) == f"**reproduced**: 1 of 1 stream, {ELSEWHERE}"
    other = tmp_path / "other"
    other.mkdir()
    write(other, "gdumb", gaining(lambda size: size / 10000))
    assert verdict(SMALLER, other).startswith("**not reproduced**: 0 of 1 stream")


def test_other_options_are_another_variant(tmp_path):
    """A fast, unweighted or two-draw memory says nothing about the paper's."""
    write(tmp_path, "gdumb", {LAST: lambda size, seed: 0.9}, mode="fast")
    write(tmp_path, "gdumb", {"reservoir": lambda size, seed: 0.5})
    assert verdict(BETTER, tmp_path) == "not run"


def test_nothing_run_is_said_so(tmp_path):
    text = markdown(tmp_path)
    assert text.count("not run |") >= len(CLAIMS)
    assert "reproduced" not in text
    assert "has not been run" in text
    assert len(runs.markdown(tmp_path).splitlines()) == 2


def test_summary_counts_where_the_default_is_ahead(tmp_path):
    gain = {100: 0.05, 500: 0.001, 1000: -0.02}
    write(tmp_path, "gdumb", gaining(gain.get, GMC), sizes=tuple(gain))
    text = summary(tmp_path)
    assert "ahead of reservoir sampling in 2 of 3 comparisons (GDumb, 3 seeds; " in text
    assert "clearly in 1 with Holm's correction" in text
    assert "Not ahead: Electricity, sorted (1000)." in text
    assert "half a point in 1 (p < .05, not corrected): reservoir sampling at Elect" in text
    assert "reservoir sampling at Electricity, sorted (1000)." in text
    assert "3 seeds; Electricity, sorted (100, 500, 1000)):" in text
    write(tmp_path, "gdumb", {"class-balanced": lambda *_: 0.2}, sizes=tuple(gain))
    counts = "Of 6 comparisons with the paper's methods (3 with reservoir sampling, 3 with class"
    assert counts in summary(tmp_path)
    assert "once" not in summary(tmp_path)
    write(tmp_path, "gdumb", gaining(lambda _: -0.03, GMC), sizes=(5000,), seeds=(0,))
    text = summary(tmp_path)
    assert "in 2 of 3 comparisons" in text  # seed 0 is .001 above the mean
    assert "Run once and not counted: Electricity, sorted (5000: -0.029)." in text
    write(tmp_path, "gdumb", gaining(lambda _: -0.03, GMC), sizes=(2000,), seeds=(0, 1))
    assert "in 2 of 4 comparisons (GDumb, 2 to 3 seeds; " in summary(tmp_path)


def test_summary_names_neighbouring_sizes_by_their_ends(tmp_path):
    write(tmp_path, "gdumb", gaining(lambda _: 0.05, GMC), sizes=(100, 200, 500))
    text = summary(tmp_path)
    assert "3 seeds; Electricity, sorted (100 to 500)):" in text
    assert text.endswith("behind by more than half a point in none (p < .05, not corrected).")


def test_what_was_run_is_told_by_the_rows(tmp_path):
    methods = {LAST: lambda *_: 0.5, "reservoir": lambda *_: 0.5}
    write(tmp_path, "gdumb", methods)
    write(tmp_path, "gdumb", {"reservoir": lambda *_: 0.5}, sizes=(5000,), seeds=(0,))
    write(tmp_path, "gdumb", methods, train_fraction=0.1, epochs=10, seeds=(7,))
    write(tmp_path, "gdumb", {LAST: lambda *_: 0.5}, draws=8)
    lines = runs.markdown(tmp_path).splitlines()[2:]
    start = "| `gdumb` | Electricity, sorted |"
    assert lines == [
        f"{start} as in the paper | GMC, last layer; GMC, last layer, draws 8 | 100, 1000 (3) |",
        f"{start} as in the paper | reservoir | 100, 1000 (3); 5000 (1) |",
        f"{start} a tenth of the stream, 10 epochs | GMC, last layer; reservoir | 100, 1000 (1) |",
    ]


def test_pages_are_updated_between_their_marks(tmp_path, capsys):
    long, short = tmp_path / "long.md", tmp_path / "short.md"
    long.write_text("before\n<!-- claims -->\nold\n<!-- end of claims -->\nafter\n")
    short.write_text("before\n<!-- verdicts -->\n<!-- end of verdicts -->\nafter\n")
    write(tmp_path, "gdumb", {"class-balanced": lambda *_: 0.5})
    command = ["claims", "--results", str(tmp_path), "--update", str(long), str(short)]
    assert main(command) == 0
    text = long.read_text()
    assert text.startswith("before\n<!-- claims -->\n\nThe library's default")
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
    write(tmp_path, "gdumb", {"reservoir": lambda *_: 0.5})
    assert main(["claims", "--results", str(tmp_path), "--update", str(good), str(page)]) == 2
    assert page.read_text() == text
    assert "paper" not in good.read_text()
    assert main(["claims", "--update", str(tmp_path / "none.md")]) == 2
    capsys.readouterr()


def test_torch_is_not_imported():
    code = "import benchmarks.report.claims, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_single_seed_is_shown_but_not_judged(tmp_path):
    write(tmp_path, "gdumb", gaining(lambda size: 0.1), seeds=(0,))
    assert verdict(BETTER, tmp_path) == "not run"
    assert "(100: +0.101), (1000: +0.101); 1 seed" in measured(BETTER, tmp_path)


def test_rows_of_other_settings_and_private_tables_change_nothing(tmp_path):
    """A look with few epochs, or at a thin stream, says nothing about the paper's claims."""
    write(tmp_path, "gdumb", gaining(lambda size: 0.05))
    before, judged = measured(BETTER, tmp_path), verdict(BETTER, tmp_path)
    write(tmp_path, "gdumb", gaining(lambda size: -0.4), seeds=(0, 1), epochs=5)
    write(tmp_path, "gdumb", gaining(lambda size: -0.4), seeds=(7,), train_fraction=0.05)
    assert verdict(BETTER, tmp_path) == judged
    assert measured(BETTER, tmp_path) == f"{before}; 6 pairs of other settings left out"
    file = ResultsFile(tmp_path / "gdumb.csv")
    private = [row | {"stream": "csv:/home/me/private.csv?target=y"} for row in file.rows()]
    write_rows(file.path, [*file.rows(), *private])
    assert "private" not in markdown(tmp_path) and verdict(BETTER, tmp_path) == judged
    assert "private" not in runs.markdown(tmp_path)


def test_a_folder_without_rows_leaves_a_page_alone(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text(before := "<!-- claims -->\nold\n<!-- end of claims -->\n")
    assert main(["claims", "--results", str(tmp_path / "typo"), "--update", str(page)]) == 2
    assert page.read_text() == before
    assert "typo holds no results" in capsys.readouterr().err
    write(tmp_path, "gdumb", {"reservoir": lambda *_: 0.5})
    assert main(["claims", "--results", str(tmp_path), "--update", str(tmp_path)]) == 2
    assert "is no file" in capsys.readouterr().err
