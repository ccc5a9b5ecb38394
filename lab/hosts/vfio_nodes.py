"""The nodes in /dev/vfio of a simulated host."""

from __future__ import annotations

import os
import stat
from collections.abc import Set

from lab.hosts.machine import Machine

_MAJOR, _CONTROL = 243, (10, 196)


def show(machine: Machine, bound: Set[int] | None, device_nodes: bool) -> None:  # noqa: FBT001
    """Have a node for each of these IOMMU groups, and the control node; None: without VFIO there is none.

    `device_nodes`: real character devices can be made; otherwise plain files stand for them.
    """
    wanted: dict[str, tuple[int, int]] = {}
    if bound is not None:
        groups = sorted({device.iommu_group for device in machine.board.devices})
        wanted = {str(group): (_MAJOR, groups.index(group)) for group in bound}
        wanted["vfio"] = _CONTROL
    folder = machine.path("/dev/vfio")
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if not path.is_dir() and path.name not in wanted:
            path.unlink()
    for name, (major, minor) in wanted.items():
        path, mode = folder / name, 0o666 if name == "vfio" else 0o600
        if path.exists():
            continue
        if device_nodes:
            os.mknod(path, stat.S_IFCHR | mode, os.makedev(major, minor))
        else:
            path.touch()
        path.chmod(mode)
