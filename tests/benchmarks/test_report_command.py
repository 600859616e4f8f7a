"""``python -m benchmarks report`` writes a page of a memory of the bundled digits."""

import pytest

from benchmarks.__main__ import main


@pytest.mark.parametrize("method", ["gmc-last-layer", "reservoir"])
def test_page_is_written(tmp_path, capsys, method):
    path = tmp_path / "page.html"
    options = ["--memory-size", "20", "--output", str(path), "--results", str(tmp_path)]
    assert main(["report", "--method", method, *options]) == 0
    assert capsys.readouterr().out.strip() == str(path)
    text = path.read_text()
    assert "20 exemplars of" in text
    assert '"name":"experience 5"' in text
    assert '"pictures":{"columns"' in text
    assert '"figures":[]' in text


def test_accuracy_figures_are_in_it_where_there_are_rows(tmp_path):
    from benchmarks.commands.report import accuracy_figures
    from benchmarks.grid.rows import PUBLISHED

    assert accuracy_figures(tmp_path, tmp_path) == {}
    lines = (PUBLISHED / "gdumb.csv").read_text().splitlines(keepends=True)
    (tmp_path / "gdumb.csv").write_text("".join(lines[:9]))
    ((caption, path),) = accuracy_figures(tmp_path, tmp_path).items()
    assert "GDumb" in caption
    assert "<svg" in path.read_text()


@pytest.mark.parametrize(
    "arguments", [["covertype"], ["--memory-size", "0"], ["--results", "x.csv/"]]
)
def test_bad_options_exit_2_with_one_sentence(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.csv").touch()
    assert main(["report", *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1
