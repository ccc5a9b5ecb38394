"""Commands as people and scripts use them: the sessions of `sessions.yaml`.

A step is a command that has to end well, or a command with its code and what it says; a file with
what is added to it, or what it has; a variable; the resources of the stack (`state`) or what is to
be left of them (`is`), as differences from `DEFAULT`; the changes that the engine tells; how often it was
asked.
"""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import yaml
from hypothesis import given

from engine.cli import states
from engine.request import Outcome
from engine.secrets import SecretsManager
from engine.usererror import UserError
from engine.values import SECRET, SIGNATURE
from tests.engine.shellkit import Recorder, Shell, engine, shell

__all__ = ["engine", "shell"]

PREFIX = "urn:pulumi:dev::refs::"
ROOT = f"{PREFIX}pulumi:pulumi:Stack::refs-dev"
PROVIDER = f"{PREFIX}pulumi:providers:a::default"
ONE, TWO, CHILD = f"{PREFIX}a:b:C::one", f"{PREFIX}a:b:C::two", f"{PREFIX}a:b:C$a:b:D::child"
TEXT = Path(__file__).with_name("sessions.yaml").read_text()
for name, urn in {"ONE": ONE, "TWO": TWO, "CHILD": CHILD}.items():
    TEXT = TEXT.replace(name, f"{urn}")
SESSIONS = yaml.safe_load(TEXT)
USES = {"provider": f"{PROVIDER}::uuid", "custom": True, "id": "i", "type": "a:b:C"}
DEFAULT: dict[str, dict[str, Any]] = {
    "refs-dev": {"urn": ROOT, "custom": False, "type": "pulumi:pulumi:Stack"},
    "default": {"urn": PROVIDER, "custom": True, "id": "uuid", "type": "pulumi:providers:a"},
    "one": {"urn": ONE, "parent": ROOT, "inputs": {"mine": ONE}, **USES},
    "two": {
        **{"urn": TWO, "parent": ROOT, "dependencies": [ONE], "deletedWith": ONE, **USES},
        "propertyDependencies": {"x": [ONE], "y": []},
    },
    "child": {"urn": CHILD, "parent": ONE, **USES, "type": "a:b:D"},
}


def resources(more: Mapping[str, dict[str, Any] | None]) -> list[dict[str, Any]]:
    """The default ones, some with more fields, those with None left out."""
    wanted = {name: more.get(name, {}) for name in DEFAULT}
    return [DEFAULT[name] | fields for name, fields in wanted.items() if fields is not None]


def fill(shell: Shell, more: Mapping[str, dict[str, Any] | None]) -> None:
    """A stack with these resources and a secret output."""
    shell.ok("stack", "init", "dev")
    document = json.loads(shell.checkpoint.read_text())
    state = document["checkpoint"]["latest"]
    keys = SecretsManager(state["secrets_providers"]["state"]["salt"], lambda: "test")
    hidden = {SIGNATURE: SECRET, "ciphertext": keys.encrypt('"s3cret"')}
    state["resources"] = resources(more)
    state["resources"][0] |= {"outputs": {"password": hidden, "size": 3, "nested": {"a": [1]}}}
    shell.checkpoint.write_text(json.dumps(document))


def said(shell: Shell, monkeypatch: pytest.MonkeyPatch, step: dict[str, Any]) -> str:
    """What the step shows: a file's text, or the output of a command."""
    if "run" in step:
        monkeypatch.setattr("sys.stdin", io.StringIO(step.get("stdin", "")))
        done = shell(*shlex.split(step["run"]))
        assert done.code == step.get("code", 0), done
        return done.out + done.err
    file = shell.folder / step["file"]
    text = file.read_text() if file.exists() else ""
    if step.keys() & {"add", "replace"}:
        file.parent.mkdir(parents=True, exist_ok=True)
        text = text.replace(step.get("replace", "\0"), step.get("by", "")) + step.get("add", "")
        file.write_text(text)
    assert file.exists() is not step.get("gone", False)
    return text


@pytest.mark.parametrize("session", SESSIONS)
def test_a_session_goes_as_told(
    shell: Shell, engine: Recorder, monkeypatch: pytest.MonkeyPatch, session: str
) -> None:
    for line in SESSIONS[session]:
        match {"run": line} if isinstance(line, str) else line:
            case {"set": variable, "to": value}:
                monkeypatch.setenv(variable, value)
            case {"set": variable}:
                monkeypatch.delenv(variable)
            case {"asked": number}:
                assert len(engine.requests) == number
            case {"changes": changes}:
                engine.outcome = Outcome(ok=True, changes=changes)
            case {"state": more}:
                fill(shell, more)
            case {"is": more}:
                state = json.loads(shell.checkpoint.read_text())["checkpoint"]["latest"]
                found = state.get("resources", [])
                assert [{**r, "outputs": 0} for r in found] == [
                    {**r, "outputs": 0} for r in resources(more)
                ]
            case step:
                text = said(shell, monkeypatch, step)
                assert step.get("has", "") in text
                assert step.get("lacks", "\0") not in text
                assert step.get("out", text) == text
                assert "json" not in step or json.loads(text) == step["json"]


@given(st.permutations([ONE, TWO, CHILD]))
def test_what_is_left_after_a_deletion_is_whole(order: list[str]) -> None:
    left = resources({})
    for urn in order:
        if not any(r["urn"] == urn for r in left):
            continue
        try:
            left = states.without(left, urn, force=False, dependents=False)
        except UserError:
            left = states.without(left, urn, force=False, dependents=True)
        known = {r["urn"] for r in left}
        assert all(states.needs(r) <= known for r in left)
