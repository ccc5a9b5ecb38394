"""The service VM of one host: what it is made of and where its parts lie. Plain data, no secret.

It holds every NVSwitch of the board and runs the fabric manager for all tenants. Its disk is an overlay
over a verified image; its seed tells cloud-init the rest; its network reaches the host and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from gpuclusters.core.model import Strict, matches
from gpuclusters.fabric.manager_config import FabricManagerSettings, check_address
from gpuclusters.fabric.table import repeated
from gpuclusters.host.model import HostConnection, PciAddress, check_path

NAME = "fabric-manager"
NETWORK = "fabric-manager"
BRIDGE = "br-fm"
HOST_ADDRESS = "192.168.250.1"
VM_ADDRESS = "192.168.250.2"
PREFIX_LENGTH = 30
MAC = "52:54:00:fa:b0:02"
"""The same on every host: the network has no other member."""
VCPUS, MEMORY_MIB, DISK_GIB = 2, 4096, 16
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

_NAME_RULE = matches(
    r"[a-z0-9]([a-z0-9-]{0,49}[a-z0-9])?", "write lower-case letters, digits and '-', 51 at most"
)
_BRIDGE_RULE = matches(
    r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}",
    "the kernel takes 15 letters, digits, '-', '_' or '.' as an interface's name",
)


class VmImage(Strict):
    """What the VM's disk is laid over. Verified by checksum before use."""

    path: Annotated[str, AfterValidator(check_path)] | None = None
    """A qcow2 or raw file that is on the host already."""
    url: (
        Annotated[
            str, matches(r"https?://[^\s'\"]{1,1900}", "write an address that begins with https://")
        ]
        | None
    ) = None
    sha256: Annotated[
        str, matches(r"[0-9a-f]{64}", "write the 64 digits that `sha256sum` prints, in lower case")
    ]

    @model_validator(mode="after")
    def _one_source(self) -> VmImage:
        if (self.path is None) == (self.url is None):
            raise ValueError("image: needs either path or url, and only one of them")
        return self

    @property
    def file(self) -> str:
        """Where it lies on the host when it may be used."""
        return self.path or f"{IMAGE_FOLDER}/{self.sha256}.img"


class VmNetwork(Strict):
    """The network that the VM shares with its host alone: no forwarding, no DHCP, no DNS."""

    name: Annotated[str, _NAME_RULE] = NETWORK
    bridge: Annotated[str, _BRIDGE_RULE] = BRIDGE
    host_address: Annotated[str, AfterValidator(check_address)] = HOST_ADDRESS
    prefix_length: Annotated[int, Field(ge=16, le=30)] = PREFIX_LENGTH


class Packages(Strict):
    """Packages that the VM installs at its first boot, where the image does not hold them."""

    source: Annotated[str, matches(r"deb .{1,500}", "write a line of sources.list: deb URL SUITE")]
    key: Annotated[
        str, matches(r"(?s)-----BEGIN PGP PUBLIC KEY BLOCK-----.{1,20000}", "write the public key")
    ]
    proxy: Annotated[str, matches(r"http://[^\s'\"]{1,500}", "write http://ADDRESS:PORT")]
    """HTTP proxy on the host: the VM reaches nothing else."""
    packages: Mapping[
        str, Annotated[str, matches(r"[0-9][A-Za-z0-9.+:~-]{0,99}", "write the exact version")]
    ]
    """Version by package; every one is pinned."""


class Firmware(Strict):
    """UEFI firmware of the host's OVMF package, without secure boot; names as on Debian and Ubuntu."""

    code: Annotated[str, AfterValidator(check_path)] = "/usr/share/OVMF/OVMF_CODE_4M.fd"
    variables: Annotated[str, AfterValidator(check_path)] = "/usr/share/OVMF/OVMF_VARS_4M.fd"


class ServiceVmInputs(Strict):
    """Inputs of the resource `ServiceVm`."""

    connection: HostConnection
    name: Annotated[str, _NAME_RULE] = NAME
    switches: tuple[PciAddress, ...]
    """Every NVSwitch of the board: without one of them the fabric manager does not start."""
    extra_functions: tuple[PciAddress, ...] = ()
    """What shares their IOMMU group (11f8:4128 on Supermicro), or manages them (B200)."""
    gpus: Annotated[Mapping[str, PciAddress], Field(default_factory=dict)]
    """PCI address by module number: who holds one is asked before a restart. They never enter the VM."""
    vcpus: Annotated[int, Field(ge=1, le=64)] = VCPUS
    memory_mib: Annotated[int, Field(ge=1024, le=1024 * 1024)] = MEMORY_MIB
    disk_gib: Annotated[int, Field(ge=4, le=4096)] = DISK_GIB
    image: VmImage
    network: VmNetwork = VmNetwork()
    fabric_manager: FabricManagerSettings
    packages: Packages | None = None
    """None: the image holds the fabric manager."""
    firmware: Firmware = Firmware()
    boot_timeout_seconds: Annotated[int, Field(ge=1, le=3600)] = 300
    """How long the fabric manager may take from the start of the VM to its first answer."""
    shutdown_timeout_seconds: Annotated[int, Field(ge=1, le=3600)] = 120
    download_timeout_seconds: Annotated[int, Field(ge=1, le=86_400)] = 1800
    adopt: bool = False

    @model_validator(mode="after")
    def _fits_together(self) -> ServiceVmInputs:
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
        """`host/name`."""
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
