"""Parts of Markdown pages that a command writes, between two marks that name them."""

from __future__ import annotations

from pathlib import Path

from benchmarks import UsageError


def with_part(text: str, name: str, content: str) -> str | None:
    """A page's text with ``content`` between ``<!-- name -->`` and ``<!-- end of name -->``.

    :returns: ``None`` if the page has no such marks.
    """
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    before, opened, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    return f"{before}{begin}\n{content}\n\n{end}{after}" if opened and closed else None


def read(page: Path) -> str:
    """The text of a page that must be there."""
    if not page.exists():
        raise UsageError(f"{page} does not exist")
    return page.read_text(encoding="utf-8")
