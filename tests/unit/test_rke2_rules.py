"""Faults of several pools; the page of rke2 has what the tables of releases and products have."""

from __future__ import annotations

import re
from pathlib import Path

from gpuclusters.compat import gpu_products, rke2_matrix
from gpuclusters.config.stack import ClusterType, parse
from gpuclusters.gpu_operator import mig_layout
from tests.unit.config.documents import base, patched

PAGE = Path(__file__).resolve().parents[2] / "docs" / "rke2.md"


def test_the_page_has_every_product_with_its_profiles() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name in gpu_products.names():
        line = re.search(rf"^\| `{re.escape(name)}` \|.*$", page, re.MULTILINE)
        assert line is not None, name
        for profile in mig_layout.profiles(name):
            assert f"{profile}" in line[0], (name, profile)


def test_the_page_has_every_release_and_every_branch() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for version, one in rke2_matrix.operators().releases.items():
        assert version in page, one
    for number, branch in rke2_matrix.matrix().drivers.items():
        line = re.search(rf"^\| {number} \|.*$", page, re.MULTILINE)
        assert line is not None, number
        assert branch.newest in line[0]
        assert branch.end in line[0]


def test_a_wrong_pool_does_not_silence_what_is_said_about_the_others() -> None:
    document = patched(
        base(ClusterType.RKE2),
        {
            "rke2": {
                "pools": [
                    {"name": "a", "nodes": ["g1"], "gpu": {"product": "a100", "count": 8}},
                    {"name": "b", "nodes": ["g2"], "gpu": {"product": "gb200-186gb", "count": 4}},
                ]
            }
        },
    )
    parsed = parse(document)
    assert isinstance(parsed, list)
    assert [fault.path for fault in parsed] == [
        ("rke2", "pools", 0, "gpu", "product"),
        ("rke2", "pools", 1, "gpu", "product"),
    ]
    assert "a100-sxm4-80gb" in parsed[0].remedy
