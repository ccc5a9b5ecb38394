"""The service VM as it is on its host, as it must be, and how the two differ. Pure.

Nothing that could take links from under a guest is done while a GPU is held: a restart of the VM, or a new
disk, which loses what the switches were told.

That the VM runs, or that the service is active, proves nothing: with FM_STAY_RESIDENT_ON_FAILURES the process
lives on after a failed start. Only an answered list of partitions does. Why there is none is asked in the VM
over SSH; where it lets nobody in, what it wrote to its console has to do.
"""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Annotated

from gpuclusters.core.facts import BASE64, Facts, Yes
from gpuclusters.core.finding import Finding, Level, blocked, repair
from gpuclusters.fabric.answers import FabricError
from gpuclusters.host.model import differing
from gpuclusters.service_vm import cloud_init, domain_xml
from gpuclusters.service_vm.cloud_init import Seed
from gpuclusters.service_vm.domain_xml import differences
from gpuclusters.service_vm.model import ServiceVmInputs

UNIT = "gpu-clusters-service-vm.service"
WATCH = "gpu-clusters-service-vm-watch"
PROGRAM = "/usr/local/lib/gpu-clusters/service-vm"
SETTINGS = "/etc/gpu-clusters/service-vm.env"
ORDERING = tuple(
    f"/etc/systemd/system/{daemon}.service.d/50-gpu-clusters.conf"
    for daemon in ("libvirtd", "virtqemud")
)
UNITS = (UNIT, f"{WATCH}.timer")
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
_STATES = {"active", "reloading", "inactive", "failed", "activating", "deactivating"}
_STATES |= {"maintenance", "unknown"}
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


class LiveVm(Facts):
    """What was found on the host in one look: what `inspect.sh` prints. Absence is None."""

    problem: Annotated[str | None, BASE64] = None
    """Why libvirt could not be asked; then nothing else of it is known."""
    boot_id: str = ""
    network: Annotated[str | None, BASE64] = None
    network_active: Yes = False
    network_autostart: Yes = False
    domain: Annotated[str | None, BASE64] = None
    """XML that the next start will use."""
    running_domain: Annotated[str | None, BASE64] = None
    """XML that the running VM was started with."""
    state: str | None = None
    """As `virsh domstate` says: running, shut off, paused, …"""
    number: str = "-"
    """Id of the running domain; every start gets another."""
    autostart: Yes = False
    backing: str | None = None
    """What the VM's disk is laid over; empty for a disk that stands alone."""
    seed: str | None = None
    """Digest of the seed that is on the host, whole and unchanged."""
    image_verified: Yes = False
    files: Mapping[str, str] = {}
    """sha256 by path, of the host files that are there."""
    disabled: tuple[str, ...] = ()
    stale: Yes = False
    """Whether systemd has not read our units as they are now."""
    console: Annotated[str, BASE64] = ""
    host_key: Annotated[str, BASE64] = ""
    holders: str = ""
    """Who holds GPUs of the board, in words; asked only where the VM would have to restart."""
    health: Health | None = None
    """What the fabric manager answers, once it was asked."""
    words: str = ""
    """The fabric manager's own words, where it does not serve."""
    guest: Guest = Guest("it was not asked")
    """What the VM says of itself over SSH, once it was asked."""

    @property
    def running(self) -> bool:
        """Whether the VM runs, in whatever condition."""
        return self.state not in (None, "shut off")

    @property
    def run(self) -> str:
        """Tells one run of the VM from the next; empty while it does not run."""
        return f"{self.boot_id}/{self.number}" if self.running else ""


@dataclass(frozen=True, slots=True)
class WantedVm:
    vm: ServiceVmInputs
    seed: Seed
    domain: ET.Element
    network: ET.Element
    files: Mapping[str, str]
    """Content by path of the host's own files: units and their program."""


def wanted(vm: ServiceVmInputs, scripts: Mapping[str, str]) -> WantedVm:
    seed = cloud_init.seed(vm, scripts["fabric-manager.sh"])
    files = {
        PROGRAM: scripts["service-vm.sh"],
        SETTINGS: (
            f"SERVICE_VM={vm.name}\nSERVICE_VM_NETWORK={vm.network.name}\n"
            f"FABRIC_MANAGER_ADDRESS={vm.fabric_manager.bind_address}\n"
            f"BOOT_TIMEOUT={vm.boot_timeout_seconds}\n"
            f"SHUTDOWN_TIMEOUT={vm.shutdown_timeout_seconds}\n"
        ),
        f"/etc/systemd/system/{UNIT}": scripts[UNIT],
        f"/etc/systemd/system/{WATCH}.service": scripts[f"{WATCH}.service"],
        f"/etc/systemd/system/{WATCH}.timer": scripts[f"{WATCH}.timer"],
        **dict.fromkeys(ORDERING, scripts["libvirt-ordering.conf"]),
    }
    domain = domain_xml.domain(vm, seed_digest=seed.digest)
    network = domain_xml.network(vm.network, host=vm.connection.host)
    return WantedVm(vm, seed, domain, network, files)


# Steps, in the order in which they are done.
IMAGE, FILES, SEED, STOP = "image", "files", "seed", "stop"
NETWORK, DISK, DOMAIN, START = "network", "disk", "domain", "start"


def findings(want: WantedVm, live: LiveVm, *, known: bool) -> Iterator[Finding]:
    """How a host differs from what is wanted; `known` says that this resource made the VM before."""
    vm = want.vm
    if live.domain is not None and not is_ours(live) and not known and not vm.adopt:
        yield blocked("service-vm.foreign", vm=vm)
    found = [*_differences(want, live)]
    yield from found
    if live.holders and any(one.code in LOSES_LINKS and not one.missing for one in found):
        why = "; ".join(one.problem for one in found if one.code in LOSES_LINKS)
        yield blocked("service-vm.in-use", why=why, holders=live.holders)


LOSES_LINKS = frozenset({"service-vm.restart", "service-vm.disk"})
"""What cannot be repaired while a GPU is held: it takes the links from under a guest."""


def _differences(want: WantedVm, live: LiveVm) -> Iterator[Finding]:
    vm = want.vm
    if not live.image_verified:
        yield _repair("service-vm.image", step=IMAGE)
    for path in differing(want.files, live.files):
        yield _repair("service-vm.file", path, step=FILES)
    if live.disabled:
        yield _repair("service-vm.unit", step=FILES)
    if live.stale:
        yield _repair("service-vm.unit", case="stale", step=FILES)
    if live.seed != want.seed.digest:
        yield _repair("service-vm.seed", step=SEED)
    network = _compare(want.network, live.network, "the network is not defined")
    if live.network is not None and not live.network_active:
        network.append("it is not active")
    torn = list(network)
    if live.network is not None and not live.network_autostart:
        network.append("it is not started with libvirt")
    disk = "" if live.backing is not None else "the VM's disk is missing"
    if live.backing not in {None, vm.image.file}:
        disk = f"the VM's disk is laid over {live.backing or 'nothing'}, not {vm.image.file}"
    if live.running:
        why = _compare(want.domain, live.running_domain, "what it runs is not known")
        why += [f"it is {live.state}"] if live.state != "running" else []
        why += [disk] if disk else []
        # A network that is torn down takes the cable out of the VM.
        why += [f"network: {words}" for words in torn]
        if why:
            yield _repair("service-vm.restart", step=STOP, why="; ".join(dict.fromkeys(why)))
    for words in network:
        missing = live.network is None
        yield _repair("service-vm.network", step=NETWORK, missing=missing, words=words)
    if disk:
        yield _repair("service-vm.disk", step=DISK, missing=live.backing is None, words=disk)
    for words in _compare(want.domain, live.domain, "the domain is not defined"):
        # Taking over a VM gives it our mark and our UUID.
        new = live.domain is None or words.startswith(("uuid ", "our mark"))
        yield _repair("service-vm.domain", step=DOMAIN, missing=new, words=words)
    if not live.autostart:
        yield _repair("service-vm.autostart", step=DOMAIN)
    if not live.running:
        yield _repair("service-vm.not-running", step=START)


def taken_over(found: Iterable[Finding]) -> Iterator[Finding]:
    """What of the findings makes a domain that is there another one than is declared."""
    codes = {"service-vm.domain", "service-vm.network", "service-vm.disk"}
    return (one for one in found if one.code in codes and not one.missing)


def serving(vm: ServiceVmInputs, live: LiveVm) -> Iterator[Finding]:
    """Whether the fabric manager of the running VM serves, and is the one that is wanted."""
    if live.health not in {None, Health.READY, Health.WAITING}:
        yield replace(blocked("service-vm.not-serving", live=live), level=Level.WARN)
    wanted, version = vm.fabric_manager.version, live.guest.version
    if version and version != wanted:
        yield blocked("service-vm.version", version=version, wanted=wanted)


_LOG = "look at the log of libvirt on the host (`journalctl -u libvirtd`), then run again"
_repair = partial(repair, remedy=_LOG)


def is_ours(live: LiveVm) -> bool:
    """Whether the domain carries our mark."""
    root = domain_xml.parse(live.domain or "")
    return root is not None and domain_xml.mark_of(root) is not None


def _compare(want: ET.Element, document: str | None, absent: str) -> list[str]:
    live = domain_xml.parse(document or "")
    return [absent] if live is None else [*differences(want, live)]


_OF_CODE = {
    -3: Health.WRONG_MODE,
    -5: Health.UNREACHABLE,
    -6: Health.VERSION_MISMATCH,
    -8: Health.WAITING,
    -9: Health.UNREACHABLE,
}
"""By fmReturn; any other is FAILED."""


def health_of(error: FabricError) -> tuple[Health, str]:
    """The health that an answer without a list tells, and the fabric manager's words."""
    words = f"fabric manager answered {error.code} ({error.output})"
    return _OF_CODE.get(error.code, Health.FAILED), words


def unhealthy(
    vm: ServiceVmInputs, health: Health, words: str, console: str, guest: Guest
) -> Finding:
    """Why a fabric manager does not serve: each cause with its own remedy."""
    script = said(console)
    if guest.answered:
        # What is, not what was at the start.
        script = replace(script, version=guest.version or "none", state=guest.service)
    fault = _fault(health, script, silent=not console.strip() and not guest.answered)
    more = ""
    if guest.log:
        more = f"; its log ends with: {' | '.join(guest.log)[:300]}"
    elif not guest.answered and health is not Health.STOPPED:
        more = f"; over SSH the VM says nothing ({guest.problem[:200]})"
    return blocked(
        f"service-vm.{fault}",
        fm=vm.fabric_manager,
        script=script,
        words=words,
        seconds=vm.boot_timeout_seconds,
        last=_last_lines(console),
        more=more,
    )


_OF_HEALTH = {
    Health.STOPPED: "ended",
    Health.WRONG_MODE: "wrong-mode",
    Health.VERSION_MISMATCH: "client-version",
    Health.FAILED: "failed",
}


def _fault(health: Health, script: Said, *, silent: bool) -> str:
    if health in _OF_HEALTH:
        return _OF_HEALTH[health]
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
