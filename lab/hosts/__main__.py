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

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from lab.hosts import process
from lab.hosts.folder import HostsFolder
from lab.hosts.model import HostEndpoint, HostsError, HostSpec

_NEEDS = {
    "exec": "exec needs a host and a command",
    "fault": "fault needs a host and a kind; `none` takes all faults away",
    "in-use": "in-use needs a host and the number of a partition",
    "reinstall": "reinstall needs a host",
    "repair": "repair needs a host and GPUs such as 1,3",
    "tenant": "tenant needs a host, GPUs such as 1,3 and the tenant's name",
}


def _run(verb: str, folder: Path, words: list[str]) -> int:
    match verb, words:
        case "serve", []:
            from lab.hosts.server import serve

            serve(HostsFolder(folder))
        case "start", names:
            _show(process.start(folder, [HostSpec(name) for name in names], print))
        case "stop", []:
            process.stop(folder)
        case "status", []:
            found = process.status(folder)
            print(found.detail + (f" (process {found.pid})" if found.pid else ""))
            _show(found.hosts)
            return 0 if found.running else 3
        case "exec", [host, word, *more]:
            from lab.hosts.ssh.remote import execute

            # One word is a line for the remote shell, several are one command: as with ssh, but quoted.
            return execute(folder, host, shlex.join([word, *more]) if more else word)
        case "reinstall", [host]:
            print(process.reinstall(folder, host).host_key)
        case "fault" | "in-use", [host, what, *more]:
            _inject(verb, folder, host, what, more)
        case "tenant", [host, gpus, name, *more]:
            from lab.hosts.hardware import tenant

            knobs = _pairs(more)
            firmware = knobs.pop("firmware", None)
            modules = _modules(gpus)
            for harm in tenant.use(folder, host, modules, name, knobs=knobs, firmware=firmware):
                print(harm)
        case "repair", [host, gpus]:
            from lab.hosts.hardware import tenant

            tenant.repair(folder, host, _modules(gpus))
        case _ if verb in _NEEDS:
            raise HostsError(_NEEDS[verb])
        case _:
            sys.stderr.write(__doc__ or "")
            return 2
    return 0


def _inject(verb: str, folder: Path, host: str, what: str, more: list[str]) -> None:
    import yaml

    from lab.hosts import faults, injecting

    if verb == "in-use":
        if not what.isdecimal():
            raise HostsError(_NEEDS[verb])
        injecting.set_partition_in_use(folder, host, int(what), more[0] if more else None)
    elif what == "none":
        injecting.clear(folder, host)
    else:
        values = {key: yaml.safe_load(value) for key, value in _pairs(more).items()}
        injecting.inject(folder, host, faults.parse(what, values))


def _show(endpoints: Mapping[str, HostEndpoint]) -> None:
    for name, endpoint in endpoints.items():
        print(f"{name}  {endpoint.user}@{endpoint.address}:{endpoint.port}")


def _pairs(words: list[str]) -> dict[str, str]:
    return {key: value for key, _, value in (word.partition("=") for word in words)}


def _modules(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.isdecimal() for part in parts):
        raise HostsError(f"{text!r} names no GPUs; write module numbers such as 1,3")
    return [int(part) for part in parts]


def main(arguments: list[str]) -> int:
    """Run one command; returns its exit code."""
    if len(arguments) < len(("COMMAND", "FOLDER")):
        sys.stderr.write(__doc__ or "")
        return 2
    try:
        return _run(arguments[0], Path(arguments[1]), arguments[2:])
    except HostsError as error:
        sys.stderr.write(f"{error}\n")
        return 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
