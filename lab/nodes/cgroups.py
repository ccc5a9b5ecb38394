"""A cgroup root for every node, so that kubelets on one machine do not take each other's pods for leftovers.

Version 1 has one hierarchy per controller, version 2 a single one. A hybrid machine, whose controllers are
those of version 1, counts as version 1, as a kubelet sees it.
"""

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
NEEDED = ("cpu", "cpuset", "memory", "pids")
"""Controllers without which a kubelet does not start."""
_CONTROLLERS_FILE = "cgroup.controllers"
_EMPTY_SECONDS = 60.0
_POLL_SECONDS = 0.05
_INHERITED = ("cpuset.cpus", "cpuset.mems")
"""Empty in a new group of version 1, and no process may enter a group where they are."""

_PROCESSOR_TIME = {"cpu.shares": "16384", "cpu.weight": "1600"}
"""Of a node's group, by the file of each version. By default all pods of a node together are given as much as
one process of this machine: beside a build, programs in pods would not start before their probes give up."""


def is_unified(mount: Path = MOUNT) -> bool:
    """Whether the machine has version 2 alone."""
    return (mount / _CONTROLLERS_FILE).exists()


def missing(mount: Path = MOUNT) -> tuple[str, ...]:
    """Controllers that a kubelet needs and that are not there."""
    if is_unified(mount):
        there = (mount / _CONTROLLERS_FILE).read_text().split()
        return tuple(name for name in NEEDED if name not in there)
    return tuple(name for name in NEEDED if not (mount / name / "tasks").exists())


def writable(mount: Path = MOUNT) -> bool:
    return all(os.access(root, os.W_OK) for root in roots(mount)) and not _read_only(mount)


def roots(mount: Path = MOUNT) -> list[Path]:
    """The top of every hierarchy."""
    if is_unified(mount):
        return [mount]
    # Where two controllers share a hierarchy, the names are links to one folder. A hybrid machine has one of
    # version 2 beside them, in which runc makes groups too.
    found = {path.resolve() for path in mount.iterdir() if (path / "cgroup.procs").exists()}
    return sorted(found)


def make(name: str, mount: Path = MOUNT) -> None:
    """A group of this name in every hierarchy; one that is there is used."""
    if is_unified(mount):
        _delegate(mount)
    for root in roots(mount):
        group = root / name
        group.mkdir(exist_ok=True)
        for file in _INHERITED:
            if not is_unified(mount) and (group / file).exists():
                (group / file).write_text((root / file).read_text())
        for file, amount in _PROCESSOR_TIME.items():
            if (group / file).exists():
                (group / file).write_text(amount)
        if is_unified(mount):
            _delegate(group)


def remove(name: str, mount: Path = MOUNT) -> list[str]:
    """Remove the group with all below it, as soon as its processes are gone; gives what could not be."""
    left = []
    for root in roots(mount):
        group = root / name
        deadline = time.monotonic() + _EMPTY_SECONDS
        while group.exists() and not _removed(group):
            if time.monotonic() >= deadline:
                left.append(str(group))
                break
            time.sleep(_POLL_SECONDS)
    return left


def processes(name: str, mount: Path = MOUNT) -> set[int]:
    """Processes anywhere below the group."""
    found: set[int] = set()
    for root in roots(mount):
        for file in _below(root / name):
            with contextlib.suppress(OSError):
                found.update(map(int, (file / "cgroup.procs").read_text().split()))
    return found


def _delegate(group: Path) -> None:
    control = group / "cgroup.subtree_control"
    there = (group / _CONTROLLERS_FILE).read_text().split()
    wanted = [n for n in there if n not in control.read_text().split()]
    for controller in wanted:
        # One at a time: a controller that cannot be given, such as cpu beside real-time processes, must
        # not take the others with it; the kubelet names the one that it misses.
        with contextlib.suppress(OSError):
            control.write_text(f"+{controller}")


def _removed(group: Path) -> bool:
    # A group with groups in it cannot be removed: the deepest first.
    for path in sorted(_below(group), key=lambda below: len(below.parts), reverse=True):
        with contextlib.suppress(OSError):
            path.rmdir()
    return not group.exists()


def _below(group: Path) -> Iterable[Path]:
    if not group.exists():
        return []
    return [Path(folder) for folder, _, _ in os.walk(group)]


def _read_only(mount: Path) -> bool:
    return any(os.statvfs(root).f_flag & os.ST_RDONLY for root in roots(mount))
