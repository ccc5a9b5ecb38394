"""docs/preflight.md says what the code knows."""

from __future__ import annotations

import re

import pytest

from gpuclusters.config import preflight_reference
from gpuclusters.domain.preflight_catalogue import KINDS
from gpuclusters.domain.preflight_kind import PREFIX


def test_the_page_has_every_finding_with_cause_and_fix() -> None:
    page = preflight_reference.PAGE.read_text(encoding="utf-8")
    assert page == preflight_reference.rendered(page), (
        "run `python -m gpuclusters.config.preflight_reference`"
    )
    rows = re.findall(rf"(?m)^\| `{re.escape(PREFIX)}([a-z0-9-]+)` ", page)
    assert sorted(rows) == sorted(KINDS)


@pytest.mark.parametrize("name", KINDS)
def test_a_finding_says_in_plain_words_what_it_is_and_what_to_do(name: str) -> None:
    kind = KINDS[name]
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
    for text in (kind.cause, kind.remedy, kind.source):
        assert text == text.strip()
        assert "\n" not in text
        assert not text.endswith(".")
    assert kind.stages


def test_a_page_without_its_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="needs the lines"):
        preflight_reference.rendered("# Preflight\n")
