"""Links of the pages lead somewhere: files and headings are there, addresses are well formed."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.docs.pages import ROOT, anchors, pages, prose

_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")


def faults(page: Path, root: Path = ROOT) -> list[str]:
    found = []
    for target in _LINK.findall(prose(page)):
        url = urlsplit(target)
        if url.scheme:
            if url.scheme not in ("http", "https", "mailto") or (
                url.scheme != "mailto" and "." not in url.netloc and "localhost" not in url.netloc
            ):
                found.append(f"{target} is no address")
            continue
        file = (page.parent / url.path).resolve() if url.path else page
        if not file.is_relative_to(root) or not file.exists():
            found.append(f"{target}: there is no {url.path}")
        elif url.fragment and file.suffix == ".md" and url.fragment not in anchors(file):
            found.append(f"{target}: no heading has the name {url.fragment}")
    return found


def test_links_between_pages_lead_to_files_and_headings() -> None:
    said = {str(p.relative_to(ROOT)): f for p in pages() if (f := faults(p))}
    assert said == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[a](nowhere.md)", "nowhere.md: there is no nowhere.md"),
        ("[a](#b)", "#b: no heading has the name b"),
        ("[a](https://exa mple)", None),
        ("[a](https://example)", "https://example is no address"),
        ("![a](p.svg)", "p.svg: there is no p.svg"),
        ("[`a`](page.md#one-two)\n\n## One, *two*", None),
        ("```\n[a](nowhere.md)\n```", None),
    ],
)
def test_a_link_that_leads_nowhere_is_named(tmp_path: Path, text: str, said: str | None) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    assert faults(page, tmp_path) == ([said] if said else [])
