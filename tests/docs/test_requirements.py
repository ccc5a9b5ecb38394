"""docs/requirements.md: each place and test that it names is there, and every stand-in has its reason."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import DOCS, ROOT

PAGE = DOCS / "requirements.md"
ROWS = [line.strip("|").split(" | ") for line in PAGE.read_text().splitlines() if " | `" in line]


def test_each_document_has_its_requirements() -> None:
    assert len(ROWS) >= 60
    assert {len(row) for row in ROWS} == {4}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip()[:40])
def test_a_requirement_is_done_and_shown_somewhere(row: list[str]) -> None:
    _, where, tests, shown = row
    assert all((ROOT / path).exists() for path in re.findall(r"`([^`]+)`", where))
    named = [path for path in re.findall(r"`([^`]+)`", tests) if "/" in path]
    assert all((ROOT / "tests" / path).exists() for path in named)
    assert named or "played" in shown
    assert "played" not in shown or re.search(r"played \([HGBRC]\)", shown)
