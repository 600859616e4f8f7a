"""The canonical sources of the data sets.

A source is a function that receives an empty folder and leaves there the files of a data set, under
the paths of ``checksums.txt``. It may fail in any way: `benchmarks.data.datasets` then tries the
next one, and it verifies the content before anyone sees it. Addresses are read from torchvision and
scikit-learn where these have them, so that they move when those projects move them.
"""

from __future__ import annotations

import gzip
import json
import logging
import shutil
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pooch

Source = Callable[[Path], None]

IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
ZALANDO = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"
OPENML_ELECTRICITY = "https://www.openml.org/api/v1/json/data/151"
ELECTRICITY_COLUMNS = ("period", "nswprice", "nswdemand", "vicprice", "vicdemand", "transfer")
# Long enough for a slow server, short enough that an offline machine soon tries the next source.
CONNECT_SECONDS = 10.0

pooch.get_logger().setLevel(logging.WARNING)


def download(url: str, target: Path) -> Path:
    """Fetch ``url`` into the file ``target`` with a progress bar on stderr."""
    downloader = pooch.HTTPDownloader(progressbar=True, timeout=CONNECT_SECONDS)
    pooch.retrieve(url, None, fname=target.name, path=target.parent, downloader=downloader)
    return target


def idx_files(folder: Path, address: str, name: str) -> None:
    """Four zipped IDX files of images and labels, from one address."""
    for file in IDX_FILES:
        archive = download(f"{address}{file}.gz", folder / f"{file}.gz")
        gunzip(archive, folder / name / "raw" / file)


def torchvision_mirror(folder: Path, name: str) -> None:
    """The first address that torchvision has for MNIST or FashionMNIST; encrypted ones first."""
    from torchvision import datasets

    mirrors = sorted(getattr(datasets, name).mirrors, key=lambda url: not url.startswith("https"))
    idx_files(folder, mirrors[0], name)


MNIST: dict[str, Source] = {"torchvision's mirror": partial(torchvision_mirror, name="MNIST")}
# torchvision's mirror of Fashion-MNIST is not encrypted, hence the authors' repository first.
FASHION_MNIST: dict[str, Source] = {
    "Zalando's repository": partial(idx_files, address=ZALANDO, name="FashionMNIST"),
    "torchvision's mirror": partial(torchvision_mirror, name="FashionMNIST"),
}


def cifar10(folder: Path) -> None:
    """The binary archive, beside the pickled one that torchvision names."""
    from torchvision.datasets import CIFAR10

    address = CIFAR10.url.replace("python", "binary")
    unpack_tar(download(address, folder / "cifar10.tar.gz"), folder)


def covertype(folder: Path) -> None:
    """The archive behind scikit-learn's fetch_covtype."""
    from sklearn.datasets import _covtype

    archive = download(_covtype.ARCHIVE.url, folder / "covtype.data.gz")
    gunzip(archive, folder / "covertype" / "covtype.data")


def electricity(folder: Path) -> None:
    """OpenML's data set 151."""
    answer = download(OPENML_ELECTRICITY, folder / "answer.json").read_text(encoding="utf-8")
    address = json.loads(answer)["data_set_description"]["url"]
    table = download(address, folder / "electricity.arff")
    write_electricity(read_arff_electricity(table), folder)


def read_arff_electricity(path: Path) -> Iterator[tuple[float, ...]]:
    """The six numeric columns and the class (UP → 1) of OpenML's ARFF file."""
    from scipy.io.arff import loadarff

    table, _ = loadarff(str(path))
    return zip(*(table[name] for name in ELECTRICITY_COLUMNS), table["class"] == b"UP", strict=True)


def write_electricity(rows: Iterable[Sequence[str | float]], folder: Path) -> None:
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
    with gzip.open(archive) as source, target.open("wb") as copy:
        shutil.copyfileobj(source, copy)


def unpack_tar(archive: Path, folder: Path) -> None:
    """Unpack a tar archive, refusing members that would land outside of ``folder``."""
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
