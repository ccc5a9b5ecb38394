"""Each policy rule: what it finds, what it lets pass (rules.yaml), and how a file sets its severity."""

from __future__ import annotations

from typing import Any

import pytest

from gpuclusters.policy.rule import Severity, Stack
from gpuclusters.policy.rules import RULES
from gpuclusters.policy.settings import SettingsError, configured
from gpuclusters.review.plan import Resource
from tests.fixtures.tables import beside
from tests.review.catalogue import handmade

CASES = beside(__file__, "rules.yaml")
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


def test_all_is_for_every_rule_that_is_not_named() -> None:
    made = configured(
        RULES, {"host-key": "mandatory", "all": {"enforcementLevel": "disabled"}}, "f"
    )
    assert {r.id for r in made if r.severity is not Severity.DISABLED} == {"host-key"}


def test_all_faults_are_told_at_once_with_the_nearest_name() -> None:
    wrong = {
        "host-keys": "mandatory",
        "unpinned": "sometimes",
        "budget": {"montly": 5, "enforcementLevel": 3},
        "host-key": {"strict": True},
        "open-firewall": 7,
        "all": {"enforcementLevel": "advisory", "x": 1},
    }
    with pytest.raises(SettingsError) as refused:
        configured(RULES, wrong, "f")
    assert str(refused.value).splitlines() == [
        "f: there is no rule 'host-keys'; did you mean host-key?",
        "f: all: write one of mandatory, advisory, disabled, and nothing else",
        "f: unpinned: 'sometimes' is no level; write one of mandatory, advisory, disabled",
        "f: budget: 3 is no level; write one of mandatory, advisory, disabled",
        "f: budget: montly is no parameter of this rule; did you mean monthly?",
        "f: host-key: strict is no parameter of this rule; it has none",
        "f: open-firewall: 7 is no level; write one of mandatory, advisory, disabled",
    ]


def test_what_is_no_configuration_is_refused() -> None:
    with pytest.raises(SettingsError, match="is not an object"):
        configured(RULES, [], "f")
    assert configured(RULES, {}, "f") == RULES
