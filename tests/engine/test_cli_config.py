"""`config` as people and scripts use it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import pytest
import yaml

from tests.engine.shellkit import Shell, shell

__all__ = ["shell"]


@pytest.fixture
def dev(shell: Shell) -> Shell:
    shell.ok("stack", "init", "dev")
    return shell


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return lambda text: monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_a_value_is_set_read_and_removed(dev: Shell) -> None:
    dev.ok("config", "set", "--stack", "dev", "size", "3")
    assert dev.ok("config", "get", "size").out == "3\n"
    assert "refs:size: '3'" in dev.stack_file.read_text()
    dev.ok("config", "rm", "--stack", "dev", "size")
    assert dev("config", "get", "size").code == 1
    dev.ok("config", "rm", "size")  # not there: no error


def test_a_secret_is_in_the_file_only_encrypted(dev: Shell) -> None:
    dev.ok("config", "set", "--secret", "token", "tok-123")
    assert "tok-123" not in dev.stack_file.read_text()
    assert "tok-123" not in dev.ok("config").out
    assert dev.ok("config", "get", "token").out == "tok-123\n"
    assert dev.ok("config", "--json").json == {
        "refs:greeting": {"value": "hello", "secret": False},
        "refs:token": {"secret": True},
    }
    shown = dev.ok("config", "--json", "--show-secrets").json
    assert isinstance(shown, dict)
    assert shown["refs:token"] == {"value": "tok-123", "secret": True}


def test_another_passphrase_does_not_open_a_secret(
    dev: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    dev.ok("config", "set", "--secret", "token", "tok-123")
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "other")
    done = dev("config", "get", "token")
    assert done.code == 1
    assert "incorrect passphrase" in done.err
    dev.ok("config")  # listing needs none


def test_paths_lead_into_values_and_keep_types(dev: Shell) -> None:
    for path, value in (("a.list[0].n", "1"), ("a.list[1]", "true"), ("a.text", "01")):
        dev.ok("config", "set", "--path", path, value)
    assert dev.ok("config", "get", "a", "--json").json == {
        "value": '{"list":[{"n":1},true],"text":"01"}',
        "objectValue": {"list": [{"n": 1}, True], "text": "01"},
        "secret": False,
    }
    dev.ok("config", "rm", "--path", "a.list[0]")
    assert dev.ok("config", "get", "--path", "a.list").out == "[true]\n"
    assert "out of range" in dev("config", "set", "--path", "a.list[7]", "x").err


def test_types_are_kept_if_asked(dev: Shell) -> None:
    dev.ok("config", "set", "--type", "int", "n", "3")
    dev.ok("config", "set", "--type", "bool", "b", "true")
    assert "refs:n: 3\n" in dev.stack_file.read_text()
    assert "refs:b: true\n" in dev.stack_file.read_text()
    assert dev("config", "set", "--type", "int", "n", "three").code == 2


def test_a_value_may_come_from_a_pipe(dev: Shell, piped: Callable[[str], None]) -> None:
    piped("first\nsecond\n")
    dev.ok("config", "set", "key")
    assert dev.ok("config", "get", "key").out == "first\nsecond\n"
    piped("kept\n")
    dev.ok("config", "set", "--raw", "key")
    assert dev.ok("config", "get", "key").out == "kept\n\n"


def test_flags_may_stand_anywhere_and_values_may_look_like_flags(dev: Shell) -> None:
    dev.ok("config", "set", "a", "--plaintext", "one")
    dev.ok("config", "set", "b", "two", "--plaintext")
    dev.ok("config", "set", "c", "--", "-3")
    dev.ok("config", "--stack", "dev", "set", "d", "four")
    assert [dev.ok("config", "get", key).out for key in "abcd"] == [
        "one\n",
        "two\n",
        "-3\n",
        "four\n",
    ]


def test_what_looks_like_a_secret_is_not_stored_in_the_clear(dev: Shell) -> None:
    done = dev("config", "set", "apiToken", "hR7kQ2mZ9xW4vB1n")
    assert done.code == 1
    assert "--secret" in done.err
    assert "hR7kQ2mZ9xW4vB1n" not in done.err
    dev.ok("config", "set", "apiToken", "hR7kQ2mZ9xW4vB1n", "--plaintext")
    dev.ok("config", "set", "tokenName", "the name of a token")
    dev.ok("config", "set", "size", "hR7kQ2mZ9xW4vB1n")


def test_defaults_of_the_project_are_listed_and_read(dev: Shell) -> None:
    assert dev.ok("config", "get", "greeting").out == "hello\n"
    assert "greeting  hello" in dev.ok("config").out


def test_another_file_can_be_named(dev: Shell) -> None:
    dev.ok("config", "set", "--config-file", "other.yaml", "size", "1")
    assert "size" not in dev.stack_file.read_text()
    assert dev.ok("config", "--config-file", "other.yaml", "get", "size").out == "1\n"


def test_configuration_is_copied_to_another_stack_with_its_secrets(dev: Shell) -> None:
    dev.ok("config", "set", "--secret", "token", "tok-123")
    dev.ok("config", "set", "size", "1")
    dev.ok("stack", "init", "prod", "--no-select")
    dev.ok("config", "cp", "--dest", "prod", "token")
    assert dev.ok("config", "get", "--stack", "prod", "token").out == "tok-123\n"
    assert dev("config", "get", "--stack", "prod", "size").code == 1
    assert "the same" in dev("config", "cp", "--dest", "dev").err


def test_comments_survive_every_command(dev: Shell) -> None:
    salt = dev.stack_file.read_text()
    dev.stack_file.write_text(f"# top\n{salt}config:\n  # about size\n  refs:size: 1  # small\n")
    dev.ok("config", "set", "size", "2")
    dev.ok("config", "set", "--secret", "token", "x")
    dev.ok("config", "rm", "token")
    assert dev.stack_file.read_text() == (
        f"# top\n{salt}config:\n  # about size\n  refs:size: '2'  # small\n"
    )


def test_a_broken_stack_file_is_reported_with_its_name(dev: Shell) -> None:
    dev.stack_file.write_text("config: [")
    done = dev("config")
    assert done.code == 2
    assert "Pulumi.dev.yaml" in done.err
    assert "Traceback" not in done.err


def test_several_values_are_set_and_removed_at_once(dev: Shell) -> None:
    dev.ok(
        "config", "set-all", "--plaintext", "a=1", "--plaintext", "b=x=y", "--secret", "pw=hunter22"
    )
    assert dev.ok("config", "get", "b").out == "x=y\n"
    assert dev.ok("config", "get", "pw").out == "hunter22\n"
    assert "hunter22" not in dev.stack_file.read_text()
    dev.ok(
        "config", "set-all", "--path", "--plaintext", "deep.list[0]=true", "--plaintext", "deep.n=3"
    )
    assert dev.ok("config", "get", "deep").out == '{"list":[true],"n":3}\n'
    dev.ok("config", "rm-all", "--path", "deep.n", "a")
    assert dev.ok("config", "get", "deep").out == '{"list":[true]}\n'
    assert dev("config", "get", "a").code == 1


def test_values_travel_as_json(dev: Shell) -> None:
    dev.ok("config", "set", "plain", "text")
    dev.ok("config", "set", "--secret", "pw", "hunter22")
    printed = dev.ok("config", "--json", "--show-secrets").out
    dev.ok("stack", "init", "other")
    dev.ok("config", "set-all", "--json", printed)
    assert dev.ok("config", "--json", "--show-secrets").json == json.loads(printed)
    assert "hunter22" not in (dev.folder / "Pulumi.other.yaml").read_text()


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("set-all",), "nothing to set"),
        (("set-all", "--plaintext", "novalue"), "write KEY=VALUE"),
        (("set-all", "--secret", "novalue"), "--secret 'novalue'"),
        (("set-all", "--json", "{"), "--json: write"),
        (("set-all", "--json", "[]"), "--json: write"),
        (("set-all", "--json", "{}", "--secret", "a=b"), "leave out --secret"),
        (("rm-all",), "required: KEY"),
    ],
)
def test_several_values_that_make_no_sense_change_nothing(
    dev: Shell, arguments: tuple[str, ...], what: str
) -> None:
    before = dev.stack_file.read_bytes()
    done = dev("config", *arguments)
    assert done.code == 2
    assert what in done.err
    assert dev.stack_file.read_bytes() == before


def test_the_values_of_the_last_run_are_taken_over(dev: Shell) -> None:
    assert "has never been updated" in dev("config", "refresh").err
    dev.ok("config", "set", "plain", "then")
    dev.ok("config", "set", "--secret", "pw", "hunter22")
    folder = dev.state / ".pulumi/history/refs/dev"
    folder.mkdir(parents=True)
    config = yaml.safe_load(dev.stack_file.read_text())["config"]
    (folder / "dev-1.history.json").write_text(json.dumps({"kind": "update", "config": config}))
    dev.ok("config", "set", "plain", "now")
    dev.ok("config", "set", "more", "now")
    changed = dev.stack_file.read_text()
    assert "backed up" in dev.ok("config", "refresh").out
    assert dev.stack_file.with_name("Pulumi.dev.yaml.bak").read_text() == changed
    assert dev.ok("config", "get", "plain").out == "then\n"
    assert dev.ok("config", "get", "pw").out == "hunter22\n"
    assert dev("config", "get", "more").code == 1
    dev.ok("config", "set", "plain", "now")
    dev.ok("config", "refresh", "--force")
    assert not dev.stack_file.with_name("Pulumi.dev.yaml.bak.bak").exists()
