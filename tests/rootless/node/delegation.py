"""Cgroups of an account: a group of its own in every hierarchy, as systemd gives one to `user@.service`.

Version 1 knows no delegation; giving the folder to the account was enough for runc and a kubelet.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from lab.nodes import cgroups

_GIVEN = ("cgroup.procs", "cgroup.threads", "cgroup.subtree_control", "tasks")
"""Files of a group by which processes and controllers are moved within it; limits stay root's."""


def groups(name: str, mount: Path = cgroups.MOUNT) -> tuple[Path, ...]:
    """The folders of the group in every hierarchy, there or not."""
    return tuple(root / name for root in cgroups.roots(mount))


def make(name: str, mount: Path = cgroups.MOUNT) -> None:
    """The groups; they belong to root until `give`."""
    cgroups.make(name, mount)


def give(made: Sequence[Path], owner: int) -> None:
    """Let an account make groups below and move processes; limits of the group itself stay root's."""
    for group in made:
        os.chown(group, owner, owner)
        for name in _GIVEN:
            if (group / name).exists():
                os.chown(group / name, owner, owner)


def clear(made: Sequence[Path]) -> None:
    """Remove the groups below, whose processes are gone: with a container goes its group.

    A kubelet that finds containers in groups which are none any more takes seconds for each.
    """
    for group in made:
        for folder, _, _ in os.walk(group, topdown=False):
            if Path(folder) != group:
                Path(folder).rmdir()


def places(made: Sequence[Path], mount: Path = cgroups.MOUNT) -> dict[Path, str]:
    """Where each group is to be seen by the account: in place of its hierarchy's top."""
    if cgroups.is_unified(mount):
        return dict.fromkeys(made, "/sys/fs/cgroup")
    return {group: f"/sys/fs/cgroup/{group.parent.name}" for group in made}
