"""What real nodes could change on this machine, to be compared before and after."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from lab.nodes.network import token

_WATCHED = (
    *("kernel/panic", "kernel/panic_on_oops", "kernel/hostname", "vm/overcommit_memory"),
    "net/ipv4/ip_forward",
)
_WATCHED_FOLDERS = ("kernel/keys", "net/ipv4/conf/all", "net/ipv4/conf/default", "net/bridge")
_FOLDERS = ("/var/lib", "/var/log", "/run", "/etc", "/opt", "/dev")
_OF_OTHERS = ("/mnt/", "/media/")
"""Where people mount things, at any time."""
_FILTERS = ("ip_tables_names", "ip6_tables_names")
KEPT = ("mounts", "namespaces", "settings", "filters", "folders")
"""What is the same even while real nodes run; interfaces, routes and groups come and go with them."""


def seen(nodes: Path) -> dict[str, set[str]]:
    """All of it, without what belongs to other labs and to other tests.

    `nodes`: the folder of the real nodes, whose token is in the names of all that they make.
    """
    own = token(nodes)
    settings = [Path("/proc/sys") / name for name in _WATCHED]
    for folder in _WATCHED_FOLDERS:
        settings += [path for path in (Path("/proc/sys") / folder).glob("*") if path.is_file()]
    groups = {str(path) for path in Path("/sys/fs/cgroup").glob("*")}
    groups |= {str(path) for path in Path("/sys/fs/cgroup").glob("*/gpu-clusters*")}
    found = {
        "mounts": mounts(nodes),
        "interfaces": {path.name for path in Path("/sys/class/net").iterdir()},
        "namespaces": set(_output("ip", "netns").splitlines()),
        "routes": set(_output("ip", "route", "show", "table", "all").splitlines()),
        "settings": {f"{path}={_readable(path)}" for path in settings},
        "groups": groups,
        "filters": {_readable(Path(f"/proc/net/{name}")) for name in _FILTERS},
        "folders": {str(path) for folder in _FOLDERS for path in Path(folder).iterdir()},
    }
    return {kind: {line for line in lines if _counts(line, own)} for kind, lines in found.items()}


def mounts(folder: Path) -> set[str]:
    """What is mounted on the machine, without what others mount at any time: people, and tests beside.

    Those mount below the folder of temporary files, in which `folder` may be: what is below that counts.
    """
    others = (*_OF_OTHERS, f"{_as_listed(Path(tempfile.gettempdir()).resolve())}/")
    mine = f"{_as_listed(folder.resolve())}/"
    lines = Path("/proc/self/mounts").read_text().splitlines()
    places = {line: f"{line.split()[1]}/" for line in lines}
    return {line for line, at in places.items() if at.startswith(mine) or not at.startswith(others)}


def _as_listed(path: Path) -> str:
    return str(path).replace(" ", "\\040")


def of(seen_there: dict[str, set[str]], own: str) -> list[str]:
    """What a lab has made on the machine."""
    return [line for lines in seen_there.values() for line in lines if own in line]


def _counts(line: str, own: str) -> bool:
    return own in line or ("gcl" not in line and "gpu-clusters" not in line)


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _readable(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return "unreadable"
