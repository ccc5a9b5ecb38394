"""Stand-in for `docker`: rootless daemons by account, and the daemon that runs as root.

Sources: docker(1) (DOCKER_HOST, `info`, `version`, `run`, `ps`, exit status 125 for a daemon's refusal),
moby's `api/types/system` and its CDI driver ("unresolvable CDI devices"), NVIDIA's container toolkit
("Failed to initialize NVML: Unknown Error" after a reload of systemd).

`SUBCOMMANDS` is where other stand-ins add what builds upon a daemon, such as `compose`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from lab.hosts import accounts
from lab.hosts.call import Answer, Call
from lab.hosts.nvidia import cdi, nvidia_smi
from lab.hosts.systemd import units
from lab.hosts.usernetes import rootless
from lab.hosts.usernetes.rootless import Engine
from lab.hosts.usernetes.rootless_faults import ImageRefused, NvmlLost, RootfulContainers

ROOTFUL_SOCKET = "unix:///var/run/docker.sock"
ROOTFUL_UNIT = "docker.service"
_REFUSED = 125
_PS_FLAGS = {
    "-a": {"a"}, "--all": {"a"}, "-q": {"q"}, "--quiet": {"q"}, "-aq": {"a", "q"}, "-qa": {"a", "q"},
}  # fmt: skip
_RUN_VALUES = frozenset({"--network", "--pull", "--runtime"})
"""Options of `docker run` with a value that makes no difference here."""

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Daemon:
    socket: str
    engine: Engine | None
    """None: the one that runs as root."""
    version: str
    """Empty: it does not run."""


SubCommand = Callable[[Call, Daemon, tuple[str, ...]], Answer | Coroutine[None, None, Answer]]


def run(call: Call) -> Answer | Coroutine[None, None, Answer]:
    words = list(call.arguments)
    socket = call.environment.get("DOCKER_HOST", "")
    while words[:1] in (["-H"], ["--host"]) or (words and words[0].startswith("--host=")):
        first = words.pop(0)
        socket = first.partition("=")[2] if "=" in first else words.pop(0)
    if words[:1] in (["--version"], ["-v"]):
        client = rootless.upstream(call.machine.state["packages"].get("docker-ce-cli", ""))
        return Answer.out(f"Docker version {client}, build simulated")
    act = SUBCOMMANDS.get(words[0]) if words else None
    if act is None:
        shown = words[0] if words else ""
        return Answer.error(f"docker: '{shown}' is not a docker command on a simulated host.", 1)
    return act(call, daemon(call, socket), tuple(words[1:]))


def daemon(call: Call, socket: str) -> Daemon:
    """The daemon behind a socket; without one the context that the setup tool left, or root's."""
    socket = socket or _context(call)
    uid = socket.removeprefix("unix:///run/user/").removesuffix("/docker.sock")
    account = accounts.by_uid(call.machine, int(uid)) if uid.isdecimal() else None
    if account is not None:
        engine = rootless.engine(call.machine, account, call.faults)
        return Daemon(socket, engine, engine.version if engine.running else "")
    version = rootless.upstream(call.machine.state["packages"].get("docker-ce", ""))
    there = units.text(call.machine, ROOTFUL_UNIT) is not None
    running = there and units.is_active(call.machine, ROOTFUL_UNIT)
    return Daemon(socket, None, version if running else "")


def _context(call: Call) -> str:
    account = accounts.by_uid(call.machine, call.uid) if call.uid else None
    unit = f".config/systemd/user/{rootless.UNIT}"
    if account is not None and call.machine.path(f"{account.home}/{unit}").exists():
        return f"unix://{account.runtime}/docker.sock"
    return ROOTFUL_SOCKET


def _unreachable(to: Daemon) -> str:
    return f"Cannot connect to the Docker daemon at {to.socket}. Is the docker daemon running?"


def info(call: Call, to: Daemon, arguments: tuple[str, ...]) -> Answer:
    """`docker info [--format '{{json .}}']`."""
    if not to.version:
        if not arguments:
            return Answer.error(f"ERROR: {_unreachable(to)}", 1)
        return Answer(1, json.dumps({"ServerErrors": [_unreachable(to)]}) + "\n")
    said = described(call, to)
    if arguments in (("--format", "{{json .}}"), ("-f", "{{json .}}")):
        return Answer.out(json.dumps(said))
    if arguments in (("--format", "{{.CgroupVersion}}"), ("-f", "{{.CgroupVersion}}")):
        return Answer.out(said["CgroupVersion"])
    if arguments:
        return Answer.error("docker info: only --format '{{json .}}' on a simulated host", 1)
    return Answer.out(
        f"Server:\n Server Version: {said['ServerVersion']}\n"
        f" Runtimes: {' '.join(said['Runtimes'])}\n Default Runtime: {said['DefaultRuntime']}\n"
        " Security Options:\n" + "".join(f"  {one[5:]}\n" for one in said["SecurityOptions"])
    )


def described(call: Call, to: Daemon) -> Object:
    """What `docker info` says of a daemon that runs."""
    engine = to.engine
    security = ["name=seccomp,profile=builtin", "name=cgroupns"]
    runtimes: tuple[str, ...] = ("io.containerd.runc.v2", "runc")
    directories: tuple[str, ...] = cdi.DIRECTORIES
    devices: tuple[str, ...] = ()
    default = "runc"
    if engine is None:
        containers = list(_rootful(call))
        up = len(containers)
    else:
        runtimes, default = engine.runtimes, engine.default_runtime
        containers = list(engine.containers)
        up = sum(bool(one.get("running")) for one in engine.containers.values())
        directories, devices = engine.cdi_directories, engine.cdi_devices
        security += ["name=rootless"] if engine.is_rootless else []
    return {
        "ServerVersion": to.version,
        "Containers": len(containers),
        "ContainersRunning": up,
        "CgroupDriver": "systemd",
        "CgroupVersion": "2",
        "Runtimes": {name: {"path": name} for name in runtimes},
        "DefaultRuntime": default,
        "SecurityOptions": security,
        "CDISpecDirs": list(directories),
        "DiscoveredDevices": [{"Source": "cdi", "ID": name} for name in devices],
        "Name": call.machine.name,
    }


def version(call: Call, to: Daemon, arguments: tuple[str, ...]) -> Answer:
    """`docker version [--format '{{.Server.Version}}']`."""
    if not to.version:
        return Answer.error(_unreachable(to), 1)
    if arguments in (("--format", "{{.Server.Version}}"), ("-f", "{{.Server.Version}}")):
        return Answer.out(to.version)
    client = rootless.upstream(call.machine.state["packages"].get("docker-ce-cli", ""))
    return Answer.out(f"Client:\n Version: {client}\nServer:\n Version: {to.version}")


def ps(call: Call, to: Daemon, arguments: tuple[str, ...]) -> Answer:
    """`docker ps [-a] [-q]`: the containers that run, or all of them."""
    flags = set[str]()
    for word in arguments:
        if word not in _PS_FLAGS:
            return _refused("ps", word)
        flags |= _PS_FLAGS[word]
    if not to.version:
        return Answer.error(_unreachable(to), 1)
    if to.engine is None:
        names = list(_rootful(call))
    else:
        kept = to.engine.containers.items()
        names = [name for name, one in kept if "a" in flags or one.get("running")]
    lines = names if "q" in flags else ["CONTAINER ID   IMAGE   NAMES", *names]
    return Answer.out("\n".join(lines))


def _refused(command: str, word: str) -> Answer:
    return Answer.error(
        f"docker {command}: {word.partition('=')[0]} is not known on a simulated host", _REFUSED
    )


def _rootful(call: Call) -> tuple[str, ...]:
    fault = call.faults.first(RootfulContainers)
    return fault.names if fault else ()


def run_container(call: Call, to: Daemon, arguments: tuple[str, ...]) -> Answer:
    """`docker run [--device NAME…] [--entrypoint PROGRAM] IMAGE [COMMAND…]`: what a container sees."""
    wanted: list[str] = []
    program: list[str] = []
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--device" and rest:
            wanted.append(rest.pop(0))
        elif word.startswith("--device="):
            wanted.append(word.partition("=")[2])
        elif word == "--entrypoint" and rest:
            program = [rest.pop(0)]
        elif word in _RUN_VALUES and rest:
            rest.pop(0)
        elif word != "--rm" and word.partition("=")[0] not in _RUN_VALUES:
            return _refused("run", word)
    if not rest:
        return Answer.error("docker: 'docker run' requires at least 1 argument", 1)
    if not to.version:
        return Answer.error(f"docker: {_unreachable(to)}", _REFUSED)
    if call.faults.first(ImageRefused):
        return Answer.error(
            f'docker: Error response from daemon: failed to resolve reference "{rest[0]}": dial tcp: i/o '
            "timeout",
            _REFUSED,
        )
    known = to.engine.cdi_devices if to.engine else ()
    missing = [name for name in wanted if name not in known]
    if missing:
        text = f"CDI device injection failed: unresolvable CDI devices {', '.join(missing)}"
        return Answer.error(f"docker: Error response from daemon: {text}", _REFUSED)
    command = [*program, *rest[1:]]
    call.machine.note("container", image=rest[0], devices=wanted, command=command)
    if command not in (["nvidia-smi", "-L"], ["nvidia-smi", "--list-gpus"]):
        return Answer()
    if not wanted:
        text = 'exec: "nvidia-smi": executable file not found in $PATH'
        return Answer.error(f"docker: Error response from daemon: {text}", 127)
    if call.faults.first(NvmlLost):
        return Answer(255, "Failed to initialize NVML: Unknown Error\n")
    inside = Call(call.machine, "nvidia-smi", ("-L",), call.uid, "/", call.faults, {}, call.host)
    return nvidia_smi.run(inside)


SUBCOMMANDS: dict[str, SubCommand] = {
    "info": info,
    "ps": ps,
    "run": run_container,
    "version": version,
}
