"""`kata` and `device-access`: what turns a pod into a VM with GPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from gpuclusters.cdi.model import VfioBackend
from gpuclusters.config.charts import Chart
from gpuclusters.core.section import (
    Flag,
    Integer,
    Mib,
    Seconds,
    Section,
    Sha256,
    Text,
    matches,
    refusal,
)
from gpuclusters.kata import model as kata

_VENDOR_OR_CLASS = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?")


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


_SUFFIX = (
    "is not part of a Kubernetes name",
    "write at most 20 lower-case letters, digits and '-', with a letter or digit at both ends",
)
Suffix = Annotated[str, matches("([a-z0-9]([-a-z0-9]{0,18}[a-z0-9])?)?", *_SUFFIX)]
KubeletRoot = Annotated[
    Text, matches('/[^" ]*(?<!/)', "is not a folder", "write it from the root: /var/lib/kubelet")
]


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


def _cdi_kind(value: str) -> str:
    vendor, slash, device_class = value.partition("/")
    if not slash or "/" in device_class:
        raise refusal("is not vendor/class", "write for example nvidia.com/pgpu")
    for part in (vendor, device_class):
        if not _VENDOR_OR_CLASS.fullmatch(part):
            raise refusal(
                "has a vendor or class that CDI refuses",
                "begin each with a letter, end it with a letter or digit, and use letters, digits, "
                "'_', '.' and '-' between: nvidia.com/pgpu",
            )
    if len(device_class) > 63 or len(vendor) > 253:
        raise refusal(
            "is too long for CDI", "write at most 253 characters, a slash, at most 63 characters"
        )
    return value


CdiKind = Annotated[Text, AfterValidator(_cdi_kind)]


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
