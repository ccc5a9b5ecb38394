"""What is said about wrong configurations of each cluster type, word for word; each rule has a case."""

from __future__ import annotations

from typing import Any

import pytest

from gpuclusters.config.stack import SECTIONS, ClusterType, StackConfig, parse
from gpuclusters.core import codes
from gpuclusters.core.finding import Level
from tests.unit.config.documents import base, caas, document, faults, lines, tables
from tests.unit.config.planning import planned

ALL = [(kind, stem, case) for kind in ClusterType for stem, case in tables(kind)]


@pytest.mark.parametrize(
    ("kind", "case"),
    [
        pytest.param(kind, case, id=f"{kind.value}-{stem}-{case['name']}")
        for kind, stem, case in ALL
    ],
)
def test(kind: ClusterType, case: dict[str, Any]) -> None:
    parsed = parse(document(kind, case))
    right = isinstance(parsed, StackConfig)
    found = parsed.warnings if right else parsed
    said = case["warnings" if right else "faults"]
    assert lines(found) == said
    assert not [line for line in said if codes.VALUE.search(line)], "a value is missing"
    if "code" in case:
        (level,) = {rule.level for rule in SECTIONS[kind].rules if rule.code == case["code"]}
        assert (level is Level.WARN) is right
        assert case["code"] in {one.code for one in found}
    if right:
        planned(parsed)


@pytest.mark.parametrize("kind", ClusterType)
def test_every_rule_has_a_case(kind: ClusterType) -> None:
    told = {case["code"] for one, _, case in ALL if one is kind and "code" in case}
    assert told == {rule.code for rule in SECTIONS[kind].rules}


@pytest.mark.parametrize(
    ("kind", "case"),
    [
        *((kind, {kind.value: {}}) for kind in ClusterType),
        (ClusterType.USERNETES, {"google": True, "usernetes": {"gpus": {"count": 1}}}),
    ],
)
def test_the_smallest_configuration_is_right(kind: ClusterType, case: dict[str, Any]) -> None:
    parsed = parse(document(kind, case))
    assert isinstance(parsed, StackConfig), "\n".join(map(str, parsed))
    assert parsed.warnings == ()


def test_what_no_case_can_be_written_of_is_refused_all_the_same() -> None:
    loop: dict[str, Any] = {}
    loop["loop"] = loop
    endless = base()
    endless["caas"]["network"] = loop
    assert "nested too deeply" in str(faults(endless)[0])
    number = 10**5000  # Python refuses to print it
    huge = caas(tenants=[{"name": "acme", "gpus": number}], partition_layout=[number])
    assert ["bits" in str(fault) for fault in faults(huge)] == [True, True]
