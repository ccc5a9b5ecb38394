"""What is said about wrong configurations of each cluster type, word for word; each rule has a case."""

from __future__ import annotations

from typing import Any

import pytest

from gpuclusters.config.stack import SECTIONS, ClusterType, StackConfig, parse
from gpuclusters.core import codes
from gpuclusters.core.finding import Level
from tests.unit.config.documents import document, expected, tables, told

ALL = [(kind, stem, case) for kind in ClusterType for stem, case in tables(kind)]


@pytest.mark.parametrize(
    ("kind", "case"),
    [
        pytest.param(kind, case, id=f"{kind.value}-{stem}-{case['name']}")
        for kind, stem, case in ALL
    ],
)
def test(kind: ClusterType, case: dict[str, Any]) -> None:
    wrong = document(kind, case)
    key, lines = expected(case)
    assert told(wrong) == (key, lines)
    assert not [line for line in lines if codes.VALUE.search(line)], "a value is missing"
    if "code" in case:
        parsed = parse(wrong)
        said = parsed.warnings if isinstance(parsed, StackConfig) else parsed
        (level,) = {rule.level for rule in SECTIONS[kind].rules if rule.code == case["code"]}
        assert (level is Level.WARN) is ("warnings" in case)
        assert case["code"] in {one.code for one in said}


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
