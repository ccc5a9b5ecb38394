"""What pages ask of the code is there. The site itself is built by `make check`: a warning is an error."""

from __future__ import annotations

import re

import pytest

from docs.reference import BLOCKS, filled
from tests.docs.pages import DOCS


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
def test_what_the_code_knows_is_in_its_page(page: str, text: str) -> None:
    assert text in filled((DOCS / f"{page}.md").read_text())


def test_pages_ask_for_all_that_there_is_and_for_nothing_else() -> None:
    asked = re.findall(
        r"<!-- made: (.+) -->", "".join(page.read_text() for page in DOCS.rglob("*.md"))
    )
    assert sorted(asked) == sorted(BLOCKS)
