"""A process for which the machine is its own: network, mounts and name can be changed, and nobody notices.

Run as a program, it looks at `this_machine` before and after each command, and prints what has changed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.lab.nodes import this_machine

_NOWHERE = Path("/no/nodes")
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


def differences(commands: Sequence[str]) -> list[dict[str, list[str]]]:
    """What `this_machine` sees of each of these commands, one after the other, in such a process."""
    line = ["unshare", "--net", "--mount", "--uts", sys.executable, "-m", __name__, *commands]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, list[str]]] = json.loads(done.stdout)
    return found


def _main(commands: Sequence[str]) -> None:
    _shell(_PREPARED)
    seen = []
    before = this_machine.seen()
    for command in commands:
        _shell(command)
        after = this_machine.seen()
        changed = this_machine.changed(before, after, _NOWHERE)
        seen.append({kind: sorted(lines) for kind, lines in changed.items()})
        before = after
    print(json.dumps(seen))


def _shell(script: str) -> None:
    subprocess.run(["sh", "-c", script], check=True, stdout=sys.stderr)


if __name__ == "__main__":
    _main(sys.argv[1:])
