"""What the benchmarks write is complete or not there: killed, short and altered files."""

import errno
import io
import os
import pickle
from pathlib import Path

import pytest
import torch
from benchmark_rows import rows_for

from benchmarks.__main__ import main
from benchmarks.files import append_whole, read_sealed, write_sealed, write_whole
from benchmarks.grid import runner, selection, workers
from benchmarks.grid.cells import make_cells, make_groups
from benchmarks.grid.rows import ResultsFile, write_rows
from benchmarks.grid.selection import Selected
from benchmarks.grid.training import Memory
from benchmarks.report import pages, plots

ROWS = rows_for("gdumb", streams=["digits"], methods=["reservoir", "gmc-last-layer"])
PAGE = "<!-- measured -->\n{}\n<!-- end of measured -->\n"


def figure(path, version):
    drawing, axis = plots.plt.subplots()
    axis.plot([version, 1])
    plots.save(drawing, path)


WRITERS = {
    "plain": lambda path, version: write_whole(path, f"version {version}\n" * 1000),
    "rows": lambda path, version: write_rows(path, [{"version": version}] * 1000),
    "sealed": lambda path, version: write_sealed(path, bytes([version]) * 10_000),
    "memories": lambda path, version: selection.save({("cell",): memories(version)}, path),
    "page": lambda path, version: pages.replace_part(path, "measured", f"{version}" * 1000),
    "figure": lambda path, version: figure(path, version),
}


def memories(version):
    memory = Memory(torch.full((5, 3), float(version)), torch.arange(5), torch.ones(5), 0.5)
    return Selected({4: memory}, 1.0, 2.0)


@pytest.fixture(params=list(WRITERS))
def written(request, tmp_path):
    """A file with its first version, and the function that writes the next one."""
    path = tmp_path / "file.png"
    if request.param == "page":
        path.write_text(PAGE)
    WRITERS[request.param](path, 1)
    return path, lambda: WRITERS[request.param](path, 2)


def half(handle, content):
    """``os.write`` that writes less than it was given, as on a disk that is nearly full."""
    return os_write(handle, bytes(content)[: max(1, len(content) // 2)])


os_write = os.write


def test_short_writes_are_continued(written, monkeypatch):
    path, write = written
    write()
    expected = path.read_bytes()
    monkeypatch.setattr(os, "write", half)
    write()
    assert path.read_bytes() == expected


def test_a_full_disk_leaves_the_old_file_and_says_so(written, monkeypatch):
    path, write = written
    before = path.read_bytes()
    calls = []

    def full(handle, content):
        calls.append(1)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return half(handle, content)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        write()
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_process_killed_while_writing_leaves_the_old_file(written, monkeypatch):
    path, write = written
    before = path.read_bytes()
    child = os.fork()
    if child == 0:
        os.write = lambda handle, content: (half(handle, content), os._exit(9))
        write()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert path.read_bytes() == before
    write()
    assert path.read_bytes() != before


def test_a_row_that_does_not_fit_leaves_the_others(tmp_path, monkeypatch):
    file = ResultsFile(tmp_path / "gdumb.csv")
    file.append(ROWS[0])
    before = file.path.read_bytes()

    def full(handle, content):
        if len(content) < 10:
            raise OSError(errno.ENOSPC, "No space left on device")
        return half(handle, content)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        file.append(ROWS[1])
    assert file.path.read_bytes() == before
    monkeypatch.setattr(os, "write", half)
    file.append(ROWS[1])
    assert len(file.rows()) == 2


def test_a_run_whose_rows_do_not_fit_ends_with_1(tmp_path, monkeypatch, capsys):
    """The whole command where files end at 2 kB: it must not count what is not there."""

    def limited(handle, content):
        room = 2048 - os.fstat(handle).st_size
        if room <= 0:
            raise OSError(errno.EFBIG, "File too large")
        return os_write(handle, bytes(content)[:room])

    def run_grid_here(groups, *, jobs, threads, results, root):
        monkeypatch.setattr(os, "write", limited)
        for group in groups:
            workers.work(group, results, root)

    monkeypatch.setattr(workers, "run_grid", run_grid_here)
    monkeypatch.setattr(runner, "save", lambda *_: None)  # kept memories are larger than that
    sizes = [str(size) for size in range(5, 25)]
    options = ["--streams", "digits", "--methods", "reservoir", "--seeds", "0", "--epochs", "1"]
    command = ["run", "gdumb", *options, "--train-fraction", "0.3", "--memory-sizes", *sizes]
    assert main([*command, "--results", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert "File too large" in error and "Traceback" not in error
    file = ResultsFile(tmp_path / "gdumb.csv")
    assert 0 < len(file.rows()) < len(sizes)
    assert file.path.read_text().endswith("\n")


def test_a_folder_that_cannot_be_written_ends_with_1(tmp_path, capsys):
    (tmp_path / "file").touch()
    page = tmp_path / "page.md"
    page.write_text("<!-- claims -->\n<!-- end of claims -->\n")
    options = ["--method", "reservoir", "--memory-size", "5", "--output", f"{page}/x.png"]
    assert main(["show-memory", "digits", *options]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and str(page) in error


@pytest.mark.parametrize("position", [0, 31, 32, 40, 500, -1])
def test_an_altered_or_cut_file_is_not_read(tmp_path, position):
    path = tmp_path / "group.pt"
    selection.save({("cell",): memories(1)}, path)
    whole = bytearray(path.read_bytes())
    assert selection.load(path)["cell",].memories[4].residual == 0.5
    whole[position] ^= 1
    path.write_bytes(whole)
    assert read_sealed(path) is None and selection.load(path) == {}
    path.write_bytes(whole[:position])
    assert selection.load(path) == {}


def test_kept_memories_are_those_that_were_saved(tmp_path):
    selection.save({("a", "b"): memories(3)}, tmp_path / "group.pt")
    ((key, found),) = selection.load(tmp_path / "group.pt").items()
    assert key == ("a", "b") and (found.selection_seconds, found.embedding_seconds) == (1.0, 2.0)
    assert torch.equal(found.memories[4].inputs, torch.full((5, 3), 3.0))
    assert torch.equal(found.memories[4].weights, torch.ones(5))


class Planted:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("save", [torch.save, lambda value, file: pickle.dump(value, file)])
def test_a_planted_file_runs_no_code_and_the_memory_is_selected_again(tmp_path, save):
    (cell,) = make_cells("gdumb", ["digits"], ["reservoir"], [5], [0], epochs=1)
    (group,) = make_groups([cell])
    kept = runner.work_folder(tmp_path) / f"{group.name()}-{runner.source_digest()}.pt"
    content = io.BytesIO()
    save({cell.key(): Planted(tmp_path / "ran")}, content)
    write_sealed(kept, content.getvalue())
    assert runner.run_group(group, tmp_path, None)
    assert not (tmp_path / "ran").exists()
    assert len(ResultsFile(tmp_path / "gdumb.csv").rows()) == 1


def test_appended_text_is_on_the_end(tmp_path):
    append_whole(tmp_path / "file", "one\n")
    append_whole(tmp_path / "file", "two\n")
    assert (tmp_path / "file").read_text() == "one\ntwo\n"
