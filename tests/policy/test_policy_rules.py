"""Each policy rule: what it finds, and what it lets pass (rules.yaml)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuclusters.policy.rule import Stack
from gpuclusters.policy.rules import RULES
from gpuclusters.policy.settings import configured
from gpuclusters.review.plan import Resource
from tests.review.catalogue import handmade

CASES = yaml.safe_load(Path(__file__).with_name("rules.yaml").read_text(encoding="utf-8"))
DYNAMIC = "gpu-clusters:gpu:"


def resource(row: dict[str, Any]) -> Resource:
    inputs = dict(row.get("inputs", {}))
    if inputs.get("connection") == "gpu-01":
        inputs["connection"] = handmade.connection("gpu-01")
    type_ = row["type"] if ":" in row["type"] else DYNAMIC + row["type"]
    return Resource(**{**row, "type": type_, "inputs": inputs})


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=f"{case['rule']}-{number}") for number, case in enumerate(CASES)],
)
def test_a_rule_finds_what_it_is_about_and_nothing_else(case: dict[str, Any]) -> None:
    settings = {case["rule"]: case["settings"]} if "settings" in case else {}
    (rule,) = (one for one in configured(RULES, settings, "test") if one.id == case["rule"])
    tenants = [
        Resource(f"{DYNAMIC}TenancyPolicy", name, {"tenant": name})
        for name in "abcdef"[: case.get("tenants", 0)]
    ]

    def found(side: str, some: list[Resource]) -> list[str]:
        stack = Stack([*map(resource, case[side]), *some])
        return [violation.says for violation in rule.look(stack)]

    if "bad" in case:
        said = found("bad", tenants)
        assert len(said) == case.get("finds", 1)
        assert case.get("says", "") in said[0]
        if tenants:
            assert found("bad", tenants[:1]) == []
    if "good" in case:
        assert found("good", tenants) == []


def test_what_cannot_be_made_again_is_found_where_it_is_deleted() -> None:
    (rule,) = (one for one in RULES if one.id == "stateful-delete")
    disk = Resource("gcp:compute/disk:Disk", "d", {})
    assert len(list(rule.look(Stack([], deleted=[disk])))) == 1
    assert not list(rule.look(Stack([disk])))
