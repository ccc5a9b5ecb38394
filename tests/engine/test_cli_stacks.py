"""`stack`, `state` and `cancel` on a file backend."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from engine.backend.filebackend import FileBackend
from engine.backend.layout import StackReference
from engine.backend.store import CheckpointStore
from engine.secrets import SecretsManager
from engine.state import ResourceState, Snapshot
from engine.values import Secret
from tests.engine.shellkit import Shell, shell

__all__ = ["shell"]

DEV = StackReference("refs", "dev")
ROOT = "urn:pulumi:dev::refs::pulumi:pulumi:Stack::refs-dev"
ONE = "urn:pulumi:dev::refs::a:b:C::one"
TWO = "urn:pulumi:dev::refs::a:b:C::two"


def fill(shell: Shell, *, protect: bool = False) -> None:
    """A stack with a secret output and two resources, the second depending on the first."""
    shell.ok("stack", "init", "dev")
    backend = FileBackend(shell.state)
    provider = backend.checkpoint(DEV).secrets_provider
    assert provider is not None
    manager = SecretsManager(provider["state"]["salt"], lambda: "test")
    outputs = {"password": Secret("s3cret"), "size": 3, "nested": {"a": [1]}}
    CheckpointStore(backend.bucket, DEV, manager, lambda _: manager).save(
        Snapshot(
            (
                ResourceState(ROOT, "pulumi:pulumi:Stack", custom=False, outputs=outputs),
                ResourceState(ONE, "a:b:C", custom=True, id="1", parent=ROOT, protect=protect),
                ResourceState(TWO, "a:b:C", custom=True, id="2", parent=ROOT, dependencies=(ONE,)),
            )
        )
    )


def urns(shell: Shell) -> list[str]:
    document = json.loads(shell.checkpoint.read_text())
    return [r["urn"] for r in document["checkpoint"]["latest"].get("resources", [])]


def test_a_new_stack_is_selected_and_has_a_salt(shell: Shell) -> None:
    shell.ok("stack", "init", "dev")
    assert shell.stack_file.read_text().startswith("encryptionsalt: v1:")
    assert shell.ok("stack", "ls", "--json").json == [
        {"name": "dev", "current": True, "updateInProgress": False, "resourceCount": 0}
    ]


def test_a_salt_that_is_in_the_file_already_is_used(shell: Shell) -> None:
    shell.ok("stack", "init", "dev")
    before = shell.stack_file.read_text()
    shell.ok("stack", "rm", "--yes", "--preserve-config")
    shell.ok("stack", "init", "dev")
    assert shell.stack_file.read_text() == before


def test_the_selection_can_be_changed_and_goes_with_its_stack(shell: Shell) -> None:
    shell.ok("stack", "init", "dev")
    shell.ok("stack", "init", "prod")
    shell.ok("stack", "select", "dev")
    assert "dev*" in shell.ok("stack", "ls").out
    shell.ok("stack", "rm", "dev", "--yes")
    done = shell("stack", "output")
    assert done.code == 6
    assert "no stack selected" in done.err


def test_the_environment_names_a_stack(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.ok("stack", "init", "dev")
    shell.ok("stack", "init", "prod")
    monkeypatch.setenv("PULUMI_STACK", "dev")
    shell.ok("config", "set", "key", "of-dev")
    shell.ok("config", "set", "key", "of-prod", "--stack", "organization/refs/prod")
    assert shell.ok("config", "get", "key").out == "of-dev\n"
    assert shell.ok("config", "get", "key", "--stack", "prod").out == "of-prod\n"


@pytest.mark.parametrize(
    "command", [("stack", "output"), ("config",), ("preview",), ("cancel", "--yes")]
)
def test_an_unknown_stack_exits_with_6(shell: Shell, command: tuple[str, ...]) -> None:
    done = shell(*command, "--stack", "nowhere")
    assert done.code == 6
    assert done.err == "error: no stack named 'nowhere' found\n"


def test_a_stack_is_not_made_twice(shell: Shell) -> None:
    shell.ok("stack", "init", "dev")
    assert "already exists" in shell("stack", "init", "dev").err
    assert shell("stack", "select", "--create", "dev").code == 0


def test_outputs_hide_secrets_unless_asked(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(shell)
    assert shell.ok("stack", "output", "--show-secrets", "--json").json == {
        "nested": {"a": [1]}, "password": "s3cret", "size": 3,
    }  # fmt: skip
    # Without the flag nobody needs the passphrase.
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE")
    assert shell.ok("stack", "output", "--json").json == {
        "nested": {"a": [1]}, "password": "[secret]", "size": 3,
    }  # fmt: skip
    assert shell.ok("stack", "output", "size").out == "3\n"
    assert "s3cret" not in shell.ok("stack").out
    assert shell("stack", "output", "absent").code == 1


def test_an_export_has_secrets_encrypted_or_plain(shell: Shell) -> None:
    fill(shell)
    encrypted = shell.ok("stack", "export").json
    plain = shell.ok("stack", "export", "--show-secrets").json
    assert isinstance(encrypted, dict)
    assert isinstance(plain, dict)
    assert encrypted["version"] == plain["version"] == 3
    hidden = encrypted["deployment"]["resources"][0]["outputs"]["password"]
    shown = plain["deployment"]["resources"][0]["outputs"]["password"]
    assert hidden["ciphertext"].startswith("v1:")
    assert shown["plaintext"] == '"s3cret"'
    assert encrypted == {
        "version": 3,
        "deployment": json.loads(shell.checkpoint.read_text())["checkpoint"]["latest"],
    }


@pytest.mark.parametrize("flag", [(), ("--show-secrets",)])
def test_what_was_exported_can_be_imported(
    shell: Shell, flag: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(shell)
    exported = shell.ok("stack", "export", *flag).out
    shell.ok("state", "delete", "--yes", TWO)
    monkeypatch.setattr("sys.stdin", io.StringIO(exported))
    shell.ok("stack", "import")
    assert urns(shell) == [ROOT, ONE, TWO]
    assert "s3cret" not in shell.checkpoint.read_text()
    assert shell.ok("stack", "output", "password", "--show-secrets").out == "s3cret\n"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "not valid JSON"),
        ("[]", "as `stack export`"),
        ('{"version":7,"deployment":{}}', "version 7"),
    ],
)
def test_what_is_no_export_is_not_imported(
    shell: Shell, tmp_path: Path, text: str, what: str
) -> None:
    fill(shell)
    (tmp_path / "x.json").write_text(text)
    before = shell.checkpoint.read_bytes()
    assert what in shell("stack", "import", "--file", str(tmp_path / "x.json")).err
    assert shell.checkpoint.read_bytes() == before


def test_the_state_of_another_stack_is_imported_only_by_force(shell: Shell, tmp_path: Path) -> None:
    fill(shell)
    shell.ok("stack", "export", "--file", str(tmp_path / "dev.json"))
    shell.ok("stack", "init", "prod")
    done = shell("stack", "import", "--file", str(tmp_path / "dev.json"))
    assert done.code == 1
    assert "--force" in done.err


def test_a_stack_with_resources_is_removed_only_by_force(shell: Shell) -> None:
    fill(shell)
    assert shell("stack", "rm").code == 2  # nobody can be asked
    done = shell("stack", "rm", "--yes")
    assert done.code == 1
    assert "still has resources" in done.err
    shell.ok("stack", "rm", "--yes", "--force")
    assert not shell.checkpoint.exists()
    assert not shell.stack_file.exists()


def test_protection_is_changed_in_the_state(shell: Shell) -> None:
    fill(shell, protect=True)
    done = shell("state", "delete", "--yes", "--target-dependents", ONE)
    assert "is protected" in done.err
    shell.ok("state", "unprotect", "--yes", "--all")
    shell.ok("state", "delete", "--yes", "--target-dependents", ONE)
    assert urns(shell) == [ROOT]


def test_what_others_need_is_not_taken_out_of_the_state(shell: Shell) -> None:
    fill(shell)
    before = shell.checkpoint.read_bytes()
    done = shell("state", "delete", "--yes", ONE)
    assert f"{ONE} can't be safely deleted" in done.err
    assert f"  * {TWO}\n" in done.err
    assert "no such resource" in shell("state", "delete", "--yes", "urn:x").err
    assert shell.checkpoint.read_bytes() == before


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
