"""`whoami`, `about`, `version`, `login`, `logout`."""

from __future__ import annotations

import json
import re

import pytest

from tests.engine.shellkit import Shell, shell

__all__ = ["shell"]


def test_who_works_where_is_told(shell: Shell) -> None:
    name = shell.ok("whoami").out.strip()
    url = f"file://{shell.state}"
    assert name
    assert shell.ok("whoami", "--json").json == {"user": name, "url": url}
    assert f"Backend URL: {url}\n" in shell.ok("whoami", "-v").out


def test_the_version_is_one_that_scripts_can_read(shell: Shell) -> None:
    done = shell.ok("version")
    assert re.fullmatch(r"v\d+\.\d+\.\d+\n", done.out)
    assert done.err.startswith("embedded engine")


def test_what_is_used_is_told_and_what_is_missing_as_well(shell: Shell) -> None:
    about = shell.ok("about", "--json").json
    assert isinstance(about, dict)
    assert about["project"]["name"] == "refs"
    assert "no stack selected" in about["errors"][0]
    shell.ok("stack", "init", "dev")
    about = shell.ok("about", "--json").json
    assert isinstance(about, dict)
    assert about["currentStack"] == {
        "name": "dev",
        "fullyQualifiedName": "organization/refs/dev",
        "resources": [],
        "pendingOps": [],
    }
    assert not about["errors"]
    names = [package["name"] for package in about["dependencies"]]
    assert "pulumi" in names
    every = shell.ok("about", "--json", "--transitive").json
    assert isinstance(every, dict)
    assert len(every["dependencies"]) > len(names)
    assert "Current stack\n" in shell.ok("about").out


def test_a_login_chooses_a_folder_and_a_logout_forgets_it(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"file://{shell.state}"
    monkeypatch.delenv("PULUMI_BACKEND_URL")
    assert "no backend is chosen" in shell("stack", "ls").err
    assert "a login needs an address" in shell("login").err
    assert f"({url})" in shell.ok("login", url).out
    credentials = shell.root / "home/credentials.json"
    assert credentials.stat().st_mode & 0o777 == 0o600
    assert json.loads(credentials.read_text())["current"] == url
    shell.ok("stack", "init", "dev")
    assert f"Logged out of {url}" in shell.ok("logout").out
    assert "no backend is chosen" in shell("stack", "ls").err
    assert "not logged in" in shell("logout").err
    shell.ok("login", "--cloud-url", url)
    shell.ok("logout", "--all")
    assert json.loads(credentials.read_text()) == {}


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("login", "https://api.example.com"), "keeps state in files only"),
        (("login", "file:///not/there"), "there is no folder /not/there"),
        (("login", "--local", "file:///tmp"), "leave the address out"),
        (("logout", "--all", "file:///tmp"), "name none"),
        (("login", "--interactive"), "--interactive is not part of the embedded engine"),
    ],
)
def test_a_login_that_makes_no_sense_changes_nothing(
    shell: Shell, arguments: tuple[str, ...], what: str
) -> None:
    done = shell(*arguments)
    assert done.code == 2
    assert what in done.err
    assert not (shell.root / "home").exists()


def test_other_logins_stay(shell: Shell) -> None:
    home = shell.root / "home"
    home.mkdir()
    other = {"accessToken": "t", "lastValidatedAt": "2026-01-01T00:00:00Z"}
    (home / "credentials.json").write_text(
        json.dumps({"current": "https://x", "accounts": {"https://x": other}, "more": 1})
    )
    shell.ok("login", f"file://{shell.state}")
    shell.ok("logout", f"file://{shell.state}")
    document = json.loads((home / "credentials.json").read_text())
    assert document["accounts"] == {"https://x": other}
    assert document["more"] == 1


def test_damaged_credentials_are_not_overwritten(shell: Shell) -> None:
    home = shell.root / "home"
    home.mkdir()
    (home / "credentials.json").write_text("{")
    done = shell("login", f"file://{shell.state}")
    assert done.code == 1
    assert "could not read" in done.err
    assert (home / "credentials.json").read_text() == "{"
