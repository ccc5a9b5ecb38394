"""`state …`, `stack graph`, `stack change-secrets-provider`: working on a state by hand."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Mapping
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from lab.engine import secrets
from lab.engine.cli import stateedits
from lab.engine.cli.protection import kept
from lab.engine.cli.stackgraph import dot
from lab.engine.usererror import UserError
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


def test_a_renamed_resource_is_followed_by_all_that_speak_of_it(shell: Shell) -> None:
    _fill(shell, _state())
    assert shell.ok("state", "rename", ONE, "uno", "--yes").out == "Resource renamed\n"
    new = f"{PREFIX}a:b:C::uno"
    one, two, child = _resources(shell)[2:]
    assert one["urn"] == new
    assert one["inputs"] == {"mine": ONE}, "what a program stores is its own"
    assert (two["dependencies"], two["deletedWith"]) == ([new], new)
    assert two["propertyDependencies"] == {"x": [new], "y": []}
    assert child["parent"] == new


def test_a_renamed_provider_keeps_its_resources(shell: Shell) -> None:
    _fill(shell, _state())
    shell.ok("state", "rename", PROVIDER, "mine", "--yes")
    assert _resources(shell)[2]["provider"] == f"{PREFIX}pulumi:providers:a::mine::uuid"


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ((ONE, "two"), "exists already"),
        (("urn:pulumi:x", "two"), "no such resource"),
        ((ONE, ""), "cannot be empty"),
        ((ROOT, "other"), "`stack rename`"),
    ],
)
def test_a_name_that_cannot_be_given_changes_nothing(
    shell: Shell, arguments: tuple[str, str], what: str
) -> None:
    _fill(shell, _state())
    before = shell.checkpoint.read_bytes()
    done = shell("state", "rename", *arguments, "--yes")
    assert done.code == 1
    assert what in done.err
    assert shell.checkpoint.read_bytes() == before


def test_marks_are_set_and_dropped(shell: Shell) -> None:
    _fill(shell, _state())
    shell.ok("state", "taint", ONE, TWO, "--yes")
    shell.ok("state", "protect", "--yes", ONE)
    assert [(r.get("taint"), r.get("protect")) for r in _resources(shell)[2:4]] == [
        (True, True),
        (True, None),
    ]
    shell.ok("state", "untaint", "--all", "--yes")
    shell.ok("state", "unprotect", ONE, "--yes")
    assert _resources(shell) == _state()
    assert shell("state", "taint", "--yes").code == 2
    assert shell("state", "protect", "--all", ONE, "--yes").code == 2


def test_everything_can_be_forgotten_but_not_what_is_protected(shell: Shell) -> None:
    _fill(shell, _state())
    shell.ok("state", "protect", TWO, "--yes")
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


def test_a_damaged_state_is_put_in_order(shell: Shell) -> None:
    whole = _state()
    _fill(shell, [whole[3], whole[4], whole[0], whole[1]])
    done = shell.ok("state", "repair", "--yes")
    assert "no longer refers to" in done.out
    assert "State repaired successfully" in done.out
    assert not stateedits.faults(_resources(shell))
    assert {r["urn"] for r in _resources(shell)} == {ROOT, PROVIDER, TWO, CHILD}
    assert "already valid" in shell.ok("state", "repair").out
    assert "nothing to upgrade" in shell.ok("state", "upgrade", "--yes").out


@pytest.mark.parametrize(
    ("broken", "what"),
    [
        ({"dependencies": [TWO]}, "in a circle"),
        ({"provider": f"{PREFIX}pulumi:providers:gone::default::x"}, "not in the state"),
    ],
)
def test_what_cannot_be_repaired_is_left_alone(
    shell: Shell, broken: Mapping[str, Any], what: str
) -> None:
    resources = _state()
    resources[2] |= broken
    _fill(shell, resources)
    before = shell.checkpoint.read_bytes()
    done = shell("state", "repair", "--yes")
    assert done.code == 1
    assert what in done.err
    assert shell.checkpoint.read_bytes() == before


@given(st.permutations(_state()), st.sets(st.sampled_from([ROOT, ONE, TWO, CHILD])))
def test_a_repair_loses_no_resource_and_leaves_nothing_wrong(
    resources: list[dict[str, Any]], gone: set[str]
) -> None:
    left = [copy.deepcopy(r) for r in resources if r["urn"] not in gone]
    repaired = stateedits.repaired(left).resources
    assert not stateedits.faults(repaired)
    assert sorted(r["urn"] for r in repaired) == sorted(r["urn"] for r in left)


@given(st.permutations([ONE, TWO, CHILD]))
def test_what_is_left_after_a_deletion_is_whole(order: list[str]) -> None:
    resources = _state()
    for urn in order:
        if not any(r["urn"] == urn for r in resources):
            continue
        try:
            resources = stateedits.without(resources, urn, force=False, dependents=False)
        except UserError:
            resources = stateedits.without(resources, urn, force=False, dependents=True)
        assert not stateedits.faults(resources)


def test_what_protects_stays_with_its_parents_and_providers() -> None:
    resources = _state()
    resources[4]["protect"] = True
    assert kept(resources) == [ROOT, PROVIDER, ONE, CHILD]


# -- graphs ------------------------------------------------------------------------------


def test_a_graph_is_written_to_a_file(shell: Shell) -> None:
    _fill(shell, _state())
    done = shell.ok("stack", "graph", "graph.dot", "--short-node-name", "--dot-fragment", "a=b;")
    assert done.out == "Wrote stack dependency graph to `graph.dot`\n"
    text = (shell.folder / "graph.dot").read_text()
    assert text.startswith("strict digraph {\n    a=b;\n")
    assert '[label="one"]' in text
    assert shell("stack", "graph").code == 2
    assert "could not write" in shell("stack", "graph", str(shell.root / "no/x")).err


def test_edges_go_from_what_is_needed_and_to_parents() -> None:
    text = dot(_state())
    names = dict(
        reversed(line.strip(" ;").split(" [label=")) for line in text.splitlines() if "urn:" in line
    )
    one, two, child = (names[f'"{urn}"]'] for urn in (ONE, TWO, CHILD))
    assert f'{one} -> {two} [color="#246C60", label="x"];' in text
    assert f'{child} -> {one} [color="#AA6639"];' in text
    assert text.count("->") == 4
    assert dot(_state(), parents=None).count("->") == 1
    assert dot(_state(), dependencies=None, parents="red").count('[color="red"]') == 3


# -- another passphrase ------------------------------------------------------------------


def test_another_passphrase_opens_everything_and_the_old_one_nothing(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.ok("stack", "init", "dev")
    shell.ok("config", "set", "--secret", "token", "hunter22")
    shell.ok("config", "set", "--secret", "--path", "deep.token", "hunter33")
    document = {"version": 3, "deployment": {"resources": _state()}}
    document["deployment"]["resources"][0]["outputs"] = {  # type: ignore[index]
        "out": {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270",
                "plaintext": '"hunter44"'}
    }  # fmt: skip
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(document)))
    shell.ok("stack", "import")
    monkeypatch.setattr("sys.stdin", io.StringIO("new one\n"))
    shell.ok("stack", "change-secrets-provider", "passphrase")
    secrets._derive.cache_clear()
    for command in (("config", "get", "token"), ("stack", "output", "--show-secrets")):
        assert "incorrect passphrase" in shell(*command).err
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "new one")
    assert shell.ok("config", "get", "token").out == "hunter22\n"
    assert shell.ok("config", "get", "--path", "deep.token").out == "hunter33\n"
    assert shell.ok("stack", "output", "out", "--show-secrets").out == "hunter44\n"


def test_a_wrong_passphrase_or_none_changes_nothing(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.ok("stack", "init", "dev")
    shell.ok("config", "set", "--secret", "token", "hunter22")
    before = shell.stack_file.read_bytes(), shell.checkpoint.read_bytes()
    assert "from stdin" in shell("stack", "change-secrets-provider", "passphrase").err
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "wrong")
    monkeypatch.setattr("sys.stdin", io.StringIO("new one\n"))
    done = shell("stack", "change-secrets-provider", "passphrase")
    assert "incorrect passphrase" in done.err
    assert "'awskms://x'" in shell("stack", "change-secrets-provider", "awskms://x").err
    assert (shell.stack_file.read_bytes(), shell.checkpoint.read_bytes()) == before
