"""Parts of a page that are made from the code, between two comments that name them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def fill(page: Path, name: str, text: str) -> str:
    """The page with this block as it must be.

    Raises:
        ValueError: the page has no place for it.
    """
    start, end = f"<!-- {name}: made by `make schema` -->\n", f"<!-- end of {name} -->"
    before, begins, rest = page.read_text(encoding="utf-8").partition(start)
    _, ends, after = rest.partition(end)
    if not (begins and ends):
        raise ValueError(f"{page.name} has no place for the {name}")
    return f"{before}{start}\n{text.strip()}\n\n{end}{after}"


def table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A table of Markdown."""
    lines = [heads, ["---" for _ in heads], *rows]
    return "\n".join(
        f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in line)} |"
        for line in lines
    )
