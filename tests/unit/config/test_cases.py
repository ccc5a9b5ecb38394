"""What is said about wrong configurations, word for word. Cases of a rule carry its row in their name."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from gpuclusters.config.stack import CAAS_RULES, StackConfig, parse
from gpuclusters.core.finding import Level
from tests.unit.config.documents import CASES, base, by_name, cases, expected, patched, told


def _document(case: dict[str, Any]) -> Any:
    if "whole" in case:
        return case["whole"]
    patch = case.get("document") or {"caas": case["caas"]}
    return patched(base(), patch, keep_null=case.get("keep-null", False))


@pytest.mark.parametrize(
    "case", by_name(cases(*sorted({*CASES.glob("*.yaml")} - {CASES / "base.yaml"})))
)
def test(case: dict[str, Any]) -> None:
    document = _document(case)
    assert told(document) == expected(case)
    parsed = parse(document)
    said = parsed.warnings if isinstance(parsed, StackConfig) else parsed
    for rule in CAAS_RULES:
        if rule.name == case.get("rule"):
            assert (rule.level is Level.WARN) is ("warnings" in case)
            assert rule.code in {one.code for one in said}


def test_the_smallest_configuration_is_right() -> None:
    assert isinstance(parse(base()), StackConfig)


def test_every_rule_has_a_case_in_the_table_of_its_row() -> None:
    told = {
        (int(path.stem.removeprefix("row_")), case["rule"])
        for path in CASES.glob("row_*.yaml")
        for case in yaml.safe_load(path.read_text())
        if "rule" in case
    }
    assert told == {(rule.row, rule.name) for rule in CAAS_RULES}


def test_every_row_that_configuration_can_decide_has_a_case() -> None:
    rows = {int(path.stem.removeprefix("row_")) for path in CASES.glob("row_*.yaml")}
    # Row 14 compares two configurations: test_kata_deploy.py.
    assert rows == {*range(14), 22, 23, 24, 25}
