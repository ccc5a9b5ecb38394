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
    [
        "active",
        "reloading",
        "inactive",
        "failed",
        "activating",
        "deactivating",
        "maintenance",
        "unknown",
    ]
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


_OF_CODE = {
    -3: Health.WRONG_MODE,
    -5: Health.UNREACHABLE,
    -6: Health.VERSION_MISMATCH,
    -8: Health.WAITING,
    -9: Health.UNREACHABLE,
}
"""By fmReturn; any other is FAILED."""


def ask(fabric: FabricManager) -> tuple[Health, str]:
    """One question: the health, and the fabric manager's words."""
    try:
        table = fabric.partitions()
    except FabricError as error:
        health = _OF_CODE.get(error.code, Health.FAILED)
        return health, f"fabric manager answered {error.code} ({error.output})"
    if not table:
        return Health.FAILED, "it lists no partition"
    return Health.READY, ""


_LOG_IN_VM = "read /var/log/fabricmanager.log in the VM"
_CAUSES = {
    "ended": (
        "the VM ended while it was waited for ({words}){last}",
        "read /var/log/libvirt/qemu/{vm.name}.log on the host",
    ),
    "wrong-mode": (
        "the fabric manager does not share its switches ({words})",
        "FABRIC_MODE has to be 1 in the VM's fabricmanager.cfg, which the seed writes: find out who "
        "else changes it",
    ),
    "client-version": (
        "fmpm on the host and the fabric manager are of different versions ({words})",
        "install the fmpm that belongs to {fm.version} on the host",
    ),
    "failed": (
        "the fabric manager did not come up right: {words}",
        f"{_LOG_IN_VM}; every NVSwitch of the board has to be in it",
    ),
    "image-version": (
        "its image holds fabric manager {script.version}, not {script.wanted}; it was not started",
        "use an image with {script.wanted}, or set the versions of fabric manager and guest driver to "
        "the image's",
    ),
    "initialising": (
        "the fabric manager was still initialising after {vm.boot_timeout_seconds} s ({words})",
        f"{_LOG_IN_VM}: links that do not train, or a switch that fails",
    ),
    "resident": (
        "its service is active, yet the API does not answer at {fm.bind_address}:{fm.port} ({words}): "
        "it failed at start and stays resident, or listens elsewhere",
        f"{_LOG_IN_VM}; all NVSwitches have to be there, and FM_CMD_BIND_INTERFACE has to be that "
        "address",
    ),
    "service-down": (
        "its service is {script.state} ({words}): the fabric manager could not start",
        f"{_LOG_IN_VM}; all NVSwitches have to be there, and the NVIDIA driver of the image has to be "
        "of the fabric manager's version",
    ),
    "no-boot": (
        "it does not boot: its console says nothing after {vm.boot_timeout_seconds} s ({words})",
        "check that the image boots with UEFI: `virsh console {vm.name}` on the host",
    ),
    "no-answer": (
        "it booted but the fabric manager did not answer within {vm.boot_timeout_seconds} s "
        "({words}){last}",
        "look at `virsh console {vm.name}` on the host: cloud-init has to read its seed",
    ),
}
"""Problem and remedy by fault."""


def unhealthy(
    vm: ServiceVmInputs, health: Health, words: str, console: str, guest: Guest
) -> Finding:
    """Why a fabric manager does not serve: each cause with its own remedy."""
    script = said(console)
    if guest.answered:
        # What is, not what was at the start.
        script = replace(script, version=guest.version or "none", state=guest.service)
    silent = not console.strip() and not guest.answered
    fault = _fault(health, script, silent=silent)
    facts = {"vm": vm, "fm": vm.fabric_manager, "script": script, "words": words}
    problem, remedy = (
        text.format_map({**facts, "last": _last_lines(console)}) for text in _CAUSES[fault]
    )
    if guest.log:
        problem += f"; its log ends with: {' | '.join(guest.log)[:300]}"
    elif not guest.answered and health is not Health.STOPPED:
        problem += f"; over SSH the VM says nothing ({guest.problem[:200]})"
    return Finding(f"service-vm.{fault}", problem, remedy)


def _fault(health: Health, script: Said, *, silent: bool) -> str:
    match health:
        case Health.STOPPED:
            return "ended"
        case Health.WRONG_MODE:
            return "wrong-mode"
        case Health.VERSION_MISMATCH:
            return "client-version"
        case Health.FAILED:
            return "failed"
    if script.wanted:
        return "image-version"
    if health is Health.WAITING:
        return "initialising"
    if script.state:
        return "resident" if script.state == "active" else "service-down"
    return "no-boot" if silent else "no-answer"


def _last_lines(console: str) -> str:
    lines = [line.strip() for line in console.splitlines() if line.strip()]
    return f"; its console ends with: {' | '.join(lines[-3:])[:300]}" if lines else ""
