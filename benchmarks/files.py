"""Files that are complete or not there, whatever happens while they are written.

A process may be killed, a disk may be full, a byte may change. Everything that the benchmarks write
goes through these functions.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def write_whole(path: Path, content: bytes | str) -> None:
    """Replace a file: its old content stays until the new one is on disk as a whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(partial, os.O_WRONLY | os.O_TRUNC | os.O_CREAT, 0o644)
    try:
        try:
            _write_all(handle, content.encode() if isinstance(content, str) else content, path)
        finally:
            os.close(handle)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def append_whole(path: Path, content: str) -> None:
    """Add text to the end of a file; if that fails, the file is as it was before."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        size = os.fstat(handle).st_size
        try:
            _write_all(handle, content.encode(), path)
        except OSError:
            os.ftruncate(handle, size)
            raise
    finally:
        os.close(handle)


def write_sealed(path: Path, content: bytes) -> None:
    """As :func:`write_whole`, behind a checksum that :func:`read_sealed` compares."""
    write_whole(path, hashlib.sha256(content).digest() + content)


def read_sealed(path: Path) -> bytes | None:
    """What :func:`write_sealed` wrote; ``None`` if the file is not there or was altered."""
    if not path.is_file():
        return None
    whole = path.read_bytes()
    content = whole[hashlib.sha256().digest_size :]
    return content if hashlib.sha256(content).digest() + content == whole else None


def _write_all(handle: int, content: bytes, path: Path) -> None:
    """Write every byte, down to the disk: one call of ``os.write`` may write only some of them."""
    left = memoryview(content)
    try:
        while left:
            left = left[os.write(handle, left) :]
        os.fsync(handle)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
