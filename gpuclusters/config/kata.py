"""`kata`, `device-access` and `gpu-operator`: what turns a pod into a VM with GPUs."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field

from gpuclusters.config.base import Flag, Integer, Mib, Seconds, Section, Text, checked, refusal
from gpuclusters.config.kubernetes import Distribution
from gpuclusters.domain import kata

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


class Kata(Section):
    """Kata Containers as it is installed on the machines."""

    shim: kata.Shim = kata.Shim.GO
    """The shim; the RuntimeClass is called kata-<shim>."""
    create_container_timeout_seconds: Annotated[Seconds, checked(5)] = 1200
    """create_container_timeout of its configuration."""
    cdi_timeout_seconds: Annotated[Seconds, checked(5)] = 600
    """agent.cdi_timeout on the guest's command line; Kata's default of 100 is too short for 8 GPUs."""
    dial_timeout_seconds: Annotated[Seconds, checked(5)] = 1200
    """dial_timeout (Go) or reconnect_timeout_ms (Rust), in seconds: how long the VM may boot."""
    deployment_mode: Annotated[kata.DeploymentMode, checked(14)] = kata.DeploymentMode.DAEMONSET
    """deploymentMode of the chart kata-deploy. Changing it means removing and installing the chart."""
    multi_install_suffix: Annotated[str, checked(14)] = ""
    """env.multiInstallSuffix of the chart. Changing it means removing and installing the chart."""
    distribution: Annotated[Distribution | None, checked(6)] = None
    """k8sDistribution of the chart; by default the cluster's own."""
    node_feature_discovery: Annotated[Flag, checked(6)] = False
    """node-feature-discovery.enabled of the chart."""
    snapshotter: Annotated[Snapshotter, checked(7)] = Snapshotter.OVERLAYFS
    """Snapshotter of Kata pods; erofs needs containerd 2.2."""
    guest_image: Annotated[GuestImage, checked(2)] = GuestImage.KATA
    """Whose image boots: Kata's own, or one that you built with another driver."""
    overhead: Overhead = Field(default_factory=Overhead)
    """What a VM takes beside its containers."""


class Mechanism(StrEnum):
    """How a pod asks for GPUs."""

    DEVICE_PLUGIN = "device-plugin"
    DRA = "dra"


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

    mechanism: Annotated[Mechanism, checked(6)] = Mechanism.DEVICE_PLUGIN
    """device-plugin. Kata cannot yet read claims of Dynamic Resource Allocation (dra)."""
    resource_name: CdiKind = "nvidia.com/pgpu"
    """Extended resource that pods ask for and quotas count."""
    cdi_kind: CdiKind = "nvidia.com/pgpu"
    """Kind of the CDI specs; equal to resource-name, because Kata joins the two."""


class SandboxMode(StrEnum):
    """sandboxWorkloads.mode of the GPU Operator."""

    KATA = "kata"
    KUBEVIRT = "kubevirt"


class CcMode(StrEnum):
    """ccManager.defaultMode of the GPU Operator."""

    ON = "on"
    OFF = "off"


class OperatorResource(StrEnum):
    """A custom resource that tells the GPU Operator what to run."""

    CLUSTER_POLICY = "cluster-policy"
    GPU_CLUSTER = "gpu-cluster"


class GpuOperator(Section):
    """The GPU Operator, if the cluster has one. It must not do what this program does."""

    sandbox_mode: Annotated[SandboxMode, checked(6)] = SandboxMode.KATA
    """sandboxWorkloads.mode; the operator's own default is kubevirt."""
    default_cc_mode: Annotated[CcMode, checked(6)] = CcMode.OFF
    """ccManager.defaultMode; the operator's own default is "on", with which plain Kata pods never start."""
    node_feature_discovery: Annotated[Flag, checked(6)] = True
    """nfd.enabled."""
    custom_resources: Annotated[tuple[OperatorResource, ...], checked(6)] = (
        OperatorResource.CLUSTER_POLICY,
    )
    """Custom resources that exist; cluster-policy and gpu-cluster exclude each other."""
    sandbox_device_plugin: Annotated[Flag, checked(6)] = False
    """Whether the operator runs its own device plugin for Kata."""
    sandbox_device_plugin_alias: Annotated[Text, checked(6)] = "pgpu"
    """P_GPU_ALIAS of that plugin: it announces nvidia.com/<alias>."""
