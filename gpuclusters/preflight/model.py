"""What a machine must be, what one look at it tells, and the inputs of both resources."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from gpuclusters.cdi.model import VfioBackend
from gpuclusters.compat.platforms import Preset
from gpuclusters.compat.versions import KERNEL_HUGE_FAULTS, QEMU_ALIGNED_BARS
from gpuclusters.core.custom_resource import Name
from gpuclusters.core.facts import Facts
from gpuclusters.core.model import Strict, matches
from gpuclusters.core.section import PciAddress
from gpuclusters.fabric.table import TABLES, Board, repeated
from gpuclusters.host.model import HostConnection

KERNEL_MINIMUM, QEMU_MINIMUM = (
    ".".join(map(str, release)) for release in (KERNEL_HUGE_FAULTS, QEMU_ALIGNED_BARS)
)
LIBVIRT_MINIMUM = "8.7"
"""The first libvirt that knows `<maxphysaddr>`, which VMs with large BARs need."""
DISK_GIB = 20
"""Packages, the image of the service VM and its copy."""
CLOCK_OFFSET_SECONDS = 60
"""Certificates and tokens are refused beyond that by the first who looks."""


class Stage(StrEnum):
    """When a machine is looked at."""

    BARE = "bare"
    """Before anything was changed: what preparation cannot put right, or what makes it dangerous."""
    PREPARED = "prepared"
    """After preparation: everything."""


PciId = Annotated[
    str, matches(r"[0-9a-f]{4}:[0-9a-f]{4}", "write vendor and device like 10de:2330")
]
Version = Annotated[str, matches(r"[0-9]+(\.[0-9]+){1,3}", "write numbers like 6.12")]
Number = Annotated[str, matches(r"[0-9]{1,2}", "write a number as text, like '1'")]


class Expects(Strict):
    """What is compared with. A value that is absent is not compared."""

    gpus: Mapping[Number, PciAddress]
    """PCI address by module number."""
    switches: tuple[PciAddress, ...] = ()
    extra_functions: tuple[PciAddress, ...] = ()
    gpu_pci_id: PciId | None = None
    switch_pci_id: PciId | None = None
    extra_pci_id: PciId | None = None
    gpu_bars_mib: Mapping[Number, int] = Field(default_factory=dict)
    memory_gib: int | None = None
    numa_nodes: int | None = None
    huge_pages_1g: Mapping[Number, int] = Field(default_factory=dict)
    """Pages of 1 GiB that are reserved at boot, by NUMA node."""
    kernel_minimum: Version = KERNEL_MINIMUM
    qemu_minimum: Version = QEMU_MINIMUM
    libvirt_minimum: Version = LIBVIRT_MINIMUM
    vfio: VfioBackend = VfioBackend.AUTO
    partitions: int | None = None
    disk_gib: int = DISK_GIB
    clock_offset_seconds: int = CLOCK_OFFSET_SECONDS

    @model_validator(mode="after")
    def _each_function_once(self) -> Expects:
        if twice := repeated(self.functions):
            raise ValueError(f"gpus: {', '.join(twice)} stands more than once; name it once")
        return self

    @property
    def functions(self) -> tuple[str, ...]:
        """All functions that leave the host for a VM."""
        return (*self.gpus.values(), *self.switches, *self.extra_functions)

    def name(self, address: str) -> str:
        """A function as an operator knows it."""
        names = {gpu: f"GPU {module} ({gpu})" for module, gpu in self.gpus.items()}
        names |= {switch: f"NVSwitch {switch}" for switch in self.switches}
        names |= {extra: f"extra function {extra}" for extra in self.extra_functions}
        return names.get(address, address)

    def wanted_id(self, address: str) -> str | None:
        """The PCI id that the function at an address must have, if it is known."""
        if address in self.gpus.values():
            return self.gpu_pci_id
        if address in self.switches:
            return self.switch_pci_id
        # Beside the platform's own there may be functions that only this machine has in the group.
        return self.extra_pci_id if len(self.extra_functions) == 1 else None


class PreflightInputs(Strict):
    """Inputs of the resource `Preflight`."""

    connection: HostConnection
    stage: Stage
    expects: Expects

    @property
    def natural_id(self) -> str:
        return f"{self.connection.host}/preflight-{self.stage}"


class FleetMachine(Strict):
    """One machine, and what it must be."""

    connection: HostConnection
    expects: Expects


class FleetInputs(Strict):
    """Inputs of the resource `FleetPreflight`."""

    cluster: Name
    machines: tuple[FleetMachine, ...]

    @model_validator(mode="after")
    def _each_machine_once(self) -> FleetInputs:
        if twice := repeated(machine.connection.host for machine in self.machines):
            raise ValueError(f"machines: {', '.join(twice)} stands more than once; name it once")
        return self

    @property
    def natural_id(self) -> str:
        return f"{self.cluster}/fleet"


def expects_of(
    preset: Preset,
    board: Board,
    *,
    memory_gib: int | None = None,
    huge_pages_1g: Sequence[int] = (),
    vfio: VfioBackend = VfioBackend.AUTO,
    partitions: int | None = None,
) -> Expects:
    """What a machine of a platform must be, with its own addresses.

    `memory_gib` None: the preset's word; `huge_pages_1g`: by NUMA node, in their order; `partitions`: of the
    board's table, if it is not its platform's.
    """
    table = TABLES.get(preset.baseboard)
    return Expects(
        gpus={str(module): address for module, address in sorted(board.gpus.items())},
        switches=board.switches,
        extra_functions=board.extra_functions,
        gpu_pci_id=preset.gpu_pci_id,
        switch_pci_id=preset.switch_pci_id,
        extra_pci_id=preset.extra_pci_id,
        gpu_bars_mib={str(n): mib for n, mib in preset.gpu_bars_mib.items()},
        memory_gib=preset.memory_gib if memory_gib is None else memory_gib,
        numa_nodes=preset.numa_nodes,
        huge_pages_1g={str(node): pages for node, pages in enumerate(huge_pages_1g) if pages},
        vfio=vfio,
        partitions=len(table.partitions) if table and partitions is None else partitions,
    )


OFF_THE_BUS = 0xFF
"""What every byte of the configuration space reads as when a PCI function does not answer."""
UNKNOWN_HEADER = 0x7F
"""The header type that `lspci` complains of then: 0xff without its multi-function bit."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A region of a PCI function as the kernel's `resource` file has it; size 0: not placed."""

    start: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PciFact:
    """One PCI function. What was not looked at is None or empty."""

    address: str
    pci_id: str
    """`vendor:device`, as the kernel found it when it enumerated the bus."""
    class_code: str
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
    memory_kib: int
    huge_pages_1g: int
    """How many pages of 1 GiB it has reserved, free or not."""


@dataclass(frozen=True, slots=True)
class FabricFact:
    """What the fabric manager's client said; only asked of a cluster that runs."""

    exit_status: int
    output: str

    @classmethod
    def parse(cls, status: str, encoded: str = "") -> FabricFact:
        """Exit status, and output in base64."""
        return cls(int(status), b64decode(encoded, validate=True).decode(errors="replace"))


def _of(read: Callable[..., Any]) -> BeforeValidator:
    """What the script prints on one line: made of its words."""
    return BeforeValidator(lambda line: read(*line.split()) if isinstance(line, str) else line)


def _qemu(said: Any) -> Any:
    found = re.search(r"version ([0-9]+(?:\.[0-9]+)+)", said or "")
    return found[1] if found else said if re.fullmatch(r"[0-9.]+", said or "") else None


class HostFacts(Facts):
    """One machine at one moment: what `preflight.sh` prints."""

    root: bool = True
    """Whether the account could use `sudo` without a password."""
    kernel: str
    command_line: Annotated[tuple[str, ...], _of(lambda *words: words)]
    machine_id: str = ""
    cpu_vendor: str
    """`GenuineIntel` or `AuthenticAMD`."""
    cpu_flags: frozenset[str]
    """Those of `vmx`, `svm`, `hypervisor`, `pdpe1gb` that the processor has."""
    acpi_tables: frozenset[str] = frozenset()
    """Those of `DMAR` (Intel VT-d) and `IVRS` (AMD-Vi) that the firmware hands over."""
    memory_kib: int
    numa: Mapping[
        int, Annotated[NumaFact, _of(lambda kib, pages: NumaFact(int(kib), int(pages)))]
    ] = {}
    functions: Mapping[str, PciFact] = {}
    iommu_groups: int
    """How many there are; 0 while the IOMMU is off."""
    modules: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    """Device nodes for virtual machines and GPUs that exist."""
    holders: Mapping[int, str] = {}
    """Processes that have a GPU open through a driver of the host: program by id, empty if not readable."""
    packages: Mapping[str, str] = {}
    """Version by name, of installed packages that concern virtual machines or GPUs."""
    qemu: Annotated[str | None, BeforeValidator(_qemu)] = None
    libvirt: Annotated[str | None, BeforeValidator(lambda said: said or None)] = None
    firmware: frozenset[str] = frozenset()
    commands: frozenset[str] = frozenset()
    """Programs that are there, of those that preparation calls."""
    free_gib: int | None = None
    clock_offset_seconds: float = 0
    """How far its clock is ahead of ours."""
    fabric: Annotated[FabricFact | None, _of(FabricFact.parse)] = None

    def group_members(self, group: str) -> tuple[PciFact, ...]:
        """The functions of an IOMMU group, in the order of their addresses."""
        found = (f for f in self.functions.values() if f.iommu_group == group)
        return tuple(sorted(found, key=lambda f: f.address))
