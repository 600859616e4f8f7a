"""The description for package indexes; everything else is in setup.cfg."""

import re
from pathlib import Path

from setuptools import setup


def description() -> str:
    """The README without images and links into the repository: elsewhere they would be broken."""
    text = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    text = re.sub(r"^!\[[^]]*\]\((?!http)[^)]*\)\n+", "", text, flags=re.MULTILINE)
    return re.sub(r"\[([^]]*)\]\((?!http)[^)]*\)", r"\1", text)


setup(long_description=description())
