"""Rootless Docker of an account on a simulated host: whether it runs, what it sees, what runs in it.

Sources: moby's `contrib/dockerd-rootless.sh` and `dockerd-rootless-setuptool.sh` (rootlesskit with
`--copy-up=/etc --copy-up=/run`, so that a CDI directory which is made later stays invisible), its
`api/types/system` (`CDISpecDirs`, `DiscoveredDevices`), rootlesskit's messages, and systemd's user@.service.

    engine = rootless_engine(folder_of_all_hosts / "gpu-01", "operator")
    engine.running, engine.cdi_devices, engine.default_runtime
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lab.files import read_json
from lab.hosts import accounts
from lab.hosts.accounts import Account
from lab.hosts.faults import (
    AccountOfDirectory,
    CdiInvisible,
    DaemonConfigurationIgnored,
    EngineIsRootful,
    Faults,
    Slirp4netnsFails,
    SubordinateIdsLost,
    UserNamespacesRestricted,
)
from lab.hosts.faults import read as faults_of
from lab.hosts.folder import HostFolder
from lab.hosts.hardware.board import board
from lab.hosts.machine import Machine
from lab.hosts.model import HostsError
from lab.hosts.nvidia import cdi

UNIT = "docker.service"
CONFIGURATION = ".config/docker/daemon.json"
_DROP_INS = f".config/systemd/user/{UNIT}.d"
_LEAST_IDS = 65_536
_STATE = "rootless"
_WITH_OWN_CHOICE = (29, 5)
"""From here on dockerd-rootless.sh takes pasta, vpnkit or gvisor where slirp4netns is missing."""

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Engine:
    """The rootless daemon of one account at this moment."""

    account: Account
    running: bool
    version: str = ""
    """Of the daemon that runs, or that ran last."""
    is_rootless: bool = True
    runtimes: tuple[str, ...] = ("io.containerd.runc.v2", "runc")
    default_runtime: str = "runc"
    cdi_directories: tuple[str, ...] = ()
    """Those that were there when it started: it sees no other."""
    cdi_devices: tuple[str, ...] = ()
    """Qualified names that a container can ask for."""
    controllers: tuple[str, ...] = ()
    """What systemd delegates to the account."""
    containers: Mapping[str, Object] = field(default_factory=dict)
    starts: int = 0
    """How often the daemon was started."""

    @property
    def socket(self) -> str:
        return f"unix://{self.account.runtime}/docker.sock"


def rootless_engine(where: Machine | Path, account: str) -> Engine:
    """The rootless daemon of an account.

    Args:
        where: the machine, or the folder of one host (`<hosts>/<host>`).
        account: its name.

    Raises:
        HostsError: there is no such host or account.
    """
    machine = where if isinstance(where, Machine) else _machine(where)
    known = accounts.accounts(machine).get(account)
    if known is None:
        raise HostsError(f"{machine.name} has no account {account!r}")
    return engine(machine, known, faults_of(machine.folder))


def _machine(folder: Path) -> Machine:
    there = HostFolder(folder.resolve())
    identity = read_json(there.identity)
    if identity is None:
        raise HostsError(f"there is no simulated host in {folder}; start it first")
    return Machine(there, board(identity["platform"]))


def state(machine: Machine, account: Account) -> Object:
    """What is remembered of an account's daemon; its containers under `containers`."""
    known: Object = machine.state.setdefault(_STATE, {})
    mine: Object = known.setdefault(account.name, {"running": False, "containers": {}, "starts": 0})
    return mine


def is_running(machine: Machine, account: Account) -> bool:
    """Whether the daemon runs, which it does only while the account's systemd does."""
    return bool(state(machine, account)["running"]) and accounts.is_up(machine, account)


def engine(machine: Machine, account: Account, faults: Faults) -> Engine:
    mine = state(machine, account)
    running = is_running(machine, account)
    sees = tuple(mine.get("sees", ()))
    if faults.first(CdiInvisible):
        sees = ()
    settings: Object = mine.get("settings", {})
    if faults.first(DaemonConfigurationIgnored):
        settings = {}
    runtimes = ("io.containerd.runc.v2", "runc", *settings.get("runtimes", {}))
    enabled = settings.get("features", {}).get("cdi", _number(mine.get("version", "")) >= (28, 2))
    devices = cdi.devices(machine, sees)[0] if running and enabled else []
    return Engine(
        account=account,
        running=running,
        version=mine.get("version", ""),
        is_rootless=faults.first(EngineIsRootful) is None,
        runtimes=tuple(sorted(runtimes)),
        default_runtime=settings.get("default-runtime", "runc"),
        cdi_directories=sees,
        cdi_devices=tuple(devices),
        controllers=accounts.controllers(machine, account),
        containers=mine["containers"] if running else {},
        starts=mine["starts"],
    )


def start(machine: Machine, account: Account, faults: Faults) -> str | None:
    """Start the daemon; why it does not come up, as its journal says it, or None."""
    mine = state(machine, account)
    problem = _problem(machine, account, faults)
    mine["running"] = problem is None
    if problem is not None:
        return problem
    mine["version"] = upstream(machine.packages.get("docker-ce", ""))
    mine["settings"] = json.loads(_settings(machine, account) or "{}")
    mine["sees"] = [one for one in cdi.DIRECTORIES if machine.path(one).is_dir()]
    mine["starts"] += 1
    for container in mine["containers"].values():
        again = container.get("restart") in {"always", "unless-stopped"}
        container |= {"running": again, "started": datetime.now(UTC).isoformat()}
    machine.path(account.runtime).joinpath("docker.sock").touch()
    machine.note("rootless", action="start", account=account.name, sees=mine["sees"])
    return None


def stop(machine: Machine, account: Account) -> None:
    """Stop the daemon; its containers stop with it."""
    mine = state(machine, account)
    if mine["running"]:
        machine.note("rootless", action="stop", account=account.name)
    mine["running"] = False
    for container in mine["containers"].values():
        container["running"] = False
    machine.path(account.runtime).joinpath("docker.sock").unlink(missing_ok=True)


def namespace_problem(machine: Machine, account: Account, faults: Faults) -> str | None:
    """Why `rootlesskit` cannot make a user namespace for the account, in its words."""
    if not machine.has_package("uidmap"):
        return '[rootlesskit:parent] error: exec: "newuidmap": executable file not found in $PATH'
    if not has_ids(machine, account, faults):
        return (
            "[rootlesskit:parent] error: failed to setup UID/GID map: failed to compute uid/gid map: No "
            f'subuid ranges found for user {account.uid} ("{account.name}")'
        )
    if faults.first(UserNamespacesRestricted):
        return (
            "[rootlesskit:parent] error: failed to start the child: fork/exec /proc/self/exe: permission "
            "denied"
        )
    return None


def has_ids(machine: Machine, account: Account, faults: Faults) -> bool:
    """Whether the account has enough subordinate ids of both kinds."""
    if faults.first(SubordinateIdsLost) or faults.first(AccountOfDirectory):
        return False
    return all(
        sum(count for who, _, count in accounts.ranges(machine, path) if who == account.name)
        >= _LEAST_IDS
        for path in (accounts.SUBUID, accounts.SUBGID)
    )


def _problem(machine: Machine, account: Account, faults: Faults) -> str | None:
    if not machine.has_package("docker-ce-rootless-extras"):
        return "/usr/bin/dockerd-rootless.sh: No such file or directory"
    if machine.path(account.runtime).joinpath("containerd-rootless").exists():
        return "dockerd-rootless.sh conflicts with containerd-rootless.sh"
    problem = namespace_problem(machine, account, faults)
    if problem is not None:
        return problem
    problem = _network_problem(machine, account, faults)
    if problem is not None:
        return problem
    try:
        json.loads(_settings(machine, account) or "{}")
    except ValueError as error:
        path = f"{account.home}/{CONFIGURATION}"
        return f"unable to configure the Docker daemon with file {path}: {error}"
    return None


def _network_problem(machine: Machine, account: Account, faults: Faults) -> str | None:
    version = _number(upstream(machine.packages.get("docker-ce", "")))
    asked = "DOCKERD_ROOTLESS_ROOTLESSKIT_NET=slirp4netns" in drop_in_text(machine, account)
    if machine.has_package("slirp4netns"):
        if faults.first(Slirp4netnsFails) and (asked or version < _WITH_OWN_CHOICE):
            return "[rootlesskit:parent] error: failed to setup network: slirp4netns failed"
        return None
    if asked:
        return '[rootlesskit:parent] error: exec: "slirp4netns": executable file not found in $PATH'
    if version < _WITH_OWN_CHOICE:
        return "Either slirp4netns (>= v0.4.0) or vpnkit needs to be installed"
    return None


def drop_in_text(machine: Machine, account: Account) -> str:
    """All drop-ins of the daemon's unit together."""
    folder = machine.path(f"{account.home}/{_DROP_INS}")
    files = sorted(folder.glob("*.conf")) if folder.is_dir() else []
    return "".join(file.read_text() for file in files)


def _settings(machine: Machine, account: Account) -> str | None:
    return machine.read_text(f"{account.home}/{CONFIGURATION}")


def upstream(version: str) -> str:
    """`5:29.7.2-1~ubuntu.24.04~noble` is Docker 29.7.2."""
    return version.partition(":")[2].partition("-")[0]


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())
