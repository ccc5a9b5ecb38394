"""The comparison by which tests of real nodes say that the machine is as before: it sees what it should.

Run as a program, this file looks at the machine before and after each command, and prints what has changed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.fixtures.tables import beside
from tests.lab.nodes import this_machine
from tests.lab.nodes.real_lab import REAL_NODE

pytestmark = REAL_NODE

_ITSELF = "tests.lab.nodes.test_this_machine"
_PREPARED = """
set -e
mount --make-rprivate /
ip link set lo up
mount -t tmpfs planted /opt
mount -t tmpfs planted /run
mkdir /run/netns
mount -t tmpfs planted /sys/fs/cgroup
mkdir -p /sys/fs/cgroup/memory/somebody
touch /sys/fs/cgroup/memory/cgroup.procs
"""
_PLANTED = beside(__file__, "planted.yaml")


def test_one_difference_of_each_kind_is_seen_and_none_that_others_make() -> None:
    """In a process whose network, mounts and name nobody else has."""
    line = ["unshare", "--net", "--mount", "--uts", sys.executable, "-m", _ITSELF]
    with (
        this_machine.filter_command("iptables") as iptables,
        this_machine.filter_command("ip6tables") as ip6tables,
    ):
        line += [text.format(iptables=iptables, ip6tables=ip6tables) for _, text, _ in _PLANTED]
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    for (kind, command, part), seen in zip(_PLANTED, json.loads(done.stdout), strict=True):
        assert set(seen) == ({kind} if kind else set()), command
        assert not kind or any(part in one for one in seen[kind]), (command, seen)
    assert {kind for kind, _, _ in _PLANTED if kind} == set(this_machine.seen())


def _main(commands: Sequence[str]) -> None:
    def shell(script: str) -> None:
        subprocess.run(["sh", "-c", script], check=True, stdout=sys.stderr)

    shell(_PREPARED)
    seen = []
    before = this_machine.seen()
    for command in commands:
        shell(command)
        after = this_machine.seen()
        changed = this_machine.changed(before, after, Path("/no/nodes"))
        seen.append({kind: sorted(lines) for kind, lines in changed.items()})
        before = after
    print(json.dumps(seen))


if __name__ == "__main__":
    _main(sys.argv[1:])
