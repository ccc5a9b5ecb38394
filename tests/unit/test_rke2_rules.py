"""What is said about wrong configurations of an rke2 cluster, word for word; each rule has a case."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuclusters.compat import gpu_products, rke2_matrix
from gpuclusters.config.rke2_cluster import Rke2Config
from gpuclusters.config.rules.rule import Rule
from gpuclusters.config.stack import RKE2_RULES, StackConfig, parse
from gpuclusters.core.finding import Level
from gpuclusters.gpu_operator import mig_layout
from tests.unit.config.documents import by_name, cases, expected, patched, told

CASES = Path(__file__).with_name("rke2_cases")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "rke2.md"


BASE: dict[str, Any] = yaml.safe_load((CASES / "base.yaml").read_text(encoding="utf-8"))
ALL = cases(*sorted(CASES.glob("row_*.yaml")))


def _document(case: dict[str, Any]) -> Any:
    return patched(BASE, {"rke2": case["rke2"]}, keep_null=case.get("keep-null", False))


@pytest.mark.parametrize("case", by_name(ALL))
def test(case: dict[str, Any]) -> None:
    assert told(_document(case)) == expected(case)


def test_the_base_is_right_and_nothing_is_said_about_it() -> None:
    parsed = parse(copy.deepcopy(BASE))
    assert isinstance(parsed, StackConfig), "\n".join(map(str, parsed))
    assert parsed.warnings == ()


@pytest.mark.parametrize("rule", RKE2_RULES, ids=lambda rule: f"row_{rule.row}_{rule.name}")
def test_every_rule_has_a_case_in_its_row_that_it_alone_decides(rule: Rule) -> None:
    mine = [case for stem, case in ALL if stem == f"row_{rule.row}" and case["rule"] == rule.name]
    assert mine
    for case in mine:
        flaws = list(rule.check(Rke2Config.model_validate(_document(case)["rke2"])))
        key, said = expected(case)
        assert (key == "warnings") is (rule.level is Level.WARN)
        assert flaws
        assert all(any(flaw.problem in line for line in said) for flaw in flaws)


def test_the_page_has_a_line_for_every_row() -> None:
    rows = {int(row) for row in re.findall(r"^\| ([0-9]+) \|", PAGE.read_text(), re.MULTILINE)}
    assert {rule.row for rule in RKE2_RULES} <= rows


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
        BASE,
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
