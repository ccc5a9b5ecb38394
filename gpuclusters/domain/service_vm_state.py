"""The service VM as it is on its host, as it must be, and what leads from one to the other. Pure."""

from __future__ import annotations

import hashlib
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuclusters.domain import cloud_init, domain_xml
from gpuclusters.domain.cloud_init import Seed
from gpuclusters.domain.domain_xml_drift import differences
from gpuclusters.domain.service_vm import ServiceVmInputs

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
        scripts: text of the files of `scripts/service-vm` by name.
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


@dataclass(frozen=True, slots=True)
class VmPlan:
    """What is to be done, in the order of its fields. Empty: everything is as it must be."""

    image: bool = False
    files: tuple[str, ...] = ()
    units: bool = False
    stale: bool = False
    seed: bool = False
    network: tuple[str, ...] = ()
    """Differences of the network, in words."""
    disk: str = ""
    """Why the disk is made, or made anew."""
    domain: tuple[str, ...] = ()
    """Differences of the domain that the next start will use, in words."""
    restart: tuple[str, ...] = ()
    """Why the running VM has to be shut down and started again."""
    start: bool = False
    autostart: bool = False

    @property
    def empty(self) -> bool:
        """Whether nothing has to be done."""
        return self == VmPlan()

    @property
    def words(self) -> tuple[str, ...]:
        """What differs, for people; `restart` repeats some of it and is left out."""
        found = [f"the file {path} is missing or was changed" for path in self.files]
        if self.image:
            found.append("the image is not verified")
        if self.units:
            found.append("the unit that starts the VM is not enabled")
        if self.stale:
            found.append("systemd has not read the units of the VM as they are now")
        if self.seed:
            found.append("the seed is missing or another")
        found += [f"network: {words}" for words in self.network]
        if self.disk:
            found.append(self.disk)
        found += [f"domain: {words}" for words in self.domain]
        found += [f"running VM: {words}" for words in self.restart if words not in self.domain]
        if self.start:
            found.append("the VM does not run")
        if self.autostart:
            found.append("the VM is not started with libvirt")
        return tuple(found)


def compare(want: WantedVm, live: LiveVm) -> VmPlan:
    """What has to be done to bring the host to what is wanted."""
    vm = want.vm
    domain = _differences(want.domain, live.domain, "the domain is not defined")
    network = _differences(want.network, live.network, "the network is not defined")
    if live.network is not None and not live.network_active:
        network.append("it is not active")
    if live.network is not None and not live.network_autostart:
        network.append("it is not started with libvirt")
    disk = ""
    if live.backing is None:
        disk = "the VM's disk is missing"
    elif live.backing != vm.image.file:
        disk = f"the VM's disk is laid over {live.backing or 'nothing'}, not {vm.image.file}"
    restart: list[str] = []
    if live.running:
        restart = _differences(want.domain, live.running_domain, "what it runs is not known")
        if live.state != "running":
            restart.append(f"it is {live.state}")
        if disk:
            restart.append(disk)
        # A network that is torn down takes the cable out of the VM.
        restart += [f"network: {words}" for words in network if "started with" not in words]
    return VmPlan(
        image=not live.image_verified,
        files=tuple(
            path for path, text in want.files.items() if live.files.get(path) != _sha256(text)
        ),
        units=bool(live.disabled),
        stale=live.stale,
        seed=live.seed != want.seed.digest,
        network=tuple(network),
        disk=disk,
        domain=tuple(domain),
        restart=tuple(dict.fromkeys(restart)),
        start=not live.running,
        autostart=not live.autostart,
    )


def is_ours(live: LiveVm) -> bool:
    """Whether the domain carries our mark."""
    root = domain_xml.parse(live.domain or "")
    return root is not None and domain_xml.mark_of(root) is not None


def _differences(want: ET.Element, document: str | None, absent: str) -> list[str]:
    live = domain_xml.parse(document or "")
    return [absent] if live is None else differences(want, live)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
