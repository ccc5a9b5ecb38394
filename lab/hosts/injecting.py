"""Faults come and go, and virtual machines take GPUs, while a host runs."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab.files import read_json, write_json
from lab.hosts import control
from lab.hosts.faults import Fault, Faults, read, write
from lab.hosts.folder import HostFolder, HostsFolder
from lab.hosts.hardware import hardware
from lab.hosts.hardware.board import board
from lab.hosts.model import HostsError


def inject(folder: Path, host: str, *faults: Fault) -> None:
    """Add faults to a host; they hold from its next connection or command on."""
    with _change(folder, host) as entry:
        write(entry, Faults([*read(entry), *faults]))


def clear(folder: Path, host: str) -> None:
    """Take all faults off a host."""
    with _change(folder, host) as entry:
        entry.faults.unlink(missing_ok=True)


class BusyError(HostsError):
    """A GPU's `/dev/vfio/<group>` is held open: who opens it as well is told EBUSY."""


def set_partition_in_use(folder: Path, host: str, partition: int, holder: str | None) -> None:
    """Say that a virtual machine `holder` runs on the GPUs of a partition; None: none does.

    What a client can see of it: the GPUs' `/dev/vfio/<group>` are held open by the process of that
    machine (`fuser`). The fabric manager itself does not know and drops the partition when told.

    Raises:
        BusyError: another virtual machine has one of the GPUs.
    """
    with _change(folder, host) as entry:
        its = board(read_json(entry.identity)["platform"])
        modules = set(its.modules(partition))
        users: dict[str, dict[str, Any]] = read_json(entry.virtual_machines) or {}
        for number, user in users.items() if holder is not None else ():
            shared = modules.intersection(its.modules(int(number)))
            if shared and user["holder"] != holder:
                raise BusyError(
                    f"{host}: GPU {min(shared)}: its VFIO group is held open by {user['holder']}:"
                    " Device or resource busy"
                )
        users.pop(str(partition), None)
        if holder is not None:
            users[str(partition)] = {"holder": holder, "pid": 4200 + partition}
        write_json(entry.virtual_machines, users)


def end_virtual_machine(folder: Path, host: str, holder: str) -> None:
    """The virtual machine is gone, and lets go of what it held; of others' nothing changes."""
    with _change(folder, host) as entry:
        users: dict[str, dict[str, Any]] = read_json(entry.virtual_machines) or {}
        kept = {number: user for number, user in users.items() if user["holder"] != holder}
        write_json(entry.virtual_machines, kept)


@contextmanager
def _change(folder: Path, host: str) -> Iterator[HostFolder]:
    entry = HostsFolder(folder).existing(host)
    lock = os.open(entry.path, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield entry
        _show(entry)
    finally:
        os.close(lock)
    # A port that has to stop or start listening needs the server's hand; all else is read on use.
    control.tell(HostsFolder(folder), f"faults {host}")


def _show(entry: HostFolder) -> None:
    """Let faults of the hardware be seen in the host's files."""
    hardware.apply(entry, board(read_json(entry.identity)["platform"]), read(entry))
