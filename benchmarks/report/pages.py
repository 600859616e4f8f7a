"""Markdown: tables, and parts of pages that a command writes, between two marks that name them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks import UsageError
from benchmarks.files import write_whole


def table(header: Sequence[str], body: Sequence[Sequence[str]], *, aligned: bool = True) -> str:
    """A table; ``aligned`` if its columns shall be so in the text too."""
    lines = [list(header), *map(list, body)]
    widths = [max(map(len, column)) if aligned else 1 for column in zip(*lines, strict=True)]
    padded = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([padded[0], rule, *padded[1:]])


def with_part(text: str, name: str, content: str) -> str | None:
    """A page's text with ``content`` between ``<!-- name -->`` and ``<!-- end of name -->``.

    :returns: ``None`` if the page has no such marks.
    """
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    before, opened, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    return f"{before}{begin}\n{content}\n\n{end}{after}" if opened and closed else None


def replace_part(page: Path, name: str, content: str) -> None:
    """Put ``content`` into the marked part of a page."""
    changed = with_part(read(page), name, content)
    if changed is None:
        raise UsageError(
            f"{page} needs the lines <!-- {name} --> and, below, <!-- end of {name} -->"
        )
    write_whole(page, changed)


def read(page: Path) -> str:
    """The text of a page that must be there."""
    if not page.is_file():
        raise UsageError(f"{page} is no file")
    return page.read_text(encoding="utf-8")
