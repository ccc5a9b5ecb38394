"""The service VM as it is on its host, as it must be, and how the two differ. Pure.

Nothing that could take links from under a guest is done while a GPU is held: a restart of the VM, or a new
disk, which loses what the switches were told.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpuclusters.core.finding import Finding, Level
from gpuclusters.host.model import sha256_of
from gpuclusters.service_vm import cloud_init, domain_xml
from gpuclusters.service_vm.cloud_init import Seed
from gpuclusters.service_vm.domain_xml import differences
from gpuclusters.service_vm.health import Guest, Health
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
"""Units that are enabled."""


@dataclass(frozen=True, slots=True)
class LiveVm:
    """What was found on the host in one look. Absence is None."""

    problem: str | None = None
    """Why libvirt could not be asked; then nothing else of it is known."""
    boot_id: str = ""
    network: str | None = None
    """XML."""
    network_active: bool = False
    network_autostart: bool = False
    domain: str | None = None
    """XML that the next start will use."""
    running_domain: str | None = None
    """XML that the running VM was started with."""
    state: str | None = None
    """As `virsh domstate` says: running, shut off, paused, …"""
    number: str = "-"
    """Id of the running domain; every start gets another."""
    autostart: bool = False
    backing: str | None = None
    """What the VM's disk is laid over; empty for a disk that stands alone."""
    seed: str | None = None
    """Digest of the seed that is on the host, whole and unchanged."""
    image_verified: bool = False
    files: Mapping[str, str] = field(default_factory=dict)
    """sha256 by path, of the host files that are there."""
    disabled: Sequence[str] = ()
    """Units of ours that are not enabled."""
    stale: bool = False
    """Whether systemd has not read our units as they are now."""
    console: str = ""
    """The last lines of the VM's serial console."""
    host_key: str = ""
    """The VM's public SSH host key."""
    holders: str = ""
    """Who holds GPUs of the board, in words; asked only where the VM would have to restart."""
    health: Health | None = None
    """What the fabric manager answers, once it was asked."""
    words: str = ""
    """The fabric manager's own words, where it does not serve."""
    guest: Guest = field(default_factory=lambda: Guest("it was not asked"))
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
    """What must be there."""

    vm: ServiceVmInputs
    seed: Seed
    domain: ET.Element
    network: ET.Element
    files: Mapping[str, str]
    """Content by path of the host's own files: units and their program."""

    @property
    def executable(self) -> frozenset[str]:
        """The files that are programs."""
        return frozenset({PROGRAM})


def wanted(vm: ServiceVmInputs, scripts: Mapping[str, str]) -> WantedVm:
    """What the inputs ask for.

    Args:
        vm: the inputs.
        scripts: text by name of its files for machines.
    """
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
    return WantedVm(
        vm,
        seed,
        domain_xml.domain(vm, seed_digest=seed.digest),
        domain_xml.network(vm.network, host=vm.connection.host),
        files,
    )


# Steps, in the order in which they are done.
IMAGE, FILES, SEED, STOP = "image", "files", "seed", "stop"
NETWORK, DISK, DOMAIN, START = "network", "disk", "domain", "start"


def findings(want: WantedVm, live: LiveVm, *, known: bool) -> Iterator[Finding]:
    """How a host differs from what is wanted; `known` says that this resource made the VM before."""
    vm = want.vm
    if live.domain is not None and not is_ours(live) and not known and not vm.adopt:
        yield Finding(
            "service-vm.foreign",
            f"a domain {vm.name} is there and is not ours (it lacks our mark in its metadata)",
            f"give it another name, remove it (`virsh undefine --nvram {vm.name}`), or set adopt: true "
            "to take it over",
        )
    found = [*_differences(want, live)]
    yield from found
    if live.holders and any(one.code in LOSES_LINKS and not one.missing for one in found):
        why = "; ".join(one.problem for one in found if one.code in LOSES_LINKS)
        yield Finding(
            "service-vm.in-use",
            f"the VM would have to restart ({why}) while GPUs are in use: {live.holders}",
            "wait until those leases end or take the host out of service, then run again",
        )


LOSES_LINKS = frozenset({"service-vm.restart", "service-vm.disk"})
"""What cannot be repaired while a GPU is held: it takes the links from under a guest."""


def _differences(want: WantedVm, live: LiveVm) -> Iterator[Finding]:
    vm = want.vm
    if not live.image_verified:
        yield _repair("image", "the image is not verified", IMAGE)
    for path, text in want.files.items():
        if live.files.get(path) != sha256_of(text.encode()):
            yield _repair("file", f"the file {path} is missing or was changed", FILES, path)
    if live.disabled:
        yield _repair("unit", "the unit that starts the VM is not enabled", FILES)
    if live.stale:
        yield _repair("unit", "systemd has not read the units of the VM as they are now", FILES)
    if live.seed != want.seed.digest:
        yield _repair("seed", "the seed is missing or another", SEED)
    network = _compare(want.network, live.network, "the network is not defined")
    torn = list(network)
    if live.network is not None and not live.network_active:
        network.append("it is not active")
        torn.append("it is not active")
    if live.network is not None and not live.network_autostart:
        network.append("it is not started with libvirt")
    disk = ""
    if live.backing is None:
        disk = "the VM's disk is missing"
    elif live.backing != vm.image.file:
        disk = f"the VM's disk is laid over {live.backing or 'nothing'}, not {vm.image.file}"
    if live.running:
        why = _compare(want.domain, live.running_domain, "what it runs is not known")
        why += [f"it is {live.state}"] if live.state != "running" else []
        why += [disk] if disk else []
        # A network that is torn down takes the cable out of the VM.
        why += [f"network: {words}" for words in torn]
        if why:
            words = f"the running VM is another than declared: {'; '.join(dict.fromkeys(why))}"
            yield _repair("restart", words, STOP)
    for words in network:
        yield _repair("network", f"network: {words}", NETWORK, missing=live.network is None)
    if disk:
        yield _repair("disk", disk, DISK, missing=live.backing is None)
    for words in _compare(want.domain, live.domain, "the domain is not defined"):
        # Taking over a VM gives it our mark and our UUID.
        new = live.domain is None or words.startswith(("uuid ", "our mark"))
        yield _repair("domain", f"domain: {words}", DOMAIN, missing=new)
    if not live.autostart:
        yield _repair("autostart", "the VM is not started with libvirt", DOMAIN)
    if not live.running:
        yield _repair("not-running", "the VM does not run", START)


def taken_over(found: Iterable[Finding]) -> Iterator[Finding]:
    """What of the findings makes a domain that is there another one than is declared."""
    codes = {"service-vm.domain", "service-vm.network", "service-vm.disk"}
    return (one for one in found if one.code in codes and not one.missing)


def serving(vm: ServiceVmInputs, live: LiveVm) -> Iterator[Finding]:
    """Whether the fabric manager of the running VM serves, and is the one that is wanted."""
    if live.health not in {None, Health.READY, Health.WAITING}:
        problem = f"the fabric manager does not serve: {live.words}"
        yield Finding("service-vm.not-serving", problem, level=Level.WARN)
    wanted, version = vm.fabric_manager.version, live.guest.version
    if version and version != wanted:
        yield Finding(
            "service-vm.version",
            f"the fabric manager that is installed in the VM is {version}, not {wanted}: somebody has "
            "changed it since the VM was made",
            f"install {wanted} in the VM, or set the versions of fabric manager and guest driver to "
            f"{version}",
        )


def _repair(
    fault: str, problem: str, step: str, path: str = "", *, missing: bool = False
) -> Finding:
    remedy = "look at the log of libvirt on the host (`journalctl -u libvirtd`), then run again"
    where = (path,) if path else ()
    return Finding(f"service-vm.{fault}", problem, remedy, where, Level.REPAIR, step, missing)


def is_ours(live: LiveVm) -> bool:
    """Whether the domain carries our mark."""
    root = domain_xml.parse(live.domain or "")
    return root is not None and domain_xml.mark_of(root) is not None


def _compare(want: ET.Element, document: str | None, absent: str) -> list[str]:
    live = domain_xml.parse(document or "")
    return [absent] if live is None else [*differences(want, live)]
