"""docs/state-surgery.md: its programs and commands, on a simulated host and the embedded engine."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from tests.adopt.guide import DOCS, commands, follow
from tests.engine.shellkit import Shell
from tests.fixtures.hosts import Hosts

PAGE = (DOCS / "state-surgery.md").read_text()
FIRST, SECOND = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
HEAD = """\
import json
from pathlib import Path

import pulumi

from gpuclusters.host.resource import HostFile

connection = json.loads(Path("machine.json").read_text())


"""
PREVIEW = [("", "pulumi preview --expect-no-changes")]
URN = "urn:pulumi:dev::gpu-clusters::gpu-clusters:example:{}$gpu-clusters:gpu:HostFile::{}"


def declare(shell: Shell, program: str) -> None:
    (shell.folder / "__main__.py").write_text(HEAD + program)


def files(shell: Shell) -> list[str]:
    """URNs of the files that the state knows."""
    document = json.loads(shell.ok("stack", "export").out)
    return [
        r["urn"] for r in document["deployment"]["resources"] if r["type"].endswith(":HostFile")
    ]


def test_a_rename_with_aliases_is_no_change_and_the_rest_of_the_page_is_true(
    project: Shell, hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell, (host,) = project, hosts(1, platform="plain-server")
    (shell.folder / "machine.json").write_text(json.dumps(host.connection))
    monkeypatch.setenv("GPU_CLUSTERS_SSH_KEY_FILE", str(host.client_key))
    declare(shell, FIRST)
    first, *rename = commands("state-surgery.md", "Rename in a program")
    follow(shell, [first])
    assert files(shell) == [URN.format("Rack", "rack-1-notice")]
    host.forget()

    # Without the aliases it is another resource, and the old one goes.
    bare = re.sub(r"aliases=\[[^\]]*\]", "aliases=[]", SECOND)
    assert bare != SECOND
    declare(shell, bare)
    assert shell("preview", "--expect-no-changes").code != 0

    declare(shell, SECOND)
    follow(shell, rename)
    assert files(shell) == [URN.format("Cabinet", "rack-1-motd")]
    # Nothing was done on the machine; an earlier run's lock has its end.
    assert [line for line in host.commands() if "folder=/run/gpu-clusters" not in line] == []

    # Everybody was updated once: the aliases may go.
    declare(shell, bare)
    follow(shell, PREVIEW)

    export, edit, load, preview, *back = commands("state-surgery.md", "Rename in the state")
    follow(shell, [export])
    subprocess.run(["sh", "-c", edit[1]], cwd=shell.folder, check=True)
    follow(shell, [load])
    assert files(shell) == [URN.format("Cabinet", "rack-1-message")]
    (told,) = follow(shell, [preview])
    assert "rack-1-motd" in told
    assert "rack-1-message" in told
    declare(shell, bare.replace("{name}-motd", "{name}-message"))
    follow(shell, PREVIEW)
    declare(shell, bare)
    assert len(back) == 2
    follow(shell, back)

    forget, up, same = commands("state-surgery.md", "Forget, and take over elsewhere")
    follow(shell, [forget])
    assert files(shell) == []
    assert host.path("/etc/motd").read_text() == "Ours.\n"
    declare(shell, bare.replace("connection=connection,", "connection=connection, adopt=True,"))
    host.path("/etc/motd").write_text("Theirs.\n")
    refused = shell("up", "--yes", "--skip-preview")
    assert refused.code != 0
    assert "has other content from line 1 on" in refused.out + refused.err
    assert host.path("/etc/motd").read_text() == "Theirs.\n"
    host.path("/etc/motd").write_text("Ours.\n")
    follow(shell, [up, same])
    assert files(shell) == [URN.format("Cabinet", "rack-1-motd")]
    # `adopt` counts once: taking it out changes nothing.
    declare(shell, bare)
    follow(shell, [same])
