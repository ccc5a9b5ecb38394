"""Severities and parameters of the rules, as a file sets them."""

from __future__ import annotations

import pytest

from gpuclusters.policy.rule import Severity
from gpuclusters.policy.rules import RULES, ProtectionParameters
from gpuclusters.policy.settings import SettingsError, configured


def test_a_level_alone_or_with_parameters_is_taken_and_the_rest_stays() -> None:
    stated = {"unpinned": "mandatory", "partition-protect": {"stacks": ["eu-*"]}}
    made = {rule.id: rule for rule in configured(RULES, stated, "f")}
    assert made["unpinned"].severity is Severity.MANDATORY
    assert made["partition-protect"].parameters == ProtectionParameters(stacks=("eu-*",))
    assert made["partition-protect"].severity is Severity.ADVISORY
    assert made["host-key"] == next(r for r in RULES if r.id == "host-key")


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
