"""`stack`, `state` and `cancel` on a file backend."""

from __future__ import annotations

import io
import json
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from engine.cli import states
from engine.secrets import SecretsManager
from engine.usererror import UserError
from engine.values import SECRET, SIGNATURE
from tests.engine.shellkit import Shell, shell

__all__ = ["shell"]

PREFIX = "urn:pulumi:dev::refs::"
ROOT = f"{PREFIX}pulumi:pulumi:Stack::refs-dev"
PROVIDER = f"{PREFIX}pulumi:providers:a::default"
ONE, TWO, CHILD = f"{PREFIX}a:b:C::one", f"{PREFIX}a:b:C::two", f"{PREFIX}a:b:C$a:b:D::child"


def state(**more: object) -> list[dict[str, Any]]:
    uses = {"provider": f"{PROVIDER}::uuid", "custom": True, "id": "i", "type": "a:b:C"}
    resources: list[dict[str, Any]] = [
        {"urn": ROOT, "custom": False, "type": "pulumi:pulumi:Stack"},
        {"urn": PROVIDER, "custom": True, "id": "uuid", "type": "pulumi:providers:a"},
        {"urn": ONE, "parent": ROOT, "inputs": {"mine": ONE}, **uses},
        {
            **{"urn": TWO, "parent": ROOT, "dependencies": [ONE], "deletedWith": ONE, **uses},
            "propertyDependencies": {"x": [ONE], "y": []},
        },
        {"urn": CHILD, "parent": ONE, **uses, "type": "a:b:D"},
    ]
    return [{**resource, **more} for resource in resources]


def fill(shell: Shell, resources: list[dict[str, Any]]) -> None:
    """A stack with these resources and a secret output."""
    shell.ok("stack", "init", "dev")
    document = json.loads(shell.checkpoint.read_text())
    latest = document["checkpoint"]["latest"]
    keys = SecretsManager(latest["secrets_providers"]["state"]["salt"], lambda: "test")
    hidden = {SIGNATURE: SECRET, "ciphertext": keys.encrypt('"s3cret"')}
    root = {**resources[0], "outputs": {"password": hidden, "size": 3, "nested": {"a": [1]}}}
    latest["resources"] = [root, *resources[1:]]
    shell.checkpoint.write_text(json.dumps(document))


def resources(shell: Shell) -> list[dict[str, Any]]:
    latest = json.loads(shell.checkpoint.read_text())["checkpoint"]["latest"]
    return list(latest.get("resources", ()))


def urns(shell: Shell) -> list[str]:
    return [r["urn"] for r in resources(shell)]


def test_a_new_stack_is_selected_and_uses_the_salt_that_is_in_its_file(shell: Shell) -> None:
    shell.ok("stack", "init", "dev")
    before = shell.stack_file.read_text()
    assert before.startswith("encryptionsalt: v1:")
    assert shell.ok("stack", "ls", "--json").json == [
        {"name": "dev", "current": True, "updateInProgress": False, "resourceCount": 0}
    ]
    assert "already exists" in shell("stack", "init", "dev").err
    shell.ok("stack", "select", "--create", "dev")
    shell.ok("stack", "rm", "--yes", "--preserve-config")
    shell.ok("stack", "init", "dev")
    assert shell.stack_file.read_text() == before


def test_the_selection_can_be_changed_and_goes_with_its_stack(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.ok("stack", "init", "dev")
    shell.ok("stack", "init", "prod")
    monkeypatch.setenv("PULUMI_STACK", "dev")
    shell.ok("config", "set", "key", "of-dev")
    shell.ok("config", "set", "key", "of-prod", "--stack", "organization/refs/prod")
    assert shell.ok("config", "get", "key").out == "of-dev\n"
    assert shell.ok("config", "get", "key", "--stack", "prod").out == "of-prod\n"
    monkeypatch.delenv("PULUMI_STACK")
    shell.ok("stack", "select", "dev")
    assert "dev*" in shell.ok("stack", "ls").out
    shell.ok("stack", "rm", "dev", "--yes")
    done = shell("stack", "output")
    assert done.code == 6
    assert "no stack selected" in done.err


@pytest.mark.parametrize(
    "command", [("stack", "output"), ("config",), ("preview",), ("cancel", "--yes")]
)
def test_an_unknown_stack_exits_with_6(shell: Shell, command: tuple[str, ...]) -> None:
    done = shell(*command, "--stack", "nowhere")
    assert done.code == 6
    assert done.err == "error: no stack named 'nowhere' found\n"


def test_outputs_hide_secrets_unless_asked(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(shell, state())
    outputs = {"nested": {"a": [1]}, "password": "s3cret", "size": 3}
    assert shell.ok("stack", "output", "--show-secrets", "--json").json == outputs
    # Without the flag nobody needs the passphrase.
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE")
    hidden = {**outputs, "password": "[secret]"}
    assert shell.ok("stack", "output", "--json").json == hidden
    assert shell.ok("stack", "output", "size").out == "3\n"
    assert "s3cret" not in shell.ok("stack").out
    assert shell("stack", "output", "absent").code == 1


@pytest.mark.parametrize("flags", [(), ("--show-secrets",)])
def test_what_was_exported_can_be_imported(
    shell: Shell, flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(shell, state())
    latest = json.loads(shell.checkpoint.read_text())["checkpoint"]["latest"]
    exported = shell.ok("stack", "export", *flags)
    if flags:
        assert '"plaintext": "\\"s3cret\\""' in exported.out
    else:
        assert exported.json == {"version": 3, "deployment": latest}
    shell.ok("state", "delete", "--yes", TWO)
    monkeypatch.setattr("sys.stdin", io.StringIO(exported.out))
    shell.ok("stack", "import")
    assert urns(shell) == [ROOT, PROVIDER, ONE, TWO, CHILD]
    assert "s3cret" not in shell.checkpoint.read_text()
    assert shell.ok("stack", "output", "password", "--show-secrets").out == "s3cret\n"


def test_what_is_no_export_of_this_stack_is_not_imported(shell: Shell) -> None:
    fill(shell, state())
    file = shell.root / "x.json"
    shell.ok("stack", "export", "--file", str(file))
    of_another = file.read_text().replace("urn:pulumi:dev", "urn:pulumi:prod")
    before = shell.checkpoint.read_bytes()
    for text, what in (
        ("{", "not valid JSON"),
        ("[]", "as `stack export`"),
        ('{"version":7,"deployment":{}}', "version 7"),
        (of_another, "--force"),
    ):
        file.write_text(text)
        done = shell("stack", "import", "--file", str(file))
        assert done.code == 1
        assert what in done.err
        assert shell.checkpoint.read_bytes() == before


def test_a_stack_with_resources_is_removed_only_by_force(shell: Shell) -> None:
    fill(shell, state())
    assert shell("stack", "rm").code == 2  # nobody can be asked
    done = shell("stack", "rm", "--yes")
    assert done.code == 1
    assert "still has resources" in done.err
    shell.ok("stack", "rm", "--yes", "--force")
    assert not shell.checkpoint.exists()
    assert not shell.stack_file.exists()


def test_cancel_lets_go_of_a_lock(shell: Shell) -> None:
    shell.ok("stack", "init", "dev")
    lock = shell.state / ".pulumi/locks/organization/refs/dev/x.json"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.write_text('{"pid":1,"username":"u","hostname":"elsewhere","timestamp":"t"}')
    assert "locked" in shell("state", "unprotect", "--yes", "--all").err
    assert shell("cancel").code == 2
    shell.ok("cancel", "--yes")
    assert not lock.exists()
    assert "nothing to cancel" in shell.ok("cancel", "dev", "--yes").out


def test_protection_is_taken_off_one_by_one_or_from_all(shell: Shell) -> None:
    fill(shell, state(protect=True))
    shell.ok("state", "unprotect", ONE, "--yes")
    assert [r["urn"] for r in resources(shell) if not r.get("protect")] == [ONE]
    assert shell("state", "unprotect", "--all", ONE, "--yes").code == 2
    assert shell("state", "unprotect", "--yes").code == 2
    shell.ok("state", "unprotect", "--all", "--yes")
    assert resources(shell)[1:] == state()[1:]


def test_what_is_protected_or_needed_is_not_forgotten_but_by_force(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    protected = state()
    protected[3]["protect"] = True
    fill(shell, protected)
    before = shell.checkpoint.read_bytes()
    done = shell("state", "delete", "--yes", ONE)
    assert f"{ONE} can't be safely deleted" in done.err
    assert f"  * {TWO}\n" in done.err
    assert "no such resource" in shell("state", "delete", "--yes", "urn:x").err
    assert "it is protected" in shell("state", "delete", "--all", "--yes").err
    assert "is protected" in shell("state", "delete", ONE, "--target-dependents", "--yes").err
    done = shell("state", "delete", CHILD)
    assert (done.code, done.err) == (2, "error: non-interactive mode requires --yes flag\n")
    assert shell.checkpoint.read_bytes() == before
    monkeypatch.setenv("PULUMI_SKIP_CONFIRMATIONS", "true")
    shell.ok("state", "unprotect", TWO)
    shell.ok("state", "delete", ONE, "--target-dependents")
    assert urns(shell) == [ROOT, PROVIDER]
    shell.ok("state", "delete", "--all", "--force", "--yes")
    assert resources(shell) == []


@given(st.permutations([ONE, TWO, CHILD]))
def test_what_is_left_after_a_deletion_is_whole(order: list[str]) -> None:
    left = state()
    for urn in order:
        if not any(r["urn"] == urn for r in left):
            continue
        try:
            left = states.without(left, urn, force=False, dependents=False)
        except UserError:
            left = states.without(left, urn, force=False, dependents=True)
        known = {r["urn"] for r in left}
        assert all(states.needs(r) <= known for r in left)
