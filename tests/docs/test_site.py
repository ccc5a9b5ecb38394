"""The documents are a site without a warning, with every page in its navigation."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.reference import BLOCKS
from tests.docs.pages import DOCS


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"),
            *("-d", str(folder / "trees"), str(DOCS), str(folder / "html")),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


def test_every_page_is_in_the_navigation(site: Path) -> None:
    start = (site / "index.html").read_text(encoding="utf-8")
    linked = set(re.findall(r'class="reference internal" href="([^"#]+)"', start))
    made = {
        str(page.relative_to(DOCS).with_suffix(".html"))
        for page in DOCS.rglob("*.md")
        if page.name != "index.md"
    }
    assert made - linked == set()


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("errors", "remote.host-key-mismatch"),
        ("configuration", "caas.service-vm"),
        ("rke2-configuration", ".pools[].gpu"),
        ("usernetes-configuration", "usernetes.control-plane"),
        ("gke-configuration", "gke.network"),
        ("cli", "gpu-clusters lab status"),
        ("fabric", "not initialised"),
        ("observability", "gpu_clusters_"),
        ("rke2", "a100-sxm4-80gb"),
        ("rke2-metrics", "XID"),
        ("security", "attacks are tests, and all are held."),
    ],
)
def test_what_the_code_knows_is_in_its_page(site: Path, page: str, text: str) -> None:
    shown = (site / f"{page}.html").read_text(encoding="utf-8")
    assert text in re.sub(r"<[^>]+>", "", shown)


def test_pages_ask_for_all_that_there_is_and_for_nothing_else() -> None:
    asked = re.findall(
        r"<!-- made: (.+) -->", "".join(page.read_text() for page in DOCS.rglob("*.md"))
    )
    assert sorted(asked) == sorted(BLOCKS)


def test_pictures_are_there_and_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        fetched = re.findall(r'<(?:script|img|link)[^>]*(?:src|href)="(https?://[^"]+)"', text)
        assert fetched == [], page.name
        for picture in re.findall(r'<img [^>]*src="([^"]+)"', text):
            assert picture.startswith("data:") or (page.parent / picture).is_file(), page.name
