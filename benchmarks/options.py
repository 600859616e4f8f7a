"""What the options of several commands have in common; bad values end in one sentence."""

from __future__ import annotations

import argparse
from pathlib import Path

ROOT_VARIABLE = "AVALANCHE_GMC_DATA"


def positive(text: str) -> int:
    """A whole number of at least 1."""
    return _at_least(1, text)


def natural(text: str) -> int:
    """A whole number of at least 0."""
    return _at_least(0, text)


def _at_least(least: int, text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number but is {text!r}") from None
    if value < least:
        raise argparse.ArgumentTypeError(f"must be at least {least} but is {value}")
    return value


def fraction(text: str) -> float:
    """A number in (0, 1]."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number but is {text!r}") from None
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"must lie in (0, 1] but is {text}")
    return value


def folder(text: str) -> Path:
    """A folder, which may be created later."""
    path = Path(text)
    if path.exists() and not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a file: name a folder")
    return path


def rows_folder(text: str) -> Path:
    """A folder that has CSV files of rows."""
    path = folder(text)
    if not any(path.glob("*.csv")):
        raise argparse.ArgumentTypeError(f"{text} holds no results: there is no CSV file in it")
    return path


def add_data_root(parser: argparse.ArgumentParser) -> None:
    """The option of every command that opens data."""
    help_text = f"folder of the data; else ${ROOT_VARIABLE}, else the platform's cache folder"
    parser.add_argument("--data-root", type=folder, help=help_text)
