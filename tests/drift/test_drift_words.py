"""What resources tell of drift, and how it is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuclusters.drift import resources
from gpuclusters.drift.report import Finding
from tests.drift.drifting import CONNECTION, resource, view_of

WORDS = yaml.safe_load(Path(__file__).with_name("words.yaml").read_text(encoding="utf-8"))


def findings(kind: str, old: Any, new: Any, **inputs: Any) -> list[Finding]:
    declared = {"connection": CONNECTION, **inputs}
    return list(resources.findings(view_of(resource(kind, "x", declared, old, new))))


@pytest.mark.parametrize("said", WORDS)
def test_what_drifted_has_a_name(said: str) -> None:
    case = WORDS[said]
    found = findings(case["kind"], case["old"], case["new"], **case.get("inputs", {}))
    assert len(found) == len(case["told"])
    for one, told in zip(found, case["told"], strict=True):
        assert {field: getattr(one, field) for field in told} == told


def test_what_stops_up_is_not_said_to_be_put_back() -> None:
    drift = {"code": "rke2.firewalld", "problem": "firewalld runs", "path": [], "level": "block"}
    (one,) = findings("Rke2Node", {"drift": []}, {"drift": [drift]})
    assert one.id == "rke2.firewalld"
    assert "up --refresh" not in one.remedy
