"""The READMEs keep their word: snippets run, links resolve, commands parse, numbers are rows."""

import argparse
import contextlib
import importlib
import io
import re
import shlex
from pathlib import Path
from unittest import mock

import pytest

from benchmarks.__main__ import COMMANDS
from benchmarks.grid.rows import PUBLISHED, ResultsFile
from benchmarks.report.averages import curves
from benchmarks.report.claims import updated
from benchmarks.report.tables import accuracy_table, paired_differences, plain_table

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "benchmarks/README.md", ROOT / "CONTRIBUTING.md"]


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def squeezed(table):
    """The rows of a Markdown table without the padding of its columns."""
    return [re.sub(r" +\|", " |", re.sub(r"\| +", "| ", line)) for line in table.splitlines()]


def test_first_snippet_trains_a_model_that_knows_all_classes(capsys):
    scope = {}
    exec(blocks(PAGES[0], "python")[0], scope)
    found = [v for k, v in scope["results"].items() if k.startswith("Top1_Acc_Stream")]
    assert found[0] > 0.85
    assert len(scope["memory"].storage_policy.buffer) == 100


def output_of(snippet):
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(snippet, {})
    return output.getvalue()


def test_other_snippets_run():
    for snippet in blocks(PAGES[0], "python")[1:]:
        if "torch.distributed" not in snippet:
            assert re.fullmatch(r"20 0\.\d\d\n", output_of(snippet))


def output_on_a_rank(rank, snippet):
    """The output of a script that starts and ends the process group by itself."""
    start, end = "torch.distributed.init_process_group", "torch.distributed.destroy_process_group"
    with mock.patch(start) as started, mock.patch(end) as ended:
        output = output_of(snippet)
    assert started.called
    assert ended.called
    return output


def test_snippets_for_several_processes_run(pair):
    (snippet,) = [s for s in blocks(PAGES[0], "python") if "torch.distributed" in s]
    first, second = pair.results(output_on_a_rank, snippet)
    assert re.fullmatch(r"20 0\.\d\d \d+ rounds, \d+ collectives, [\d,]+ bytes\n", first)
    assert second == ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = page.read_text()
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'src="([^"]+)"', text)
    files = [target for target in targets if not target.startswith("http")]
    missing = [target for target in files if not (page.parent / target.partition("#")[0]).exists()]
    assert not missing
    assert all(re.match(r"https?://[\w.-]+\.\w+/?", t) for t in targets if t.startswith("http"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_parse(page):
    for line in re.findall(r"python -m benchmarks ([^\n`]*)", page.read_text()):
        command, *options = shlex.split(line, comments=True)
        if command.startswith("-") or "NAME…" in options or "EXPERIMENT" in options:
            continue
        assert command in COMMANDS
        parser = argparse.ArgumentParser(exit_on_error=False)
        importlib.import_module(f"benchmarks.{COMMANDS[command]}").add_arguments(parser)
        parser.parse_args(options)


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        named = re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(), re.MULTILINE)
        assert set(named) <= targets


def test_public_names_of_the_table_exist():
    import avalanche_gmc

    rows = re.search(r"## What is in it\n(.*?)\n\n[^|]", PAGES[0].read_text(), re.DOTALL)[1]
    names = re.findall(r"`([A-Za-z_]+)", rows)
    public = {name for name in names if name[0].isupper() or name.startswith("orthogonal")}
    assert public - {"ReservoirSamplingBuffer"} <= set(avalanche_gmc.__all__)
    assert len(public) >= 13


def test_numbers_of_the_demo_are_those_of_its_rows():
    rows = ResultsFile(ROOT / "docs/demo.csv").rows()
    assert len(rows) == 160
    for page, stream in [(0, "digits"), (1, "digits"), (1, "sorted-digits")]:
        text = squeezed(PAGES[page].read_text())
        assert set(squeezed(accuracy_table(curves(rows, stream)))[2:]) <= set(text)
    for stream in ("digits", "sorted-digits"):
        own = [row for row in rows if row["stream"] == stream]
        table = squeezed(plain_table(paired_differences(own)))
        assert set(table[2:]) <= set(squeezed(PAGES[1].read_text()))


@pytest.mark.parametrize("script", ["sorted_tabular", "split_fashion_mnist", "split_cifar10"])
def test_example_scripts_are_short(script):
    lines = (ROOT / "benchmarks" / f"{script}.py").read_text().count("\n")
    assert lines <= 85


@pytest.mark.parametrize("page", PAGES[:2], ids=lambda page: str(page.relative_to(ROOT)))
def test_claims_are_those_of_the_rows(page):
    assert updated(page, PUBLISHED) == page.read_text()
