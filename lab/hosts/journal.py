"""What happened on a simulated host: connections, commands, stand-ins, changes of units.

For people who want to see what was really done, and for tests that count it.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

from lab.hosts.folder import HostFolder, HostsFolder

Entry = dict[str, Any]


def write(host: HostFolder, event: str, **values: Any) -> None:
    """Append one entry.

    `event` is connection, command, stand-in, sftp, unit, fabric, gpu, redfish or harm.
    """
    line = json.dumps({"event": event, "at": round(time.time(), 3), **values}) + "\n"
    descriptor = os.open(host.journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def read(folder: Path, host: str, event: str | None = None) -> list[Entry]:
    """The entries of a host, oldest first; only those of one kind where `event` says so."""
    journal = HostsFolder(folder).host(host).journal
    if not journal.exists():
        return []
    entries: list[Entry] = [json.loads(line) for line in journal.read_text().splitlines()]
    return [entry for entry in entries if event is None or entry["event"] == event]


def commands(folder: Path, host: str) -> list[str]:
    """The command lines that came in over SSH, oldest first."""
    return [entry["command"] for entry in read(folder, host, "command")]


def clear(folder: Path, host: str) -> None:
    HostsFolder(folder).host(host).journal.unlink(missing_ok=True)
