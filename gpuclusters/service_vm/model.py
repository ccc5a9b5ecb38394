"""The service VM of one host: what it is made of and where its parts lie. Plain data, no secret."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network
from typing import Annotated

from pydantic import Field, model_validator

from gpuclusters.core.section import (
    Address,
    Flag,
    Gib,
    Integer,
    Mib,
    PciAddress,
    Seconds,
    Section,
    Sha256,
    Text,
    matches,
)
from gpuclusters.fabric.manager_config import FabricManagerSettings
from gpuclusters.fabric.table import repeated
from gpuclusters.host.model import HostConnection

MAC = "52:54:00:fa:b0:02"
"""The same on every host: the network has no other member."""
ACCOUNT = "fm"
"""The VM's only account; the host's root enters with a key that never leaves the host."""

LAB_IMAGE: Mapping[str, str] = {
    "path": "/var/lib/libvirt/images/fabric-manager.img",
    "sha256": "1ddee9c11948b94b4a494e5d4a314eb3fefba513a71877a5d9e54824898bd105",
}

STATE_FOLDER = "/etc/gpu-clusters/service-vm"
"""Keys of the VM on its host; root alone may read it."""
IMAGE_FOLDER = "/var/lib/libvirt/images/gpu-clusters"
"""Base images, by checksum, and the VMs' own disks and seeds."""
NVRAM_FOLDER = "/var/lib/libvirt/qemu/nvram"
CONSOLE_FOLDER = "/var/log/libvirt/qemu"
_KEY_BLOCK = "-----BEGIN PGP PUBLIC KEY BLOCK-----"
_EXACT = re.compile(r"[0-9][A-Za-z0-9.+:~-]{0,99}")

VmName = Annotated[Text, matches("[a-z0-9]([a-z0-9-]{0,49}[a-z0-9])?", "vm-name")]
FilePath = Annotated[Text, matches(r"(?!.*/(\.{0,2})/)/.*[^/]", "file-path")]

Download = Annotated[Text, matches(r"https?://[^\s'\"]+", "download")]


class VmImage(Section):
    """What the service VM's disk is laid over: UEFI, cloud-init, and as a rule driver and fabric manager."""

    path: FilePath | None = None
    """Its file on every machine."""
    url: Download | None = None
    """Where every machine downloads it from, instead of path."""
    sha256: Sha256
    """Its checksum; verified before the first use."""

    @property
    def file(self) -> str:
        """Where it lies on the host when it may be used."""
        return self.path or f"{IMAGE_FOLDER}/{self.sha256}.img"


class VmNetwork(Section):
    """The network that each service VM shares with its machine alone; the same addresses on every machine."""

    name: VmName = "fabric-manager"
    """Its name in libvirt."""
    bridge: Annotated[
        Text,
        matches(".{,15}", "long-interface"),
        matches("[A-Za-z0-9][A-Za-z0-9_.-]*", "interface"),
    ] = "br-fm"
    """Its bridge on the machine, 15 characters at most."""
    host_address: Address = IPv4Address("192.168.250.1")
    """The machine's address on it."""
    prefix_length: Annotated[Integer, Field(ge=16, le=30)] = 30
    """Size of its range: 30 has room for the machine and its VM."""

    @property
    def addresses(self) -> IPv4Network:
        return IPv4Network(f"{self.host_address}/{self.prefix_length}", strict=False)


class VmPackages(Section):
    """Packages that the service VM installs at its first boot, if its image does not hold them."""

    repository: Annotated[Text, matches("deb .+", "package-source")]
    """The repository, as a line of sources.list: `deb URL SUITE`."""
    key: Annotated[str, Field(min_length=1, max_length=20_000)]
    """Public key that signs the repository, ASCII-armoured, after `key: |`."""
    proxy: Annotated[Text, matches(r"http://[^\s'\"]+", "http-proxy")]
    """HTTP proxy on the machine, at network.host-address: the VM reaches nothing else."""
    packages: Mapping[str, Text]
    """Exact version by package; the fabric manager's and the driver's among them."""


class Firmware(Section):
    """UEFI firmware on the machines, without secure boot."""

    code: FilePath = "/usr/share/OVMF/OVMF_CODE_4M.fd"
    """Program; the default is where Debian and Ubuntu have it."""
    variables: FilePath = "/usr/share/OVMF/OVMF_VARS_4M.fd"
    """Template of the variables, of which the VM gets its own copy."""


class VmSettings(Section):
    """What the configuration says of the VM itself."""

    name: VmName = "fabric-manager"
    """Its name in libvirt."""
    vcpus: Annotated[Integer, Field(ge=1, le=64)] = 2
    """Virtual CPUs."""
    memory_mib: Annotated[Mib, Field(ge=1024, le=1024 * 1024)] = 4096
    """RAM, in MiB."""
    disk_gib: Annotated[Gib, Field(ge=4, le=4096)] = 16
    """Size of its own disk, in GiB."""
    network: VmNetwork = Field(default_factory=VmNetwork)
    """The network that it shares with its machine."""
    packages: VmPackages | None = None
    """Packages that it installs at its first boot; by default its image holds all of them."""
    firmware: Firmware = Field(default_factory=Firmware)
    """UEFI firmware."""
    boot_timeout_seconds: Annotated[Seconds, Field(le=3600)] = 300
    """How long it may take from its start to the fabric manager's first answer, in seconds."""
    adopt: Flag = False
    """Take over a domain of that name that is there and is not ours."""


class ServiceVmInputs(VmSettings):
    """Inputs of the resource `ServiceVm`."""

    connection: HostConnection
    switches: tuple[PciAddress, ...]
    """Every NVSwitch of the board: without one of them the fabric manager does not start."""
    extra_functions: tuple[PciAddress, ...] = ()
    """What shares their IOMMU group (11f8:4128 on Supermicro), or manages them (B200)."""
    gpus: Mapping[str, PciAddress] = Field(default_factory=dict)
    """PCI address by module number: who holds one is asked before a restart. They never enter the VM."""
    image: VmImage
    fabric_manager: FabricManagerSettings
    shutdown_timeout_seconds: Annotated[Seconds, Field(le=3600)] = 120
    download_timeout_seconds: Seconds = 1800

    @model_validator(mode="after")
    def _fits_together(self) -> ServiceVmInputs:
        if (self.image.path is None) == (self.image.url is None):
            raise ValueError("image: needs either path or url, and only one of them")
        stated = self.packages.packages if self.packages else {}
        if self.packages and not self.packages.key.startswith(_KEY_BLOCK):
            problem = "packages: the key is not a public one, ASCII-armoured; write the text"
            raise ValueError(problem)
        if loose := [name for name, its in stated.items() if not _EXACT.fullmatch(its)]:
            raise ValueError(f"packages: {', '.join(loose)} has no exact version; write it")
        if not self.functions:
            raise ValueError("switches: the VM needs every NVSwitch of the board, or its bridges")
        if twice := repeated(self.functions):
            raise ValueError(f"switches: {', '.join(twice)} is listed twice; list it once")
        if shared := sorted({*self.functions} & {*self.gpus.values()}):
            raise ValueError(
                f"switches: {', '.join(shared)} is a GPU of a tenant; the service VM and a tenant "
                "cannot have the same function"
            )
        return self

    @property
    def functions(self) -> tuple[str, ...]:
        """All PCI functions that enter the VM, in the order of its root ports."""
        return (*self.switches, *self.extra_functions)

    @property
    def natural_id(self) -> str:
        return f"{self.connection.host}/{self.name}"

    @property
    def disk(self) -> str:
        """The VM's own disk: an overlay; the fabric manager's state file survives restarts on it."""
        return f"{IMAGE_FOLDER}/{self.name}.qcow2"

    @property
    def seed(self) -> str:
        """The image that cloud-init reads."""
        return f"{IMAGE_FOLDER}/{self.name}-seed.iso"

    @property
    def nvram(self) -> str:
        """The VM's own UEFI variables."""
        return f"{NVRAM_FOLDER}/{self.name}_VARS.fd"

    @property
    def console(self) -> str:
        """What the VM wrote to its serial console since it was started."""
        return f"{CONSOLE_FOLDER}/{self.name}-console.log"
