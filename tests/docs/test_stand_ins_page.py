"""docs/stand-ins.md has a row for every stand-in, which says all that it has to say."""

from __future__ import annotations

import re

from tests.docs.pages import DOCS, ROOT

COLUMNS = 5


def rows() -> list[list[str]]:
    lines = (DOCS / "stand-ins.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if "|" in line]
    return [row for row in cells if row[0].startswith(("`lab/", "`engine/"))]


def packages() -> set[str]:
    """Folders of code or charts below lab/, and those of the engine's provider stand-ins."""
    below = [*(ROOT / "lab").iterdir(), *(ROOT / "engine" / "stand_ins").iterdir()]
    found = [path for path in below if path.is_dir() and path.name != "__pycache__"]
    return {str(path.relative_to(ROOT)) for path in found if any(path.glob("*[!_]*"))}


def test_every_package_is_a_stand_in_with_a_row_or_said_to_be_none() -> None:
    page = (DOCS / "stand-ins.md").read_text()
    (real,) = re.findall(r"^No stand-ins.*: (.*)\.$", page, re.MULTILINE)
    named = {row[0].split("`")[1] for row in rows()}
    assert packages() <= named | set(re.findall("`([^`]+)`", real))
    assert all((ROOT / name).exists() for name in named)


def test_a_row_says_all_and_since_when_it_is_compared_or_that_it_is_not() -> None:
    for row in rows():
        assert len(row) == COLUMNS
        assert all(row), row[0]
        if row[0] != "`lab/charts`":
            assert re.search(r"\d{4}-\d\d-\d\d|\bnothing\b", row[3]), row[0]
