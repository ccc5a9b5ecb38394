"""`python -m lab.hosts`: the simulated hosts' own command line.

serve FOLDER                      serve in the foreground (what `start` runs)
start FOLDER HOST…                serve exactly these hosts in the background
stop FOLDER
status FOLDER
exec FOLDER HOST COMMAND…         run a command over SSH
fault FOLDER HOST KIND [KEY=VALUE…]   inject a fault; kind `none` takes all away
in-use FOLDER HOST PARTITION [HOLDER] a virtual machine runs on a partition; no holder: none
tenant FOLDER HOST GPU[,GPU…] TENANT [KNOB=VALUE…] [firmware=VERSION]
                                  a tenant used GPUs (module numbers), left data, changed knobs
reinstall FOLDER HOST             another operating system on the same machine: bare, with another host key
repair FOLDER HOST GPU[,GPU…]     a technician makes GPUs as new

Modules that only some of these need are imported where they are needed: `exec` is called often, and
importing all of them takes longer than a command.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from lab.hosts import process
from lab.hosts.folder import HostsFolder
from lab.hosts.model import HostsError, HostSpec


def _serve(folder: Path, _: list[str]) -> int:
    from lab.hosts.server import serve

    serve(HostsFolder(folder))
    return 0


def _start(folder: Path, names: list[str]) -> int:
    endpoints = process.start(folder, [HostSpec(name) for name in names], print)
    for name, endpoint in endpoints.items():
        print(f"{name}  {endpoint.user}@{endpoint.address}:{endpoint.port}")
    return 0


def _stop(folder: Path, _: list[str]) -> int:
    process.stop(folder)
    return 0


def _status(folder: Path, _: list[str]) -> int:
    found = process.status(folder)
    print(found.detail + (f" (process {found.pid})" if found.pid else ""))
    for name, endpoint in found.hosts.items():
        print(f"{name}  {endpoint.user}@{endpoint.address}:{endpoint.port}")
    return 0 if found.running else 3


def _exec(folder: Path, arguments: list[str]) -> int:
    from lab.hosts.ssh.remote import execute

    if len(arguments) < len(("HOST", "COMMAND")):
        raise HostsError("exec needs a host and a command")
    host, *command = arguments
    # One word is a line for the remote shell, several are one command: as with ssh, but quoted.
    return execute(folder, host, command[0] if len(command) == 1 else shlex.join(command))


def _reinstall(folder: Path, arguments: list[str]) -> int:
    if len(arguments) != len(("HOST",)):
        raise HostsError("reinstall needs a host")
    print(process.reinstall(folder, arguments[0]).host_key)
    return 0


def _fault(folder: Path, arguments: list[str]) -> int:
    import yaml

    from lab.hosts import faults

    if len(arguments) < len(("HOST", "KIND")):
        raise HostsError("fault needs a host and a kind; `none` takes all faults away")
    host, kind, *pairs = arguments
    if kind == "none":
        faults.clear(folder, host)
        return 0
    values = {key: yaml.safe_load(value) for key, _, value in (p.partition("=") for p in pairs)}
    faults.inject(folder, host, faults.parse(kind, values))
    return 0


def _in_use(folder: Path, arguments: list[str]) -> int:
    from lab.hosts import faults

    host, partition, *holder = [*arguments, "", ""][: max(2, len(arguments))]
    if not partition.isdecimal():
        raise HostsError("in-use needs a host and the number of a partition")
    faults.set_partition_in_use(folder, host, int(partition), holder[0] if holder else None)
    return 0


def _tenant(folder: Path, arguments: list[str]) -> int:
    from lab.hosts.hardware import tenant

    if len(arguments) < len(("HOST", "GPUS", "TENANT")):
        raise HostsError("tenant needs a host, GPUs such as 1,3 and the tenant's name")
    host, modules, name, *pairs = arguments
    knobs = {key: value for key, _, value in (pair.partition("=") for pair in pairs)}
    firmware = knobs.pop("firmware", None)
    found = tenant.use(folder, host, _modules(modules), name, knobs=knobs, firmware=firmware)
    for what in found:
        print(what)
    return 0


def _repair(folder: Path, arguments: list[str]) -> int:
    from lab.hosts.hardware import tenant

    if len(arguments) != len(("HOST", "GPUS")):
        raise HostsError("repair needs a host and GPUs such as 1,3")
    tenant.repair(folder, arguments[0], _modules(arguments[1]))
    return 0


def _modules(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.isdecimal() for part in parts):
        raise HostsError(f"{text!r} names no GPUs; write module numbers such as 1,3")
    return [int(part) for part in parts]


_COMMANDS: dict[str, Callable[[Path, list[str]], int]] = {
    "exec": _exec,
    "fault": _fault,
    "in-use": _in_use,
    "reinstall": _reinstall,
    "repair": _repair,
    "serve": _serve,
    "start": _start,
    "status": _status,
    "stop": _stop,
    "tenant": _tenant,
}


def main(arguments: list[str]) -> int:
    """Run one command; returns its exit code."""
    if len(arguments) < len(("COMMAND", "FOLDER")) or arguments[0] not in _COMMANDS:
        sys.stderr.write(__doc__ or "")
        return 2
    try:
        return _COMMANDS[arguments[0]](Path(arguments[1]), arguments[2:])
    except HostsError as error:
        sys.stderr.write(f"{error}\n")
        return 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
