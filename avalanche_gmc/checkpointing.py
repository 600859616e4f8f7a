"""Avalanche's checkpoints: working on current versions of torch, whole or refused.

A checkpoint is a pickle: loading one runs whatever code its author put in, so load only files that
you trust. The checksum below finds accidents, not attacks.

**Current versions of torch.** Avalanche pickles the strategy with dill, which looks a class up by
its full name, such as ``torch.optim.sgd.SGD``. Current versions of torch delete the names of these
modules from ``torch.optim``; dill then tries to pickle the optimizer's class by value and fails.
:func:`enable_checkpointing` sets the names again.

**Whole files only.** :func:`save_checkpoint` writes beside the file and renames at the end, so a
run that is killed while it saves keeps its last checkpoint. It ends the file with a checksum, and
:func:`maybe_load_checkpoint` refuses a file that was cut off or altered. Avalanche's own functions
read our files, and ours read Avalanche's, with a warning that they have no checksum.

Save between two calls of ``strategy.train``. What comes back is a new model and a new optimizer
inside the given strategy: use ``strategy.model`` afterwards. The global random generators are
saved and restored too, so a resumed run goes on as if it had not been interrupted. On several
ranks, give each rank a file of its own, or save on one rank only.
"""

from __future__ import annotations

import hashlib
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

import torch

MARK = b"avalanche_gmc sha256 "
TRAILER_SIZE = len(MARK) + hashlib.sha256().digest_size
ZIP_END, ZIP_END_SIZE = b"PK\x05\x06", 22
"""A file that ``torch.save`` wrote ends with a zip record of this size."""


def enable_checkpointing() -> None:
    """Make the modules of ``torch.optim`` attributes of it, where torch removed them."""
    prefix = "torch.optim."
    for name, module in list(sys.modules.items()):
        child = name.removeprefix(prefix)
        if name.startswith(prefix) and "." not in child and not hasattr(torch.optim, child):
            setattr(torch.optim, child, module)


def save_checkpoint(strategy: Any, path: str | os.PathLike[str], **kwargs: Any) -> None:
    """``avalanche.checkpointing.save_checkpoint``, made to work and safe to interrupt.

    :param strategy: the strategy, outside of its training and evaluation loops.
    :param path: the file to write; an older one stays until the new one is complete.
    :param kwargs: further arguments of Avalanche's function.
    """
    from avalanche.checkpointing import save_checkpoint as save

    enable_checkpointing()
    with _replacing(path) as file:
        try:
            save(strategy, file, **kwargs)
        except RuntimeError as error:  # of torch, in the place of an error of `write`
            raise (error.__context__ if isinstance(error.__context__, OSError) else error) from None
        size = file.tell()
        file.seek(0)
        file.write(MARK + _digest(file, size))


def maybe_load_checkpoint(
    strategy: Any, path: str | os.PathLike[str], **kwargs: Any
) -> tuple[Any, int]:
    """``avalanche.checkpointing.maybe_load_checkpoint``, made to work, for whole files only.

    :param strategy: a strategy to load into.
    :param path: the file to read, which must be trusted; if there is none, the strategy stays as
        it is.
    :param kwargs: further arguments of Avalanche's function.
    :return: the strategy and the number of experiences it was trained on.
    :raises ValueError: if the file is damaged; the strategy and the generators stay as they are.
    """
    from avalanche.checkpointing import maybe_load_checkpoint as load

    if not os.path.exists(path):
        return strategy, 0
    enable_checkpointing()
    with open(path, "rb") as file:
        _check_whole(file, os.fspath(path))
        strategy, num_experiences = load(strategy, file, **kwargs)
    return strategy, int(num_experiences)


@contextmanager
def _replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A new file that takes the place of `path` once it is complete and on the disk."""
    from avalanche.distributed import DistributedHelper

    path = os.path.realpath(path)
    # Always the same name, so that runs that are killed leave one such file, not many.
    beside = f"{path}.{DistributedHelper.rank}.tmp"
    try:
        with open(beside, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        with suppress(OSError):
            os.remove(beside)
        raise


def _check_whole(file: IO[bytes], path: str) -> None:
    """Refuse a damaged file; leave the other at its start."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - TRAILER_SIZE))
    trailer = file.read()
    file.seek(0)
    if trailer[-ZIP_END_SIZE:].startswith(ZIP_END):
        warnings.warn(
            f"the checkpoint {path} has no checksum, because Avalanche's own function wrote it; "
            "if it was altered, nobody would know",
            stacklevel=3,
        )
        return
    if not trailer.startswith(MARK) or trailer[len(MARK) :] != _digest(file, size - TRAILER_SIZE):
        raise ValueError(
            f"the checkpoint {path} was cut off or altered: its checksum is missing or does not "
            "fit its content; delete it, or put back a copy that is whole"
        )
    file.seek(0)


def _digest(file: IO[bytes], size: int) -> bytes:
    """The checksum of the first `size` bytes from here."""
    digest = hashlib.sha256()
    while size > 0 and (block := file.read(min(size, 2**20))):
        digest.update(block)
        size -= len(block)
    return digest.digest()
