"""Fetching never trusts what it fetched; offline and damaged sources end in a clear message."""

import gzip
import hashlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from benchmarks import DataUnavailable
from benchmarks.__main__ import main
from benchmarks.data import datasets, packages, sources
from benchmarks.options import ROOT_VARIABLE

GOOD = b"the right content"
CHECKSUMS = {"toy/file.bin": "sha256:" + hashlib.sha256(GOOD).hexdigest()}


def delivering(content, calls):
    def source(folder):
        calls.append(content)
        (folder / "toy").mkdir()
        (folder / "toy/file.bin").write_bytes(content)

    return source


def failing(folder):
    raise OSError("it does not answer")


@pytest.fixture
def toy(monkeypatch):
    def register(*chosen):
        named = {f"source {number}": source for number, source in enumerate(chosen)}
        monkeypatch.setitem(datasets.DATASETS, "toy", datasets.Dataset("toy", named))

    monkeypatch.setattr(datasets, "checksums", lambda folder: CHECKSUMS)
    return register


def test_second_source_is_used_when_the_first_fails_or_lies(toy, tmp_path):
    calls = []
    toy(failing, delivering(GOOD[:-1], calls), delivering(GOOD, calls))
    assert datasets.ensure("toy", tmp_path) == tmp_path / "toy"
    assert (tmp_path / "toy/file.bin").read_bytes() == GOOD
    assert calls == [GOOD[:-1], GOOD]


def test_verified_files_are_not_fetched_again(toy, tmp_path):
    calls = []
    toy(delivering(GOOD, calls))
    datasets.ensure("toy", tmp_path)
    datasets.ensure("toy", tmp_path)
    assert calls == [GOOD]


@pytest.mark.parametrize("damage", [GOOD[:5], b"", GOOD + b"!"], ids=["cut", "empty", "longer"])
def test_damaged_file_is_fetched_again(toy, tmp_path, damage):
    toy(delivering(GOOD, []))
    datasets.ensure("toy", tmp_path)
    (tmp_path / "toy/file.bin").write_bytes(damage)
    datasets.ensure("toy", tmp_path)
    assert (tmp_path / "toy/file.bin").read_bytes() == GOOD


def test_damaged_file_without_a_source_is_refused(toy, tmp_path):
    toy(failing, delivering(b"wrong", []))
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy/file.bin").write_bytes(b"wrong")
    with pytest.raises(DataUnavailable) as caught:
        datasets.ensure("toy", tmp_path)
    message = str(caught.value)
    assert "it does not answer" in message
    assert "toy/file.bin is not the expected one" in message
    assert f"under {tmp_path}" in message and CHECKSUMS["toy/file.bin"] in message


def test_failed_fetch_leaves_nothing_behind(toy, tmp_path):
    toy(delivering(b"wrong", []))
    with pytest.raises(DataUnavailable):
        datasets.ensure("toy", tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.suffix != ".lock"]


def test_killed_fetch_leaves_nothing_that_is_taken_for_data(tmp_path):
    script = textwrap.dedent(
        """
        import sys, time
        from pathlib import Path
        from benchmarks.data import datasets
        def slow(folder):
            (folder / "toy").mkdir()
            (folder / "toy/file.bin").write_bytes(b"half")
            print("half-way", flush=True)
            time.sleep(60)
        datasets.checksums = lambda folder: {"toy/file.bin": "sha256:0"}
        datasets.DATASETS["toy"] = datasets.Dataset("toy", {"slow": slow})
        datasets.ensure("toy", Path(sys.argv[1]))
        """
    )
    process = subprocess.Popen([sys.executable, "-c", script, tmp_path], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"half-way\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "toy").exists()


def test_fetch_after_a_killed_one_starts_clean(toy, tmp_path):
    (tmp_path / ".incoming-toy" / "toy").mkdir(parents=True)
    (tmp_path / ".incoming-toy" / "toy" / "file.bin").write_bytes(b"half")
    toy(delivering(GOOD, []))
    datasets.ensure("toy", tmp_path)
    assert (tmp_path / "toy/file.bin").read_bytes() == GOOD
    assert not (tmp_path / ".incoming-toy").exists()


def test_root_is_option_then_environment_then_cache(monkeypatch, tmp_path):
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path / "environment"))
    assert datasets.data_root(tmp_path / "option") == tmp_path / "option"
    assert datasets.data_root() == tmp_path / "environment"
    monkeypatch.delenv(ROOT_VARIABLE)
    assert "avalanche-gmc" in str(datasets.data_root())


def test_unknown_name_exits_2_with_one_sentence(capsys):
    assert main(["data", "imagenet"]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and "imagenet" in message and "covertype" in message


def test_unavailable_data_exits_1_and_says_what_to_put_where(tmp_path, capsys, monkeypatch):
    offline = datasets.Dataset("electricity", {"a dead server": failing})
    monkeypatch.setitem(datasets.DATASETS, "electricity", offline)
    assert main(["data", "electricity", "--data-root", str(tmp_path)]) == 1
    assert f"Put these files under {tmp_path}" in capsys.readouterr().err


@pytest.fixture
def server(tmp_path):
    served = tmp_path / "served"
    served.mkdir()
    handler = partial(SimpleHTTPRequestHandler, directory=served)
    handler.log_message = lambda *_: None
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield served, f"http://127.0.0.1:{http.server_port}/"
        http.shutdown()


def test_fashion_mnist_from_a_mirror_is_unzipped_for_torchvision(server, tmp_path, monkeypatch):
    from torchvision.datasets import FashionMNIST

    served, address = server
    monkeypatch.setattr(FashionMNIST, "mirrors", [address])
    for name in sources.IDX_FILES:
        (served / f"{name}.gz").write_bytes(gzip.compress(name.encode()))
    sources.FASHION_MNIST["torchvision's mirror"](tmp_path)
    for name in sources.IDX_FILES:
        assert (tmp_path / "FashionMNIST/raw" / name).read_bytes() == name.encode()


def test_encrypted_sources_come_first(monkeypatch):
    from torchvision.datasets import MNIST

    asked = []
    monkeypatch.setattr(sources, "idx_files", lambda folder, address, name: asked.append(address))
    monkeypatch.setattr(MNIST, "mirrors", ["http://plain/", "https://encrypted/"])
    sources.MNIST["torchvision's mirror"](None)
    assert asked == ["https://encrypted/"]
    first = next(iter(datasets.DATASETS["fashion-mnist"].sources.values()))
    assert first.keywords["address"].startswith("https://")


def broken_archives():
    """Bytes of a zipped file, cut and flipped: errors come from gzip, zlib and the checksum."""
    whole = gzip.compress(os.urandom(2000))
    flipped = [whole[:i] + bytes([whole[i] ^ 255]) + whole[i + 1 :] for i in range(0, 60, 6)]
    return [whole[:-100], b"", b"<html>404</html>", *flipped]


@pytest.mark.parametrize("archive", broken_archives(), ids=lambda content: f"{len(content)}")
def test_a_broken_archive_leads_to_the_next_source(toy, tmp_path, archive):
    def broken(folder):
        (folder / "file.gz").write_bytes(archive)
        sources.gunzip(folder / "file.gz", folder / "toy/file.bin")

    toy(broken, delivering(GOOD, []))
    datasets.ensure("toy", tmp_path)
    assert (tmp_path / "toy/file.bin").read_bytes() == GOOD


@pytest.mark.parametrize(
    "text", ["@data\n1,2", "@attribute a NUMERIC\n@data\n1,2,3\n", "@attribute\n", "\xff"]
)
def test_a_broken_table_leads_to_the_next_source(toy, tmp_path, text):
    def broken(folder):
        (folder / "table.arff").write_text(text, encoding="latin1")
        sources.write_electricity(sources.read_arff_electricity(folder / "table.arff"), folder)

    toy(broken, delivering(GOOD, []))
    datasets.ensure("toy", tmp_path)
    assert (tmp_path / "toy/file.bin").read_bytes() == GOOD


def test_missing_file_and_unreachable_server_fail_fast(server, tmp_path):
    with pytest.raises(OSError, match="404"):
        sources.download(f"{server[1]}none", tmp_path / "file")
    with pytest.raises(OSError, match="refused"):
        sources.download("http://127.0.0.1:9/file", tmp_path / "file")


def test_electricity_sources_end_in_the_same_bytes(tmp_path):
    arff = tmp_path / "electricity.arff"
    names = ["date", "day", *sources.ELECTRICITY_COLUMNS]
    header = "".join(f"@attribute {name} NUMERIC\n" for name in names)
    rows = "0,2,0,0.056443,0.439155,0.003467,0.422915,0.414912,UP\n0,2,1,0,0.1,0.2,0.3,0.4,DOWN\n"
    arff.write_text(f"@relation x\n{header}@attribute class {{UP,DOWN}}\n@data\n{rows}")
    wheel = [
        ["0.0", "0.05644299999999999", "0.439155", "0.003467", "0.422915", "0.414912", "1"],
        ["1.0", "0.0", "0.1", "0.2", "0.30000000000000004", "0.4", "0"],
    ]
    for name, content in [("a", sources.read_arff_electricity(arff)), ("b", wheel)]:
        (tmp_path / name).mkdir()
        sources.write_electricity(content, tmp_path / name)
    written = [(tmp_path / name / "electricity/electricity.csv").read_bytes() for name in "ab"]
    assert written[0] == written[1]


def test_tool_that_is_missing_or_fails_says_so(tmp_path):
    with pytest.raises(RuntimeError, match="not installed"):
        packages.run_tool(["no-such-tool"], tmp_path)
    command = [sys.executable, "-c", "import sys; sys.exit('Error: no such package')"]
    with pytest.raises(RuntimeError, match="no such package"):
        packages.run_tool(command, tmp_path)


def test_archive_cannot_write_outside_its_folder(tmp_path):
    import io
    import tarfile

    archive = tmp_path / "evil.tar"
    with tarfile.open(archive, "w") as tar:
        member = tarfile.TarInfo("../outside")
        member.size = 1
        tar.addfile(member, io.BytesIO(b"x"))
    with pytest.raises(tarfile.TarError):
        sources.unpack_tar(archive, tmp_path / "folder")
    assert not (tmp_path / "outside").exists()


def test_every_data_set_has_checksums_and_two_sources():
    for dataset in datasets.DATASETS.values():
        assert datasets.checksums(dataset.folder)
        assert len(dataset.sources) >= 2
