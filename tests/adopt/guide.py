"""Commands of a page, run as they stand there: on simulated hosts, the embedded engine as `pulumi`."""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from unittest.mock import patch

from tests.engine.shellkit import Shell
from tests.fixtures.hosts import SimulatedHost

DOCS = Path(__file__).resolve().parents[2] / "docs"
_PROMPT = re.compile(r"^(?:([a-z0-9-]+))?\$ (.*)$")


def commands(page: str, heading: str) -> Iterator[tuple[str, str]]:
    """Where and what: the command lines of a section's `console` blocks, in order; `` is this computer."""
    text = (DOCS / page).read_text(encoding="utf-8")
    section = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    for block in re.findall(r"```console\n(.*?)```", section, re.DOTALL):
        for line in block.splitlines():
            found = _PROMPT.match(line)
            assert found is not None, f"{page}: {line!r} is no command line"
            yield found[1] or "", found[2]


def run(
    shell: Shell, hosts: Mapping[str, SimulatedHost], where: str, command: str
) -> tuple[int, str]:
    """Run one of them: its exit code, and what it said.

    Of the shell's language just a pipe is understood: from a command on a host, by ssh, into `pulumi`.
    """
    if where:
        done = hosts[where].run(command)
        return done.returncode, done.stdout + done.stderr
    left, _, right = command.partition(" | ")
    words = shlex.split(left)
    stdin = ""
    if words[0] == "ssh":
        done = hosts[words[1]].run(shlex.join(words[2:]))
        assert done.returncode == 0, done.stderr
        stdin, words = done.stdout, shlex.split(right)
    assert words[0] == "pulumi", command
    with patch("sys.stdin", io.StringIO(stdin)):
        ended = shell(*words[1:])
    return ended.code, ended.out + ended.err


def follow(
    shell: Shell, lines: Iterable[tuple[str, str]], hosts: Mapping[str, SimulatedHost] = {}
) -> list[str]:
    """Run all of these, of which each must succeed. Gives what they said."""
    said = []
    for where, command in lines:
        code, text = run(shell, hosts, where, command)
        assert code == 0, f"{where}$ {command}\n{text}"
        said.append(text)
    return said
