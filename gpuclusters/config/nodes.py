"""`nodes`, `partition-layout`, `preparation`: the HGX machines, how boards are cut, what they boot with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from gpuclusters.boot import command_line
from gpuclusters.boot.model import Cpu, RebootPolicy
from gpuclusters.config.base import (
    Count,
    DnsLabel,
    Flag,
    Gib,
    Integer,
    PciAddress,
    PemCertificate,
    Section,
    Text,
    Version,
    https_url,
    refusal,
)
from gpuclusters.maintenance.decide import Drain

MIXED = "mixed"
BY_LEASE = "by-lease"
ModuleNumber = Literal["1", "2", "3", "4", "5", "6", "7", "8"]


_LARGEST = 1000
"""No board has as many GPUs; what is smaller and wrong is explained by the rules of row 1."""


def _sizes(*words: str) -> BeforeValidator:
    """Sizes of partitions, or one of these words."""

    def read(value: Any) -> Any:
        if isinstance(value, str) and value in words:
            return value
        if not isinstance(value, list | tuple):
            more = ", mixed if every node states its own, or by-lease if leases choose freely"
            raise refusal(
                f"is not a list of partition sizes{''.join(f', nor {word}' for word in words)}",
                f"write sizes that add up to 8, for example [4, 2, 1, 1]{more if words else ''}",
            )
        if any(isinstance(one, bool) or not isinstance(one, int) for one in value):
            raise refusal("has entries that are not whole numbers", "write numbers: [4, 2, 1, 1]")
        if any(abs(one) > _LARGEST for one in value):
            raise refusal("has sizes that no board has", "write numbers: [4, 2, 1, 1]")
        return value

    kinds = list[int] | Literal["mixed", "by-lease"] if words else list[int]
    return BeforeValidator(read, json_schema_input_type=kinds)


PartitionNumber = Annotated[Integer, Field(ge=0, le=63)]
Sizes = Annotated[tuple[Integer, ...], _sizes()]
Layout = Annotated[tuple[Integer, ...] | Literal["mixed", "by-lease"], _sizes(MIXED, BY_LEASE)]


def _without_slash(value: str) -> str:
    return value.rstrip("/")


class Bmc(Section):
    """A machine's management controller, whose Redfish service is asked for firmware versions.

    Its password is the secret `gpu-clusters:bmc-password`.
    """

    url: Annotated[Text, https_url("https://10.21.0.11"), AfterValidator(_without_slash)]
    """Address of its Redfish service, within network.bmc-cidrs."""
    user: Text
    """Account; reading is enough."""
    certificate: PemCertificate | None = None
    """Certificate that it must show, in PEM; without it, one of a public authority."""


class TablePartition(Section):
    """One line of a board's partition table."""

    id: PartitionNumber
    """Its number, `partitionId` in the output of `fmpm -l`."""
    gpus: tuple[Annotated[Integer, Field(ge=1, le=16)], ...]
    """Its GPUs by module number, `physicalId` in that output."""


class Node(Section):
    """One HGX machine. What it does not say comes from the platform's preset."""

    name: DnsLabel
    """Name of the node in Kubernetes and of its machine under `hosts`."""
    gpus: Mapping[ModuleNumber, PciAddress] | None = None
    """PCI address of each GPU by module number, "1" to "8": the slot on the baseboard as
    `nvidia_gpu_tools.py --query-module-name` reports it, not the order on the bus."""
    switches: tuple[PciAddress, ...] | None = None
    """PCI addresses of the NVSwitches; they go to the service VM, all of them. None on hgx-b200."""
    extra_functions: tuple[PciAddress, ...] | None = None
    """PCI functions that go to the service VM beside the switches: on Supermicro the memory controller
    11f8:4128 of their IOMMU group; on hgx-b200 the four ConnectX-7 functions that manage the switches."""
    partition_layout: Sizes | None = None
    """Sizes of this node's partitions; stated if the cluster's partition-layout is mixed."""
    partitions: tuple[PartitionNumber, ...] | None = None
    """Numbers of the partitions themselves, in the baseboard's table, instead of a layout of sizes."""
    memory_gib: Gib | None = None
    """RAM of the machine, in GiB."""
    hugepages_gib_per_numa_node: (
        tuple[Annotated[Integer, Field(ge=0, le=1_048_576)], ...] | None
    ) = None
    """1-GiB huge pages that the machine reserves at boot, one number for each NUMA node."""
    kernel: Version | None = None
    """Version of the machine's Linux kernel; before 6.12 mapping GPUs takes longer (a warning)."""
    maintenance: Drain | None = None
    """Take the machine out of service: wait until its containers end, or evict them. Nothing new is placed on
    it; `up` ends when all its GPUs are free or in quarantine. Leave it out when the machine may serve."""
    bmc: Bmc | None = None
    """Its management controller; the lab's machines have their own."""


PACKAGES = (
    "qemu-system-x86",
    "qemu-utils",
    "libvirt-daemon-system",
    "libvirt-clients",
    "ovmf",
    "genisoimage",
    "psmisc",
    "pciutils",
)
"""What a machine needs, by its Debian name; the script knows the names of the RHEL family."""


def _argument(value: str) -> str:
    try:
        return command_line.check(value)
    except ValueError:
        raise refusal(
            "is not one kernel argument",
            "write name or name=value, without blanks and quotes",
        ) from None


Argument = Annotated[Text, AfterValidator(_argument)]


class Preparation(Section):
    """What is set on every machine before it passes GPUs through: kernel, drivers, packages, limits."""

    reboot: RebootPolicy = RebootPolicy.REFUSE
    """allow: a machine whose kernel lacks an argument is rebooted, never while a VM has a GPU. refuse: the
    arguments are set for the next boot, and the step says which command reboots."""
    reboot_timeout_seconds: Annotated[Integer, Field(ge=60, le=7200)] = 1200
    """How long a machine may take from the order to reboot until it answers again; HGX machines test their
    memory for minutes."""
    cpu: Cpu = Cpu.INTEL
    """Whose processors the machines have: which argument switches on the IOMMU."""
    early_claim: Flag = False
    """Whether vfio-pci also claims by PCI id while the kernel starts (vfio-pci.ids). It takes every
    function with the id, wanted or not; only for machines on which another driver is faster than the unit."""
    disable_idle_d3: Flag = True
    """Whether vfio-pci leaves unused GPUs awake (disable_idle_d3)."""
    dma_entry_limit: Annotated[Integer | None, Field(ge=1024, le=10_000_000)] = None
    """Mappings that one VM may have (dma_entry_limit of vfio_iommu_type1); the kernel's own is 65535."""
    inotify_instances: Count = 8192
    """fs.inotify.max_user_instances: kubelet, containerd and every Kata shim take some."""
    inotify_watches: Annotated[Integer, Field(ge=8192, le=10_000_000)] = 1_048_576
    """fs.inotify.max_user_watches."""
    extra_kernel_arguments: tuple[Argument, ...] = ()
    """Arguments of your own behind ours, such as pci=realloc."""
    package_versions: Mapping[Text, Text] = Field(default_factory=dict)
    """Version of a package by its name, as the machine's package manager writes both; others are installed in
    the newest version that the machine's sources have, once."""
