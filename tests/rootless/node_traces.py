"""What of a rootless node can be seen on the machine that it runs on."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

import psutil

from tests.lab.nodes import this_machine

_ACCOUNTS = (Path("/etc/passwd"), Path("/etc/subuid"))


def traces(mark: str, port: int) -> set[str]:
    """What of a rootless node is on the machine: its cgroups and processes, and its port if it answers."""
    # Not `glob`, which a folder that goes away meanwhile ends.
    found = {
        str(Path(folder) / name)
        for folder, names, _ in os.walk("/sys/fs/cgroup")
        for name in names
        if mark in name
    }
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            groups = (Path("/proc") / str(process.pid) / "cgroup").read_text()
            if mark in groups or mark in " ".join(process.cmdline()):
                found.add(f"process {process.pid} {process.name()}")
    with socket.socket() as probe:
        answers = probe.connect_ex(("127.0.0.1", port)) == 0
    return found | ({f"port {port}"} if answers else set())


def changes(folder: Path) -> set[str]:
    """What a node in this folder could change on the machine itself."""
    settings = (
        "kernel/panic",
        "kernel/panic_on_oops",
        "vm/overcommit_memory",
        "net/ipv4/ip_forward",
    )
    return {
        *this_machine.mounts(folder),
        *(f"{name} {(Path('/proc/sys') / name).read_text()}" for name in settings),
        *(line for file in _ACCOUNTS if file.exists() for line in file.read_text().splitlines()),
        *(
            path.name
            for path in Path("/sys/class/net").iterdir()
            if not path.name.startswith("gcl")
        ),
        *(
            str(path)
            for place in ("/dev", "/run", "/var/lib", "/srv")
            for path in Path(place).iterdir()
        ),
    }
