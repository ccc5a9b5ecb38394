"""`kubernetes`: the cluster that the machines belong to, and what its kubelets and containerds are told."""

from __future__ import annotations

from enum import StrEnum
from ipaddress import IPv4Network
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gpuclusters.compat.versions import CONTAINERD_CDI_DEFAULT, older
from gpuclusters.config.rke2 import Rke2Settings, Rke2Version
from gpuclusters.core.section import DnsName, Network, Seconds, Section, Version, refusal
from gpuclusters.host import drop_ins
from gpuclusters.host.drop_ins import ContainerdSchema
from gpuclusters.rke2 import host_config


class Distribution(StrEnum):
    """Who packaged Kubernetes; decides where its containerd keeps its configuration."""

    K8S = "k8s"
    K3S = "k3s"
    RKE2 = "rke2"
    K0S = "k0s"
    MICROK8S = "microk8s"


class PodSecurityLevel(StrEnum):
    """A level of Pod Security Admission that isolates; `privileged` does not and is refused."""

    BASELINE = "baseline"
    RESTRICTED = "restricted"
    PRIVILEGED = "privileged"


def _isolates(level: PodSecurityLevel) -> PodSecurityLevel:
    if level is PodSecurityLevel.PRIVILEGED:
        wrong = "lets tenants' pods use hostNetwork and hostPath, past their VM and its policies"
        raise refusal(wrong, "write restricted, or baseline")
    return level


class Kubelet(Section):
    """Settings of every kubelet, written as a drop-in."""

    runtime_request_timeout_seconds: Seconds | None = None
    """How long the kubelet waits for containerd. The default of Kubernetes, 120, is too short for a VM with
    GPUs; by default derived from the largest VM (docs/kata.md)."""


class Containerd(Section):
    """Settings of every containerd, written as a drop-in."""

    version: Version = "2.3.0"
    """Version that runs on the machines: before 2.0 the drop-in switches CDI on."""
    config_version: ContainerdSchema | None = None
    """`version` of the main configuration file; by default "2" for containerd 1.x, and "3". A drop-in with
    ids of the other version is ignored silently."""
    image_pull_progress_timeout_seconds: Seconds = 1800
    """How long a pull may stand still; images with CUDA have 20 GB."""

    @property
    def is_old(self) -> bool:
        """Whether it reads no CDI specs by itself, and no configuration of version 3."""
        return older(self.version, CONTAINERD_CDI_DEFAULT)

    @property
    def drop_in(self) -> str:
        """Text of its drop-in."""
        default = ContainerdSchema.V2 if self.is_old else ContainerdSchema.V3
        return drop_ins.containerd(
            schema=self.config_version or default,
            enable_cdi=self.is_old,
            image_pull_progress_timeout_seconds=self.image_pull_progress_timeout_seconds,
        )


class _Kubernetes(Section):
    version: Version = "1.34.2"
    """Version of the API server; the Pod Security levels are pinned to it. Before 1.34 the drop-in of the
    kubelets switches on KubeletPodResourcesGet, from which Kata learns which GPUs a pod was given."""
    distribution: Distribution = Distribution.K8S
    """Who packaged it."""
    pod_cidr: Network = IPv4Network("10.244.0.0/16")
    """Addresses of pods. Closed to tenants beside their own; the fabric manager must not be in it."""
    service_cidr: Network = IPv4Network("10.96.0.0/12")
    """Addresses of services. Closed to tenants beside what is theirs."""
    cluster_domain: DnsName = "cluster.local"
    """DNS domain of services."""
    pod_security: Annotated[PodSecurityLevel, AfterValidator(_isolates)] = (
        PodSecurityLevel.RESTRICTED
    )
    """Pod Security level that tenants' namespaces enforce: restricted or baseline."""
    kubelet: Kubelet = Field(default_factory=Kubelet)
    """Settings of the kubelets."""
    containerd: Containerd = Field(default_factory=Containerd)
    """Settings of containerd."""


class ExistingKubernetes(_Kubernetes):
    """A cluster that you have, reached with the secret `gpu-clusters:kubeconfig`."""

    source: Literal["existing"]
    """Where the cluster comes from."""


class LabKubernetes(_Kubernetes):
    """The control plane of the lab on this computer."""

    source: Literal["lab"]
    """Where the cluster comes from."""


class Rke2Kubernetes(Rke2Settings, _Kubernetes):
    """A cluster that is made on your machines with RKE2: servers of their own, and the nodes as agents."""

    source: Literal["rke2"]
    """Where the cluster comes from."""
    version: Rke2Version
    """Release of RKE2. Another one upgrades the servers one at a time and then the agents; by one minor."""
    distribution: Distribution = Distribution.RKE2
    """Who packaged it."""
    pod_cidr: Network = host_config.POD_CIDR
    """Addresses of pods; each node takes a /24 of it. They never change."""
    service_cidr: Network = host_config.SERVICE_CIDR
    """Addresses of services; they never change."""


Kubernetes = Annotated[
    ExistingKubernetes | LabKubernetes | Rke2Kubernetes, Field(discriminator="source")
]
