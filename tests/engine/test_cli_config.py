"""`config` as people and scripts use it."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

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
    assert "greeting  hello" in dev.ok("config").out  # the project's default
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


def test_an_object_is_read_as_json(dev: Shell) -> None:
    text = dev.stack_file.read_text()
    dev.stack_file.write_text(f"{text}config:\n  refs:a: {{list: [{{n: 1}}, true], text: '01'}}\n")
    assert dev.ok("config", "get", "a", "--json").json == {
        "value": '{"list":[{"n":1},true],"text":"01"}',
        "objectValue": {"list": [{"n": 1}, True], "text": "01"},
        "secret": False,
    }


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


def test_another_file_can_be_named(dev: Shell) -> None:
    dev.ok("config", "set", "--config-file", "other.yaml", "size", "1")
    assert "size" not in dev.stack_file.read_text()
    assert dev.ok("config", "--config-file", "other.yaml", "get", "size").out == "1\n"
