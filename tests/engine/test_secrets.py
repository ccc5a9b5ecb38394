"""The passphrase format: checked against a state that Pulumi itself wrote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from engine.secrets import SecretsManager, new_manager, read_passphrase
from engine.usererror import UserError
from tests.fixtures.tables import beside

ROWS = beside(__file__, "rows.yaml")
# Written by Pulumi's own passphrase provider; the passphrase is "password"
# (pulumi/pulumi, pkg/secrets/passphrase/manager_test.go).
PULUMI_STATE = "v1:fozI5u6B030=:v1:F+6ZduKKd8G0/V7L:PGMFeIzwobWRKmEAzUdaQHqC5mMRIQ=="


def test_a_state_written_by_pulumi_opens_with_its_passphrase() -> None:
    manager = SecretsManager(PULUMI_STATE, lambda: "password")
    assert manager.decrypt(manager.encrypt("x")) == "x"
    assert manager.state() == {"type": "passphrase", "state": {"salt": PULUMI_STATE}}


@pytest.mark.usefixtures("quick")
@hypothesis.settings(max_examples=50, deadline=None)
@hypothesis.given(text=st.text())
def test_what_is_encrypted_comes_back(text: str) -> None:
    manager = new_manager("p")
    first, second = manager.encrypt(text), manager.encrypt(text)
    assert manager.decrypt(first) == manager.decrypt(second) == text
    assert first != second
    assert first.startswith("v1:")


@pytest.mark.parametrize(("ciphertext", "what"), ROWS["ciphertexts"])
@pytest.mark.usefixtures("quick")
def test_a_text_that_is_no_ciphertext_is_refused(ciphertext: str, what: str) -> None:
    with pytest.raises(UserError, match=what):
        new_manager("p").decrypt(ciphertext)


@pytest.mark.parametrize(
    "state", ["", "v1", "v2:AAAA:v1:AAAA:AAAA", "v1::v1:AAAA:AAAA", "AAAA:v1:AAAA"]
)
def test_a_malformed_salt_is_refused_before_anybody_is_asked(state: str) -> None:
    with pytest.raises(UserError, match="malformed"):
        SecretsManager(state, lambda: pytest.fail("asked for a passphrase"))


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Reads the passphrase without a terminal, with these variables alone."""

    def read(**variables: object) -> str:
        for name in ("PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(f"PULUMI_CONFIG_{name}", str(value))
        return read_passphrase("?", interactive=False)

    return read


def test_the_passphrase_is_that_of_the_variable_or_of_the_file(
    given: Callable[..., str], tmp_path: Path
) -> None:
    file = tmp_path / "passphrase"
    file.write_text("from a file\n")
    assert given(PASSPHRASE="", PASSPHRASE_FILE="/not/there") == ""
    assert given(PASSPHRASE_FILE=file) == "from a file"
    with pytest.raises(
        UserError, match="PULUMI_CONFIG_PASSPHRASE or PULUMI_CONFIG_PASSPHRASE_FILE"
    ):
        given()


@pytest.mark.parametrize(
    ("variable", "what"),
    [
        ("PULUMI_CONFIG_PASSPHRASE", "is that of PULUMI_CONFIG_PASSPHRASE"),
        ("PULUMI_CONFIG_PASSPHRASE_FILE", "is in {file}"),
    ],
)
def test_a_wrong_passphrase_is_told_with_where_it_came_from_before_anything_is_done(
    tmp_path, monkeypatch, variable, what
) -> None:
    file = tmp_path / "passphrase"
    file.write_text("another-one\n")
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE", raising=False)
    monkeypatch.setenv(variable, str(file) if variable.endswith("FILE") else "another-one")
    manager = SecretsManager(PULUMI_STATE, lambda: read_passphrase("?", interactive=False))
    with pytest.raises(UserError, match="incorrect passphrase") as caught:
        manager.verify()
    assert what.format(file=file) in str(caught.value)
    assert "another-one" not in str(caught.value)
    assert caught.value.exit_code == 1


@pytest.mark.parametrize("content", [b"\xff\xfe", "a folder", None])
def test_a_passphrase_file_that_cannot_be_read_is_named(given, tmp_path, content) -> None:
    file = tmp_path / "passphrase"
    if content == "a folder":
        file.mkdir()
    elif content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError, match="unable to read PULUMI_CONFIG_PASSPHRASE_FILE") as caught:
        given(PASSPHRASE_FILE=file)
    assert str(file) in str(caught.value)
