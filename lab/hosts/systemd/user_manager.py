"""systemd of an account on a simulated host (`user@UID.service`): what it may control, its own units.

Sources: systemd.special(7) and logind (`loginctl enable-linger`, /var/lib/systemd/linger), user@.service of
systemd 255 (`Delegate=pids memory cpu`), systemd.resource-control(5): a drop-in takes effect when the manager
starts the next time.
"""

import os
import shutil
from typing import Any

from lab.hosts import accounts
from lab.hosts.accounts import Account
from lab.hosts.faults import DelegationIneffective, Faults, NerdctlRuns, UserBusGone
from lab.hosts.faults import read as faults_of
from lab.hosts.machine import Machine
from lab.hosts.systemd import units
from lab.hosts.usernetes import rootless

LINGER = "/var/lib/systemd/linger"
TEMPLATE = "user@.service"
_DEFAULT = "cpu memory pids"
_WITHOUT = "memory pids"

Object = dict[str, Any]


def lingers(machine: Machine, account: Account) -> bool:
    """Whether the account's systemd outlives its logins."""
    return machine.path(f"{LINGER}/{account.name}").exists()


def reachable(machine: Machine, account: Account, faults: Faults) -> bool:
    return (
        accounts.is_up(machine, account)
        and machine.has_package("dbus-user-session")
        and faults.first(UserBusGone) is None
    )


def user_units(machine: Machine, account: Account) -> dict[str, Object]:
    """What is remembered of the account's units: `active`, `enabled`."""
    everything: Object = machine.state.setdefault("user-units", {})
    mine: dict[str, Object] = everything.setdefault(account.name, {})
    return mine


def start(machine: Machine, account: Account, faults: Faults) -> None:
    """Start it: controllers as the drop-ins say now, a runtime folder with a bus."""
    delegated = units.value(machine, TEMPLATE, "Service", "Delegate") or _DEFAULT
    if faults.first(DelegationIneffective):
        delegated = _WITHOUT
    file = machine.path(accounts.controllers_file(account))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(" ".join(sorted(delegated.split())) + "\n")
    runtime = machine.path(account.runtime)
    runtime.mkdir(parents=True, exist_ok=True, mode=0o700)
    runtime.joinpath("bus").touch()
    if faults.first(NerdctlRuns):
        runtime.joinpath("containerd-rootless").mkdir()
    if os.geteuid() == 0:
        os.chown(runtime, account.uid, account.uid)
    machine.state.setdefault(accounts.MANAGERS, {})[account.name] = {"up": True}
    machine.note("user-manager", action="start", account=account.name)


def stop(machine: Machine, account: Account) -> None:
    """Stop it, and with it all that the account runs there."""
    rootless.stop(machine, account)
    for unit in user_units(machine, account).values():
        unit["active"] = False
    machine.state.setdefault(accounts.MANAGERS, {})[account.name] = {"up": False}
    shutil.rmtree(machine.path(account.runtime), ignore_errors=True)
    machine.path(accounts.controllers_file(account)).unlink(missing_ok=True)


def start_enabled(machine: Machine, account: Account, faults: Faults) -> None:
    for name, unit in user_units(machine, account).items():
        if not unit["enabled"]:
            continue
        problem = rootless.start(machine, account, faults) if name == rootless.UNIT else None
        unit["active"] = problem is None
        if problem is not None:
            log(machine, account, name, problem)


def booted(machine: Machine, faults: Faults) -> None:
    """The machine came up: systemd of every lingering account starts, and what it has enabled.

    That is beside the units of the machine, so before a unit that is late: what these write to /run is not
    there yet.
    """
    for account in accounts.ordinary(machine).values():
        if accounts.is_up(machine, account):
            stop(machine, account)
        if lingers(machine, account):
            start(machine, account, faults)
            start_enabled(machine, account, faults)


def log(machine: Machine, account: Account, unit: str, line: str) -> None:
    with units.log_path(machine, log_name(account, unit)).open("a") as file:
        file.write(f"{line}\n")


def log_name(account: Account, unit: str) -> str:
    """Under which name the journal keeps what a unit of the account said."""
    return f"{account.uid}-{unit}"


def allow_linger(machine: Machine, account: Account) -> None:
    """`loginctl enable-linger`: noted, and its systemd starts."""
    file = machine.path(f"{LINGER}/{account.name}")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    if not accounts.is_up(machine, account):
        faults = faults_of(machine.folder)
        start(machine, account, faults)
        start_enabled(machine, account, faults)
