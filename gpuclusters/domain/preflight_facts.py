"""What one look at a machine tells: plain values, as the machine said them. Nothing is judged here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

OFF_THE_BUS = 0xFF
"""What every byte of the configuration space reads as when a PCI function does not answer."""
UNKNOWN_HEADER = 0x7F
"""The header type that `lspci` complains of then: 0xff without its multi-function bit."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A region of a PCI function as the kernel's `resource` file has it; size 0: not placed."""

    start: int
    size: int
    """In bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PciFact:
    """One PCI function. What was not looked at is None or empty."""

    address: str
    pci_id: str
    """`vendor:device`, as the kernel found it when it enumerated the bus."""
    class_code: str
    """Six hexadecimal digits."""
    numa_node: int | None = None
    driver: str | None = None
    iommu_group: str | None = None
    header: bytes = b""
    """The first 16 bytes of its configuration space, read now."""
    bars: Mapping[int, Bar] = field(default_factory=dict)
    resettable: bool | None = None
    vfio_device: str | None = None
    """Name of its character device in /dev/vfio/devices, if VFIO gave it one."""

    @property
    def is_bridge(self) -> bool:
        """Whether it is a PCI-to-PCI bridge, which VFIO exempts from its rule of groups."""
        return self.class_code.startswith("0604")

    @property
    def answers(self) -> bool | None:
        """Whether it answers on the bus; None if it was not asked."""
        if not self.header:
            return None
        if all(byte == OFF_THE_BUS for byte in self.header):
            return False
        return len(self.header) < 15 or self.header[14] & UNKNOWN_HEADER != UNKNOWN_HEADER


@dataclass(frozen=True, slots=True)
class NumaFact:
    """Memory of one NUMA node."""

    memory_kib: int
    huge_pages_1g: int
    """How many pages of 1 GiB it has reserved, free or not."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that has a GPU open. `through`: `vfio`, or `driver` for the node of a host driver."""

    through: str
    pid: int
    name: str
    """Name of its program; empty if that could not be read."""


@dataclass(frozen=True, slots=True)
class FabricFact:
    """What the fabric manager's client said; only asked of a cluster that runs."""

    exit_status: int
    output: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """One machine at one moment."""

    root: bool
    """Whether the account could use `sudo` without a password."""
    kernel: str
    command_line: tuple[str, ...]
    boot_id: str = ""
    machine_id: str = ""
    product: str = ""
    cpu_vendor: str
    """`GenuineIntel` or `AuthenticAMD`."""
    cpu_flags: frozenset[str]
    """Those of `vmx`, `svm`, `hypervisor`, `pdpe1gb` that the processor has."""
    acpi_tables: frozenset[str]
    """Those of `DMAR` (Intel VT-d) and `IVRS` (AMD-Vi) that the firmware hands over."""
    memory_kib: int
    numa: Mapping[int, NumaFact]
    functions: Mapping[str, PciFact]
    """Every PCI function by address."""
    iommu_groups: int
    """How many there are; 0 while the IOMMU is off."""
    modules: frozenset[str]
    """Loaded kernel modules."""
    nodes: frozenset[str]
    """Device nodes for virtual machines and GPUs that exist."""
    holders: tuple[Holder, ...] = ()
    packages: Mapping[str, str] = field(default_factory=dict)
    """Version by name, of installed packages that concern virtual machines or GPUs."""
    qemu: str | None = None
    libvirt: str | None = None
    firmware: frozenset[str] = frozenset()
    """Files with UEFI firmware for virtual machines."""
    commands: frozenset[str] = frozenset()
    """Programs that are there, of those that preparation calls."""
    free_gib: int | None = None
    """Room in the root file system."""
    clock_offset_seconds: float = 0
    """How far its clock is ahead of ours."""
    fabric: FabricFact | None = None

    def group_members(self, group: str) -> tuple[PciFact, ...]:
        """The functions of an IOMMU group, in the order of their addresses."""
        found = (f for f in self.functions.values() if f.iommu_group == group)
        return tuple(sorted(found, key=lambda f: f.address))
