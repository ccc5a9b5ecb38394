"""The section of an `rke2` cluster: RKE2 on your machines, or one that you have, with the GPU Operator."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, Strict, WithJsonSchema

from gpuclusters.boot.model import RebootPolicy
from gpuclusters.compat import gpu_products
from gpuclusters.compat.containerd_places import ContainerdDistribution
from gpuclusters.compat.rke2_matrix import ModulesPolicy, OperatingSystem
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.config.hosts import AdoptedMachines, ExistingHosts, LabHosts
from gpuclusters.config.kubernetes import (
    CiliumSettings,
    FileChart,
    LabChart,
    Mtu,
    RegistryChart,
    Rke2Common,
    Rke2Version,
)
from gpuclusters.config.rke2_proof import Proof, ProofL0
from gpuclusters.core.section import (
    Count,
    DnsLabel,
    Flag,
    Gib,
    Integer,
    Network,
    Seconds,
    Section,
    Text,
    matches,
    refusal,
)
from gpuclusters.driver.model import PackageSource
from gpuclusters.rke2 import host_config

DriverVersion = Annotated[Text, matches(r"[0-9]{3}\.[0-9]{1,3}(\.[0-9]{1,3})?", "driver-version")]
DriverBranch = Annotated[Integer, Field(ge=400, le=999)]


class _AnyDriver(Section):
    branch: DriverBranch | None = None
    """Branch, 580 for example; by default the newest one with long support that all GPUs have."""
    version: DriverVersion | None = None
    """Exact version; by default the newest one of the branch that is known here (docs/rke2.md)."""
    modules: ModulesPolicy = ModulesPolicy.AUTO
    """Kernel modules: open, proprietary, or auto, which decides by the GPUs of each pool."""


class HostDriver(_AnyDriver):
    """Packages on the hosts, pinned; the operator leaves the driver alone."""

    source: Literal["host"]
    """Who installs the driver."""
    packages: PackageSource = PackageSource.DISTRIBUTION
    """Whose packages: distribution or nvidia."""
    reboot: RebootPolicy = RebootPolicy.ALLOW
    """Whether hosts may be restarted for it: allow or refuse."""


class OperatorDriver(_AnyDriver):
    """Containers of the GPU Operator, which build the kernel modules on every node."""

    source: Literal["operator"]
    """Who installs the driver."""
    package_mirror: DnsLabel | None = None
    """ConfigMap in the operator's namespace with the package sources of the operating system
    (driver.repoConfig), for networks without access to them."""


class PrecompiledDriver(Section):
    """Containers of the GPU Operator with modules that are built for the kernels already."""

    source: Literal["precompiled"]
    """Who installs the driver."""
    branch: DriverBranch
    """Branch; the container's tag ends with the kernel that runs."""
    repository: Text | None = None
    """Where the containers are; by default NVIDIA's, on SLES SUSE's."""
    secure_boot_signed: Flag = False
    """Whether the modules in it are signed with a key that the hosts' firmware knows."""


class PreinstalledDriver(Section):
    """Is on the nodes already, by whoever made them; the operator leaves it alone."""

    source: Literal["preinstalled"]
    """Who installs the driver."""
    version: DriverVersion
    """Version that is there, for the support matrix and for the images of the proof."""


Driver = Annotated[HostDriver | OperatorDriver | PrecompiledDriver, Field(discriminator="source")]
NodesDriver = Annotated[
    PreinstalledDriver | OperatorDriver | PrecompiledDriver, Field(discriminator="source")
]
OWN_MODULES = PrecompiledDriver | PreinstalledDriver
"""Drivers whose kernel modules somebody else has chosen."""


_KEY = r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_VALUE = r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?"
_TAINT = f"{_KEY}(={_VALUE})?:(NoSchedule|PreferNoSchedule|NoExecute)"


def _product(value: str) -> str:
    try:
        gpu_products.product(value)
    except KeyError:
        if re.fullmatch(gpu_products.BY_PCI_ID, value):
            raise refusal("gpu-pci-id") from None
        known = gpu_products.names()
        asked = value[:60].lower()
        near = [name for name in known if name.startswith(asked)] or difflib.get_close_matches(
            asked, known, n=3, cutoff=0.4
        )
        raise refusal("gpu-product", near=near or known) from None
    return value


GpuProduct = Annotated[
    str,
    Strict(),
    AfterValidator(_product),
    WithJsonSchema(
        {
            "type": "string",
            "anyOf": [
                {"enum": list(gpu_products.names())},
                {"pattern": f"^{gpu_products.BY_PCI_ID}$"},
            ],
        }
    ),
]
LabelKey = Annotated[str, Strict(), matches(_KEY, "label-key")]
LabelValue = Annotated[str, Strict(), matches(_VALUE, "label-value")]
Taint = Annotated[Text, matches(_TAINT, "taint")]


class PoolGpu(Section):
    """The GPUs of each machine of a pool."""

    product: GpuProduct
    """What they are: a100-sxm4-80gb, h100-sxm5-80gb, l40s, … (docs/rke2.md has the list), or PCI id and
    memory of one that is not there, 10de:2503-12gb."""
    count: Annotated[Integer, Field(ge=1, le=16)]
    """How many each machine has; a node that shows fewer is not ready."""
    nvswitch: Flag | None = None
    """Whether they are connected by NVSwitches, which need the fabric manager; by default what machines with
    that many of them have."""


class PoolDriver(Section):
    """Where a pool's driver differs from `driver`, for GPUs that others' driver does not know."""

    branch: DriverBranch | None = None
    """Branch, 580 for example."""
    version: DriverVersion | None = None
    """Exact version."""
    modules: ModulesPolicy | None = None
    """Open or proprietary kernel modules."""


class Pool(Section):
    """Machines that are alike."""

    name: DnsLabel
    """Name of the pool; its nodes carry it as the label gpu-clusters.dev/pool."""
    nodes: tuple[DnsLabel, ...]
    """Its machines, by name. One that is a server too carries GPUs on a server, which is warned of."""
    gpu: PoolGpu | None = None
    """Its GPUs; none if it is not stated."""
    labels: dict[LabelKey, LabelValue] = Field(default_factory=dict)
    """Labels of its nodes."""
    taints: tuple[Taint, ...] = ()
    """Taints of its nodes at their first registration; the GPU Operator is made to tolerate them."""
    mig: Annotated[Text | None, Field(max_length=63)] = None
    """Name of a MIG layout: all-1g.10gb, all-balanced, all-disabled, or one of sharing.layouts."""
    driver: PoolDriver | None = None
    """Where its driver differs from the cluster's."""
    operating_system: OperatingSystem | None = None
    """What its machines run, if it differs from the cluster's operating-system."""


def parse_taint(text: str) -> dict[str, Any]:
    """A taint as Kubernetes has it: key, value, effect."""
    stated, _, effect = text.rpartition(":")
    key, _, value = stated.partition("=")
    return {"key": key, "value": value, "effect": effect}


class Canal(Section):
    """Flannel's VXLAN with Calico's policies, RKE2's own default. The hosts' firewalld must be off."""

    kind: Literal["canal"]
    """Name of the CNI."""
    wireguard: Flag = False
    """Whether traffic between nodes is encrypted, by flannel's backend wireguard."""
    mtu: Mtu | None = None
    """MTU of the pods' network; found by itself if it is not stated."""


class Calico(Section):
    """Calico by its operator, with VXLAN."""

    kind: Literal["calico"]
    """Name of the CNI."""
    mtu: Mtu | None = None
    """MTU of the pods' network; found by itself if it is not stated."""


class Flannel(Section):
    """Flannel alone: no network policies, also not those of `profile: cis`."""

    kind: Literal["flannel"]
    """Name of the CNI."""


class CiliumCni(CiliumSettings):
    """Cilium, in place of kube-proxy or beside it."""

    kind: Literal["cilium"]
    """Name of the CNI."""
    kube_proxy_replacement: Flag = True
    """kubeProxyReplacement: services without kube-proxy, which is not started then."""
    dns_proxy: Flag = True
    """Whether Cilium's DNS proxy runs; rules by host name need it."""


Cni = Annotated[Canal | Calico | Flannel | CiliumCni, Field(discriminator="kind")]


OperatorVersion = Annotated[Text, matches(r"v[0-9]{2}\.[0-9]{1,2}\.[0-9]{1,3}", "operator-version")]
HelmChart = Annotated[RegistryChart | FileChart | LabChart, Field(discriminator="source")]


class Operator(Section):
    """The GPU Operator as a Helm release."""

    version: OperatorVersion
    """Release, with the leading v. Another one upgrades it in place, by one major at a time."""
    chart: HelmChart | None = None
    """Where the chart comes from; by default the lab's in the lab, else NVIDIA's repository."""
    namespace: DnsLabel = "gpu-operator"
    """Its namespace, made by this program with the Pod Security level privileged."""
    node_feature_discovery: Flag = True
    """nfd.enabled: whether the chart brings Node Feature Discovery. Off if the cluster has one."""
    nri_plugin: Flag = False
    """cdi.nriPluginEnabled: GPUs without any change of containerd. Experimental says NVIDIA."""
    values: Mapping[Text, Any] = Field(default_factory=dict)
    """More values of the chart, merged over what this program derives. Every key is checked against the
    chart's own, which accepts typos silently."""


Replicas = Annotated[Integer, Field(ge=2, le=64)]
ProfileName = Annotated[Text, Field(max_length=20)]


class MigStrategy(StrEnum):
    """How the device plugin names slices."""

    SINGLE = "single"
    """nvidia.com/gpu counts slices; all of a node are of one profile."""
    MIXED = "mixed"
    """nvidia.com/mig-<profile>, and nvidia.com/gpu for GPUs that are not cut."""


class NotShared(Section):
    """A pod gets whole GPUs."""

    kind: Literal["none"]
    """How GPUs are shared."""


class MigDevices(Section):
    """Some GPUs of a node, and the slices of each."""

    devices: (
        Annotated[tuple[Annotated[Integer, Field(ge=0, le=15)], ...], Field(min_length=1)] | None
    ) = None
    """Which GPUs, by index from 0; all if it is not stated."""
    profiles: dict[ProfileName, Annotated[Integer, Field(ge=1, le=7)]] = Field(default_factory=dict)
    """How many slices of each profile every one of them has; none: they are not cut."""


class Mig(Section):
    """GPUs are cut in hardware; each pool names its layout with `mig`."""

    kind: Literal["mig"]
    """How GPUs are shared."""
    strategy: MigStrategy | None = None
    """single or mixed; by default mixed if any node has several profiles or also whole GPUs."""
    layouts: dict[DnsLabel, tuple[MigDevices, ...]] = Field(default_factory=dict)
    """Layouts of your own, by name, beside all-<profile>, all-balanced and all-disabled."""
    evict: Flag = False
    """Whether pods that use a GPU may be ended for another layout; without it the change is refused while
    there are any."""
    reboot: Flag = False
    """WITH_REBOOT of the MIG manager: clouds need a restart of the machine to switch MIG on."""


class _Shared(Section):
    replicas: Replicas
    """How many pods share one GPU."""
    pools: tuple[DnsLabel, ...] | None = None
    """Pools whose GPUs are shared; all with GPUs if it is not stated."""
    rename: Flag = False
    """Whether the resource is called nvidia.com/gpu.shared, so that nobody gets a share unknowingly."""


class TimeSlicing(_Shared):
    """Pods take turns on whole GPUs, without isolation of memory or faults."""

    kind: Literal["time-slicing"]
    """How GPUs are shared."""
    refuse_more_than_one: Flag = True
    """failRequestsGreaterThanOne: two shares are not two GPUs, so nobody may ask for two."""


class Mps(_Shared):
    """Pods run on a GPU at the same time by CUDA's Multi-Process Service, which is experimental."""

    kind: Literal["mps"]
    """How GPUs are shared."""


Sharing = Annotated[NotShared | Mig | TimeSlicing | Mps, Field(discriminator="kind")]


class NoMetrics(Section):
    """Nobody; the exporters run, and no ServiceMonitor is made."""

    kind: Literal["none"]
    """Who collects."""


class Volume(Section):
    """Where Prometheus keeps its samples; without one they end with its pod."""

    storage_class: DnsLabel
    """StorageClass of the volume."""
    size_gib: Gib
    """Its size, in GiB."""


class _Collected(Section):
    version: Text
    """Version of the chart, and of the chart of its CRDs."""
    chart: HelmChart | None = None
    """Where the chart comes from; by default the lab's in the lab, else the project's repository."""
    scrape_interval_seconds: Annotated[Integer, Field(ge=5, le=300)] = 15
    """How often the exporters are asked."""
    retention_days: Count = 15
    """How long Prometheus keeps samples."""
    volume: Volume | None = None
    """Where it keeps them."""
    values: Mapping[Text, Any] = Field(default_factory=dict)
    """More values of the chart, above this program's."""


class KubePrometheusStack(_Collected):
    """Prometheus, Alertmanager and Grafana by the chart kube-prometheus-stack, in namespace monitoring."""

    kind: Literal["kube-prometheus-stack"]
    """Who collects."""


class RancherMonitoring(_Collected):
    """Rancher Monitoring, in cattle-monitoring-system: rancher-monitoring-crd, then rancher-monitoring."""

    kind: Literal["rancher"]
    """Who collects."""
    crd_chart: HelmChart | None = None
    """Where the chart of the CRDs comes from; by default as the chart itself."""


Metrics = Annotated[
    NoMetrics | KubePrometheusStack | RancherMonitoring, Field(discriminator="kind")
]


Hosts = Annotated[ExistingHosts | LabHosts | GcpHosts, Field(discriminator="source")]


class Timeouts(Section):
    """How long each step may take; what it waits for, and what blocks it, is said when it is over."""

    driver_seconds: Seconds = 2400
    """The driver on one host, with its restart."""
    operator_seconds: Seconds = 900
    """The Helm release of the GPU Operator: the operator itself, not what it installs."""
    ready_seconds: Seconds = 3600
    """All GPUs of all nodes, once the operator runs. A driver container alone may take 20 minutes."""
    mig_seconds: Seconds = 1200
    """Another MIG layout of one node."""
    proof_seconds: Seconds = 7200
    """All proofs on all nodes."""


def _source(value: Any) -> Any:
    if value != "rke2":
        raise refusal("cluster-source")
    return value


class NewCluster(Section):
    """RKE2, which this program installs on `hosts`."""

    source: Annotated[Literal["rke2"], BeforeValidator(_source)] = "rke2"
    """Where the cluster comes from: rke2, or existing."""


class ExistingCluster(Section):
    """One that you have, reached with the secret `gpu-clusters:kubeconfig`; no machine is logged in to."""

    source: Literal["existing"]
    """Where the cluster comes from: rke2, or existing."""
    distribution: ContainerdDistribution
    """Who packaged it: decides where its containerd keeps configuration and socket (docs/gpu-operator.md).
    What the nodes say of it is compared."""
    default_runtime: Flag = False
    """Whether NVIDIA's runtime becomes containerd's default (SET_AS_DEFAULT), for containers that name GPUs
    by NVIDIA_VISIBLE_DEVICES and have no RuntimeClass. Any pod gets all GPUs by that then."""


class Rke2Config(Section):
    """A cluster whose nodes have NVIDIA GPUs, wherever it comes from."""

    name: DnsLabel
    """Name of the cluster."""
    kubernetes: NewCluster | ExistingCluster
    """Where the cluster comes from."""
    pools: tuple[Pool, ...] = ()
    """The other machines, by what they have."""
    operating_system: OperatingSystem | None = None
    """What the machines run, for the support matrix and for the tags of driver containers."""
    secure_boot: Flag = False
    """Whether the machines boot with Secure Boot, which refuses kernel modules without a signature."""
    selinux: Flag = False
    """Whether SELinux enforces on the nodes."""
    driver: HostDriver | PreinstalledDriver | OperatorDriver | PrecompiledDriver
    """Who installs the GPU driver, and which."""
    operator: Operator
    """The GPU Operator."""
    sharing: Sharing = Field(default_factory=lambda: NotShared.model_validate({"kind": "none"}))
    """Whether a GPU is one pod's alone."""
    metrics: Metrics = Field(default_factory=lambda: NoMetrics.model_validate({"kind": "none"}))
    """Who collects what the GPUs report."""
    proof: Proof = Field(default_factory=lambda: ProofL0.model_validate({"level": "L0"}))
    """What has to be shown before the cluster is called working."""
    timeouts: Timeouts = Field(default_factory=Timeouts)
    """How long each step may take."""
    adopt: AdoptedMachines = Field(default_factory=AdoptedMachines)
    """What is there already and is taken over."""

    @property
    def own_servers(self) -> tuple[str, ...]:
        """Names of the servers that this program makes."""
        return self.servers if isinstance(self, MadeCluster) else ()


class MadeCluster(Rke2Common, Rke2Config):
    """A cluster by RKE2 whose nodes have NVIDIA GPUs."""

    kubernetes: NewCluster = Field(default_factory=NewCluster)
    """Where the cluster comes from."""
    hosts: Hosts
    """Where the machines come from."""
    version: Rke2Version
    """Release of RKE2. Another one upgrades the servers one at a time and then the agents; by one minor."""
    servers: tuple[DnsLabel, ...]
    """1, 3 or 5 machines, by name; the first one makes the cluster."""
    cni: Cni = Field(default_factory=lambda: Canal.model_validate({"kind": "canal"}))
    """Who connects the pods. It never changes."""
    cluster_cidr: Network = host_config.POD_CIDR
    """Addresses of pods; each node takes a /24 of it. They never change."""
    service_cidr: Network = host_config.SERVICE_CIDR
    """Addresses of services; they never change."""
    registry_auth: tuple[Text, ...] = ()
    """Registries that want a password; the secret `gpu-clusters:registry-credentials` has it for each."""
    air_gap: Flag = False
    """Whether the machines reach nothing but their own network. Everything must come from there then."""
    driver: Driver = Field(default_factory=lambda: HostDriver.model_validate({"source": "host"}))
    """Who installs the GPU driver, and which."""
    protect: Flag = False
    """Whether Pulumi refuses to delete what cannot be made again: the servers with their etcd, the tokens.
    Set it to false and run `up` before they are meant to go."""


class FoundCluster(Rke2Config):
    """A cluster that you have, whose nodes have NVIDIA GPUs."""

    hosts: ClassVar[None] = None
    """No machine of it is logged in to."""
    kubernetes: ExistingCluster
    """Where the cluster comes from."""
    pools: tuple[Pool, ...] = ()
    """Its nodes with GPUs, by what they have. Their labels are not this program's."""
    driver: NodesDriver
    """Who installs the GPU driver, and which."""


def variant(document: Mapping[str, Any]) -> type[Rke2Config]:
    """The model of a section, by where its cluster comes from."""
    kubernetes = document.get("kubernetes")
    source = kubernetes.get("source") if isinstance(kubernetes, Mapping) else None
    return FoundCluster if source == "existing" else MadeCluster


def machine_names(config: Rke2Config) -> tuple[str, ...]:
    """Names of all machines, servers first."""
    pooled = (node for pool in config.pools for node in pool.nodes)
    return tuple(dict.fromkeys((*config.own_servers, *pooled)))
