"""`state delete`, `state unprotect`: working on a state by hand."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from engine.cli import states
from engine.usererror import UserError
from tests.engine.shellkit import Shell, shell

__all__ = ["shell"]

PREFIX = "urn:pulumi:dev::refs::"
ROOT = f"{PREFIX}pulumi:pulumi:Stack::refs-dev"
PROVIDER = f"{PREFIX}pulumi:providers:a::default"
ONE, TWO, CHILD = f"{PREFIX}a:b:C::one", f"{PREFIX}a:b:C::two", f"{PREFIX}a:b:C$a:b:D::child"


def _state() -> list[dict[str, Any]]:
    uses = {"provider": f"{PROVIDER}::uuid", "custom": True, "id": "i", "type": "a:b:C"}
    return [
        {"urn": ROOT, "custom": False, "type": "pulumi:pulumi:Stack"},
        {"urn": PROVIDER, "custom": True, "id": "uuid", "type": "pulumi:providers:a"},
        {"urn": ONE, "parent": ROOT, "inputs": {"mine": ONE}, **uses},
        {
            "urn": TWO,
            "parent": ROOT,
            "dependencies": [ONE],
            "propertyDependencies": {"x": [ONE], "y": []},
            "deletedWith": ONE,
            **uses,
        },
        {"urn": CHILD, "parent": ONE, **uses, "type": "a:b:D"},
    ]


def _fill(shell: Shell, resources: list[dict[str, Any]]) -> None:
    shell.ok("stack", "init", "dev")
    document = json.loads(shell.checkpoint.read_text())
    document["checkpoint"]["latest"]["resources"] = resources
    shell.checkpoint.write_text(json.dumps(document))


def _resources(shell: Shell) -> list[dict[str, Any]]:
    latest = json.loads(shell.checkpoint.read_text())["checkpoint"]["latest"]
    found: list[dict[str, Any]] = latest.get("resources", [])
    return found


def test_protection_is_taken_off_one_by_one_or_from_all(shell: Shell) -> None:
    _fill(shell, [{**resource, "protect": True} for resource in _state()])
    shell.ok("state", "unprotect", ONE, "--yes")
    assert [r["urn"] for r in _resources(shell) if not r.get("protect")] == [ONE]
    assert shell("state", "unprotect", "--all", ONE, "--yes").code == 2
    assert shell("state", "unprotect", "--yes").code == 2
    shell.ok("state", "unprotect", "--all", "--yes")
    assert _resources(shell) == _state()


def test_everything_can_be_forgotten_but_not_what_is_protected(shell: Shell) -> None:
    resources = _state()
    resources[3]["protect"] = True
    _fill(shell, resources)
    done = shell("state", "delete", "--all", "--yes")
    assert "it is protected" in done.err
    assert len(_resources(shell)) == 5
    shell.ok("state", "delete", "--all", "--force", "--yes")
    assert _resources(shell) == []


def test_dependents_can_be_forgotten_with_what_they_need(shell: Shell) -> None:
    _fill(shell, _state())
    shell.ok("state", "delete", ONE, "--target-dependents", "--yes")
    assert [r["urn"] for r in _resources(shell)] == [ROOT, PROVIDER]


def test_nothing_is_edited_unasked(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    _fill(shell, _state())
    done = shell("state", "delete", TWO)
    assert (done.code, done.err) == (2, "error: non-interactive mode requires --yes flag\n")
    monkeypatch.setenv("PULUMI_SKIP_CONFIRMATIONS", "true")
    shell.ok("state", "delete", TWO)


@given(st.permutations([ONE, TWO, CHILD]))
def test_what_is_left_after_a_deletion_is_whole(order: list[str]) -> None:
    resources = _state()
    for urn in order:
        if not any(r["urn"] == urn for r in resources):
            continue
        try:
            resources = states.without(resources, urn, force=False, dependents=False)
        except UserError:
            resources = states.without(resources, urn, force=False, dependents=True)
        left = {r["urn"] for r in resources}
        assert all(states.needs(r) <= left for r in resources)
