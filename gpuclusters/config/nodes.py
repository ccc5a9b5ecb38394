"""`nodes`, `preparation`, `service-vm`, `versions`, `kata`, `device-access`: HGX machines and their VMs."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from gpuclusters.cdi.model import VfioBackend
from gpuclusters.config.kubernetes import Chart
from gpuclusters.core.section import (
    DnsLabel,
    Flag,
    Gib,
    Integer,
    Mib,
    PciAddress,
    PemCertificate,
    Seconds,
    Section,
    Sha256,
    Text,
    Version,
    https_url,
    matches,
    refusal,
)
from gpuclusters.fabric.manager_config import FabricSettings, one_of
from gpuclusters.kata import model as kata
from gpuclusters.maintenance.decide import Drain
from gpuclusters.service_vm.model import VmImage, VmSettings

MIXED = "mixed"
BY_LEASE = "by-lease"
ModuleNumber = Literal["1", "2", "3", "4", "5", "6", "7", "8"]


_LARGEST = 1000
"""No board has as many GPUs; what is smaller and wrong is explained by rules."""


def _sizes(*words: str) -> BeforeValidator:
    """Sizes of partitions, or one of these words."""

    def read(value: Any) -> Any:
        if isinstance(value, str) and value in words:
            return value
        if not isinstance(value, list | tuple):
            raise refusal("layout" if words else "sizes")
        if any(isinstance(one, bool) or not isinstance(one, int) for one in value):
            raise refusal("sizes-whole")
        if any(abs(one) > _LARGEST for one in value):
            raise refusal("sizes-known")
        return value

    kinds = list[int] | Literal["mixed", "by-lease"] if words else list[int]
    return BeforeValidator(read, json_schema_input_type=kinds)


PartitionNumber = Annotated[Integer, Field(ge=0, le=63)]
Sizes = Annotated[tuple[Integer, ...], _sizes()]
Layout = Annotated[tuple[Integer, ...] | Literal["mixed", "by-lease"], _sizes(MIXED, BY_LEASE)]


class Bmc(Section):
    """A machine's management controller, whose Redfish service is asked for firmware versions.

    Its password is the secret `gpu-clusters:bmc-password`.
    """

    url: Annotated[
        Text, https_url("https://10.21.0.11"), AfterValidator(lambda url: url.rstrip("/"))
    ]
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


FabricMode = Annotated[Literal[1], one_of((1,), "fabric-mode")]


class ServiceVm(VmSettings, FabricSettings):
    """The VM on each machine that holds the NVSwitches and runs the fabric manager for all tenants."""

    image: VmImage | None = None
    """What it boots; the lab's machines have one."""
    fabric_mode: FabricMode = 1
    """FABRIC_MODE: shared NVSwitch."""
    fabric_mode_restart: Flag = True
    """FABRIC_MODE_RESTART: a restarted fabric manager leaves running partitions alone. Needs state-file."""


class Versions(Section):
    """Versions that must agree with each other. Every one is a number, never `latest`."""

    kata: Version = "4.1.0"
    """Kata Containers on the machines; its guest image brings the GPU driver."""
    guest_driver: Version | None = None
    """NVIDIA driver in the guest image; by default the one of Kata's own image."""
    fabric_manager: Version = "595.58.03"
    """Fabric manager in the service VM: exactly the guest driver's version."""


_VENDOR_OR_CLASS = "[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?"


class GuestImage(StrEnum):
    """Whose image boots in the VMs."""

    KATA = "kata"
    CUSTOM = "custom"


class Snapshotter(StrEnum):
    """Which containerd snapshotter unpacks the images of Kata pods."""

    OVERLAYFS = "overlayfs"
    NYDUS = "nydus"
    EROFS = "erofs"


class Overhead(Section):
    """What a VM takes beside its containers; counted by the scheduler and by quotas."""

    memory_mib: Mib = kata.OVERHEAD_MEMORY_MIB
    """RAM, in MiB."""
    cpu_millicores: Annotated[Integer, Field(ge=1, le=100_000)] = kata.OVERHEAD_CPU_MILLICORES
    """CPU, in thousandths of a core."""


Suffix = Annotated[str, matches("([a-z0-9]([-a-z0-9]{0,18}[a-z0-9])?)?", "name-suffix")]
KubeletRoot = Annotated[Text, matches('/[^" ]*(?<!/)', "kubelet-root")]


class Kata(Section):
    """Kata Containers as it is installed on the machines."""

    chart: Chart | None = None
    """Where the chart kata-deploy comes from; by default the lab's in the lab, else Kata's own registry. Its
    version is versions.kata."""
    shim: kata.Shim = kata.Shim.GO
    """The shim, the only one that is installed; the RuntimeClass is called kata-<shim>."""
    create_container_timeout_seconds: Seconds | None = None
    """create_container_timeout of its configuration; by default derived
    from the largest VM (docs/kata.md)."""
    cdi_timeout_seconds: Seconds | None = None
    """agent.cdi_timeout on the guest's command line, for which Kata's own 100 is too short with 8 GPUs; by
    default derived."""
    dial_timeout_seconds: Seconds | None = None
    """dial_timeout (Go) or reconnect_timeout_ms (Rust), in seconds: how long the VM may boot; by default
    derived."""
    huge_pages: Flag = False
    """Whether VMs' memory is of 1-GiB pages: minutes less for large VMs. Needs
    nodes[].hugepages-gib-per-numa-node; pods then ask for hugepages-1Gi."""
    deployment_mode: kata.DeploymentMode = kata.DeploymentMode.DAEMONSET
    """deploymentMode of the chart. Changing it removes the chart and installs it again."""
    multi_install_suffix: Suffix = ""
    """env.multiInstallSuffix of the chart: also ends the names of RuntimeClass and handler. Changing it
    removes the chart and installs it again."""
    node_feature_discovery: Flag = False
    """node-feature-discovery.enabled of the chart."""
    values: Mapping[Text, Any] = Field(default_factory=dict)
    """More values of the chart, such as tolerations or an image of a mirror."""
    kubelet_root: KubeletRoot | None = None
    """Folder of the kubelets; by default the distribution's. Kata asks there which GPUs a pod was given."""
    snapshotter: Snapshotter | None = None
    """Snapshotter of Kata pods; erofs needs containerd 2.2. By default overlayfs, and nydus for confidential
    shims, whose guests pull their images themselves."""
    guest_image: GuestImage = GuestImage.KATA
    """Whose image boots: Kata's own, or one that you built with another driver."""
    guest_image_sha256: Sha256 | None = None
    """Checksum of the guest image on the machines. Stated, it is compared on every machine after the
    installation; its blocks are verified at every read in any case (dm-verity)."""
    overhead: Overhead = Field(default_factory=Overhead)
    """What a VM takes beside its containers."""

    @property
    def installation(self) -> kata.Installation:
        """What the chart refuses to change."""
        return kata.Installation(self.deployment_mode, self.multi_install_suffix)

    @property
    def runtime_class(self) -> str:
        """Name of the RuntimeClass and of containerd's handler."""
        return self.installation.handler(self.shim)

    @property
    def node_selector(self) -> Mapping[str, str]:
        """Labels of nodes on which pods of the RuntimeClass can start."""
        return self.installation.node_selector(self.shim)


CdiKind = Annotated[
    Text,
    matches("[^/]*/[^/]*", "cdi-kind"),
    matches(f"{_VENDOR_OR_CLASS}/{_VENDOR_OR_CLASS}", "cdi-names"),
    matches(".{,253}/.{,63}", "long-cdi-kind"),
]


class DeviceAccess(Section):
    """How GPUs are named to Kubernetes and to Kata."""

    resource_name: CdiKind = "nvidia.com/pgpu"
    """Extended resource that pods ask for and quotas count."""
    cdi_kind: CdiKind = "nvidia.com/pgpu"
    """Kind of the CDI specs; equal to resource-name, because Kata joins the two."""
    vfio: VfioBackend = VfioBackend.LEGACY
    """Which nodes of /dev a VM opens: legacy (the IOMMU group's), iommufd (the function's own, half a minute
    faster with 8 GPUs), or auto, iommufd where the kernel has it. Numbers of iommufd change at boot: its CDI
    spec lies in /var/run/cdi, is gone after a reboot, and `up` writes it again."""
