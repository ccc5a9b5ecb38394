"""What real nodes could change on this machine, to be compared before and after.

Other labs, other tests and the machine itself go on meanwhile. What is theirs is named here, with the reason;
everything else counts.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lab import tools
from lab.nodes import cgroups
from lab.nodes.network import token
from tests.fixtures.tables import beside

Seen = dict[str, set[str]]
"""Lines by the kind of thing."""

_OF_OTHERS = beside(__file__, "this_machine.yaml")
_SETTINGS = Path("/proc/sys")
_BY_ITSELF = re.compile("|".join(one for rows in _OF_OTHERS["settings"].values() for one in rows))
_FOLDERS = ("/var/lib", "/var/log", "/run", "/etc", "/opt", "/dev")
_OF_CONTAINERS = re.compile(_OF_OTHERS["containers"], re.IGNORECASE)
_GROUPS_OF_PODS = ("kubepods", "k8s.io", *_OF_OTHERS["labs"])
"""What a kubelet and containerd make for pods, wherever they take the top to be; and labs."""
_COUNTED = re.compile(r" \[\d+:\d+\]$")
_NO_RULE = re.compile(r"#.*|COMMIT|\*.*|:\w+ ACCEPT \[\d+:\d+\]")
"""What an empty table consists of: one is made when somebody first looks at it."""
_EXPIRES = re.compile(r" expires -?\d+sec")


def seen(nodes: Path | None = None) -> Seen:
    """All of it, without what belongs to other labs and to other tests.

    `nodes`: the folder of real nodes, whose token is in the names of all that they make. None while there
    are none.
    """
    own = token(nodes) if nodes else ""
    found = {
        "mounts": mounts(nodes),
        "interfaces": _no_containers(name for _, name in socket.if_nameindex()),
        "namespaces": set(_output("ip", "netns").splitlines()),
        "routes": _no_containers(
            _EXPIRES.sub("", line).strip()
            for line in _output("ip", "route", "show", "table", "all").splitlines()
        ),
        "settings": settings(),
        "groups": groups(),
        "filters": filters(),
        "folders": {str(path) for folder in _FOLDERS for path in Path(folder).iterdir()},
    }
    return {kind: {line for line in lines if _counts(line, own)} for kind, lines in found.items()}


def changed(before: Seen, after: Seen, nodes: Path) -> Seen:
    """What is only in one of the two, by kind, without what is these nodes' own and comes and goes with them.

    A setting counts with its value, and only where it was there both times: those of an interface come with
    it, and others with a module that the kernel loads when somebody first uses it.
    """
    own = token(nodes)
    both = {_name(line) for line in before["settings"]} & {
        _name(line) for line in after["settings"]
    }
    differences: Seen = {}
    for kind, lines in before.items():
        found = {line for line in lines ^ after[kind] if own not in line}
        if kind == "settings":
            found = {line for line in found if _name(line) in both}
        if found:
            differences[kind] = found
    return differences


def of(seen_there: Seen, own: str) -> list[str]:
    """What a lab has made on the machine."""
    return [line for lines in seen_there.values() for line in lines if own in line]


def mounts(folder: Path | None) -> set[str]:
    """What is mounted on the machine, without what others mount at any time: people, and tests beside.

    With how often it is: the same can be mounted over itself.

    Tests mount below the folder of temporary files, in which `folder` may be: what is below that counts.
    """
    others = (*_OF_OTHERS["mounts"], f"{Path(tempfile.gettempdir()).resolve()}/")
    mine = f"{folder.resolve()}/" if folder else "-"
    found = set()
    for line, times in Counter(Path("/proc/self/mounts").read_text().splitlines()).items():
        at = f"{line.split()[1]}/"
        if at.startswith(mine) or not at.startswith(others):
            found.add(f"{line}, {times} times")
    return found


def settings() -> set[str]:
    """Every setting of the kernel with its value, as `net/ipv4/ip_forward=0`."""
    found = set()
    # Not `glob`, which a folder that goes away meanwhile ends.
    for folder, _, files in os.walk(_SETTINGS):
        for file in files:
            path = Path(folder, file)
            name = str(path.relative_to(_SETTINGS))
            if not _BY_ITSELF.fullmatch(name):
                found.add(f"{name}={_readable(path)}")
    return found


def groups(mount: Path = cgroups.MOUNT) -> set[str]:
    """Groups at the top of every hierarchy, and those of pods anywhere.

    What is below others is the business of whoever made them: systemd's units, sessions, containers.
    """
    found = set()
    for root in cgroups.roots(mount):
        for folder, names, _ in os.walk(root):
            for name in list(names):
                path = Path(folder, name)
                if name.startswith(tuple(_OF_OTHERS["groups"])):
                    names.remove(name)
                elif name.startswith(_GROUPS_OF_PODS):
                    found.add(str(path))
                    names.remove(name)
                elif path.parent == root:
                    found.add(str(path))
    return found


def filters() -> set[str]:
    """Chains and rules of both families, without Docker's, and without what was counted."""
    # Those of the older kind, which the newer program does not list.
    older = ("ip_tables_names", "ip6_tables_names")
    found = {_readable(Path(f"/proc/net/{name}")) for name in older}
    for family in ("iptables", "ip6tables"):
        with filter_command(f"{family}-save") as command:
            table = ""
            for line in _output(str(command)).splitlines():
                if line.startswith("*"):
                    table = line
                if not _NO_RULE.fullmatch(line):
                    found.add(f"{family} {table} {_COUNTED.sub('', line)}")
    return _no_containers(found)


@contextmanager
def filter_command(name: str) -> Iterator[Path]:
    """The program of that name which kube-proxy calls: the machine's, or that of the Debian package."""
    program = tools.ensure(["iptables"])["iptables"]
    if not (program.parent / "origin").exists():
        yield program.with_name(name)
        return
    with tempfile.TemporaryDirectory(prefix="gpu-clusters-") as folder:
        link = Path(folder, name)
        link.symlink_to(program)
        yield link


def _counts(line: str, own: str) -> bool:
    if own and own in line:
        return True
    return not any(name in line for name in _OF_OTHERS["labs"])


def _no_containers(lines: Iterable[str]) -> set[str]:
    return {line for line in lines if not _OF_CONTAINERS.search(line)}


def _name(setting: str) -> str:
    return setting.partition("=")[0]


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _readable(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return "unreadable"
