"""The comparison by which tests of real nodes say that the machine is as before: it sees what it should.

Run as a program, this file looks at the machine before and after each command, and prints what has changed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

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
_PLANTED = (
    ("mounts", "mount --bind /opt /opt", "/opt"),
    ("interfaces", "ip link add planted type veth peer name planted2", "planted"),
    ("namespaces", "touch /run/netns/planted", "planted"),
    ("routes", "ip route add 198.51.100.0/24 dev lo", "198.51.100.0/24 dev lo scope link"),
    ("routes", "ip -6 route add 2001:db8:7::/48 dev lo", "2001:db8:7::/48 dev lo"),
    (
        "settings",
        "echo 1 > /proc/sys/net/ipv6/conf/all/forwarding",
        "net/ipv6/conf/all/forwarding=1",
    ),
    (
        "settings",
        "echo 40000 50000 > /proc/sys/net/ipv4/ip_local_port_range",
        "net/ipv4/ip_local_port_range=40000\t50000",
    ),
    ("settings", "hostname planted", "kernel/hostname=planted"),
    ("groups", "mkdir /sys/fs/cgroup/memory/kubepods", "/sys/fs/cgroup/memory/kubepods"),
    ("groups", "mkdir /sys/fs/cgroup/memory/planted", "/sys/fs/cgroup/memory/planted"),
    (
        "groups",
        "mkdir /sys/fs/cgroup/memory/somebody/kubepods",
        "/sys/fs/cgroup/memory/somebody/kubepods",
    ),
    ("filters", "{iptables} -t nat -N PLANTED", "iptables *nat :PLANTED -"),
    ("filters", "{ip6tables} -A INPUT -j DROP", "ip6tables *filter -A INPUT -j DROP"),
    ("folders", "mkdir /opt/planted", "/opt/planted"),
)
"""Kind, a command, and what is seen of it."""


def differences(*commands: str) -> list[dict[str, list[str]]]:
    """What is seen of each command in a process whose network, mounts and name nobody else has."""
    line = ["unshare", "--net", "--mount", "--uts", sys.executable, "-m", _ITSELF, *commands]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, list[str]]] = json.loads(done.stdout)
    return found


def test_one_difference_of_each_kind_is_seen() -> None:
    with (
        this_machine.filter_command("iptables") as iptables,
        this_machine.filter_command("ip6tables") as ip6tables,
    ):
        commands = [
            command.format(iptables=iptables, ip6tables=ip6tables) for _, command, _ in _PLANTED
        ]
        found = differences(*commands)
    for (kind, command, line), seen in zip(_PLANTED, found, strict=True):
        assert set(seen) == {kind}, command
        assert any(line in one for one in seen[kind]), (command, seen)
    assert {kind for kind, _, _ in _PLANTED} == set(this_machine.seen())


def test_what_others_do_meanwhile_is_no_difference() -> None:
    with this_machine.filter_command("iptables") as iptables:
        (seen,) = differences(
            "ip link add gclother type veth peer name vethother; ip link set gclother up;"
            "ip route add 198.51.100.0/24 dev gclother;"
            f"{iptables} -t nat -N DOCKER; {iptables} -t nat -A OUTPUT -j DOCKER;"
            "cd /sys/fs/cgroup/memory;"
            "mkdir -p docker/1 user.slice/2 somebody/3 gpu-clusters-other/kubepods"
        )
    assert seen == {}


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
