"""Whether the fabric manager in a service VM serves, and if not, why (row 16).

That the VM runs, or that the service is active, proves nothing: with FM_STAY_RESIDENT_ON_FAILURES the process
lives on after a failed start. Only an answered list of partitions does. Why there is none is asked in the VM
over SSH; where it lets nobody in, what it wrote to its console has to do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from gpuclusters.core.finding import Finding
from gpuclusters.fabric.answers import FabricError
from gpuclusters.fabric.model import FabricManager
from gpuclusters.service_vm.model import ServiceVmInputs

NOT_SUPPORTED, TIMEOUT, VERSION_MISMATCH, NOT_CONFIGURED, NO_CONNECTION = -3, -5, -6, -8, -9
SETTLE_SECONDS = 20.0
"""After a restart the fabric manager answers -8 until it is told what is active, and while it initialises."""
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 5.0

_SAID = re.compile(r"gpu-clusters: fabric-manager (.*)")

SERVICE = "nvidia-fabricmanager.service"
LOG = "/var/log/fabricmanager.log"
LOG_LINES = 3

COMMAND = (
    f"nv-fabricmanager --version; systemctl is-active {SERVICE}; sudo -n tail -n {LOG_LINES} {LOG}"
)
"""Run by the VM's only account. Each part may fail and leave its answer out."""

# systemctl(1), is-active: the unit's ActiveState; `unknown` is of older versions.
_STATES = frozenset(
    {
        "active",
        "reloading",
        "inactive",
        "failed",
        "activating",
        "deactivating",
        "maintenance",
        "unknown",
    }
)
# "Fabric Manager version is : 595.58.03"
_VERSION = re.compile(r"version is *: *([0-9.]+)")


@dataclass(frozen=True, slots=True)
class Guest:
    """The fabric manager as its own VM sees it."""

    problem: str = ""
    """Why the VM could not be asked; empty if it answered."""
    version: str = ""
    """What is installed; empty if nothing is, or nobody answered."""
    service: str = ""
    """ActiveState of its unit."""
    log: tuple[str, ...] = ()
    """The last lines of its log."""

    @property
    def answered(self) -> bool:
        """Whether the VM let its host in and said something."""
        return not self.problem


def parsed_guest(output: str) -> Guest:
    """The answer to `COMMAND`."""
    version, service, log = "", "", list[str]()
    for line in output.splitlines():
        text = line.strip()
        if service:
            log.append(text)
        elif text in _STATES:
            service = text
        elif found := _VERSION.search(text):
            version = found[1]
    if not service:
        return Guest("its shell answers, but systemctl says nothing of the fabric manager", version)
    return Guest("", version, service, tuple(line for line in log if line)[-LOG_LINES:])


class Health(StrEnum):
    """What the fabric manager answers."""

    READY = "ready"
    """The list of partitions."""
    WAITING = "waiting-for-list"
    """-8: after a restart, until it is told which partitions are active; or it still initialises."""
    UNREACHABLE = "unreachable"
    WRONG_MODE = "wrong-mode"
    VERSION_MISMATCH = "version-mismatch"
    FAILED = "failed"
    STOPPED = "stopped"
    """The VM does not run."""


@dataclass(frozen=True, slots=True)
class Said:
    """What the VM's own script wrote to its console."""

    version: str = ""
    wanted: str = ""
    state: str = ""


def said(console: str) -> Said:
    """The last word of the VM's script on its console."""
    found = Said()
    for line in _SAID.findall(console):
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        found = Said(
            words.get("version", found.version), words.get("wanted", ""), words.get("state", "")
        )
    return found


def of_code(code: int) -> Health:
    """The health behind an fmReturn code."""
    return {
        0: Health.READY,
        NOT_CONFIGURED: Health.WAITING,
        NO_CONNECTION: Health.UNREACHABLE,
        TIMEOUT: Health.UNREACHABLE,
        NOT_SUPPORTED: Health.WRONG_MODE,
        VERSION_MISMATCH: Health.VERSION_MISMATCH,
    }.get(code, Health.FAILED)


def ask(fabric: FabricManager) -> tuple[Health, str]:
    """One question: the health, and the fabric manager's words."""
    try:
        table = fabric.partitions()
    except FabricError as error:
        return of_code(error.code), f"fabric manager answered {error.code} ({error.output})"
    if not table:
        return Health.FAILED, "it lists no partition"
    return Health.READY, ""


def unhealthy(
    vm: ServiceVmInputs, health: Health, words: str, console: str, guest: Guest
) -> Finding:
    """Why a fabric manager does not serve: each cause with its own remedy."""
    fault, problem, remedy = _cause(vm, health, words, console, guest)
    if guest.log:
        problem += f"; its log ends with: {' | '.join(guest.log)[:300]}"
    elif not guest.answered and health is not Health.STOPPED:
        problem += f"; over SSH the VM says nothing ({guest.problem[:200]})"
    return Finding(f"service-vm.{fault}", problem, remedy)


def _cause(
    vm: ServiceVmInputs, health: Health, words: str, console: str, guest: Guest
) -> tuple[str, str, str]:
    settings = vm.fabric_manager
    script = said(console)
    if guest.answered:
        # What is, not what was at the start.
        script = replace(script, version=guest.version or "none", state=guest.service)
    last = _last_lines(console)
    if health is Health.STOPPED:
        return (
            "ended",
            f"the VM ended while it was waited for ({words}){last}",
            f"read /var/log/libvirt/qemu/{vm.name}.log on the host",
        )
    if health is Health.WRONG_MODE:
        return (
            "wrong-mode",
            f"the fabric manager does not share its switches ({words})",
            "FABRIC_MODE has to be 1 in the VM's fabricmanager.cfg, which the seed writes: find out "
            "who else changes it",
        )
    if health is Health.VERSION_MISMATCH:
        return (
            "client-version",
            f"fmpm on the host and the fabric manager are of different versions ({words})",
            f"install the fmpm that belongs to {settings.version} on the host",
        )
    if health is Health.FAILED:
        return (
            "failed",
            f"the fabric manager did not come up right: {words}",
            "read /var/log/fabricmanager.log in the VM; every NVSwitch of the board has to be in it",
        )
    if script.wanted:
        return (
            "image-version",
            f"its image holds fabric manager {script.version}, not {script.wanted}; it was not started",
            f"use an image with {script.wanted}, or set the versions of fabric manager and guest "
            "driver to the image's",
        )
    if health is Health.WAITING:
        return (
            "initialising",
            f"the fabric manager was still initialising after {vm.boot_timeout_seconds} s ({words})",
            "read /var/log/fabricmanager.log in the VM: links that do not train, or a switch that fails",
        )
    if script.state == "active":
        return (
            "resident",
            f"its service is active, yet the API does not answer at {settings.bind_address}:"
            f"{settings.port} ({words}): it failed at start and stays resident, or listens elsewhere",
            "read /var/log/fabricmanager.log in the VM; all NVSwitches have to be there, and "
            "FM_CMD_BIND_INTERFACE has to be that address",
        )
    if script.state:
        return (
            "service-down",
            f"its service is {script.state} ({words}): the fabric manager could not start",
            "read /var/log/fabricmanager.log in the VM; all NVSwitches have to be there, and the "
            "NVIDIA driver of the image has to be of the fabric manager's version",
        )
    if not console.strip() and not guest.answered:
        return (
            "no-boot",
            f"it does not boot: its console says nothing after {vm.boot_timeout_seconds} s ({words})",
            f"check that the image boots with UEFI: `virsh console {vm.name}` on the host",
        )
    return (
        "no-answer",
        f"it booted but the fabric manager did not answer within {vm.boot_timeout_seconds} s "
        f"({words}){last}",
        f"look at `virsh console {vm.name}` on the host: cloud-init has to read its seed",
    )


def _last_lines(console: str) -> str:
    lines = [line.strip() for line in console.splitlines() if line.strip()]
    return f"; its console ends with: {' | '.join(lines[-3:])[:300]}" if lines else ""
