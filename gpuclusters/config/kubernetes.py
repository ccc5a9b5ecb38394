"""`kubernetes`: a cluster that you have, the lab's, or one that is made with RKE2; where charts come from."""

from enum import StrEnum
from ipaddress import IPv4Network
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, Strict

from gpuclusters.compat.versions import CONTAINERD_CDI_DEFAULT, older
from gpuclusters.config.hosts import HostAddress, HostKey
from gpuclusters.core.section import (
    Count,
    DnsLabel,
    DnsName,
    Flag,
    Network,
    Port,
    Seconds,
    Section,
    Sha256,
    Text,
    Version,
    holds,
    matches,
)
from gpuclusters.host import drop_ins
from gpuclusters.host.drop_ins import ContainerdSchema
from gpuclusters.rke2 import host_config, releases
from gpuclusters.rke2.host_config import Encryption, PolicyEnforcement
from gpuclusters.rke2.model import MOST_AGENTS_AT_ONCE

ChartRepository = Annotated[Text, matches("(oci|https)://.*", "chart-repository")]


class RegistryChart(Section):
    """A chart that Helm fetches."""

    source: Literal["registry"]
    """Where the chart comes from."""
    repository: ChartRepository | None = None
    """A mirror, `oci://` or `https://`; by default the project's own."""


class FileChart(Section):
    """A chart that lies beside the stack: no registry is asked."""

    source: Literal["file"]
    """Where the chart comes from."""
    path: Annotated[
        Text,
        matches(r".*\.tgz", "chart-archive"),
    ]
    """The archive, from the project's folder: charts/kata-deploy-4.1.0.tgz."""
    sha256: Sha256
    """Its checksum; another file is refused at preview."""


class LabChart(Section):
    """The lab's stand-in for the chart: same values, same refusals, nothing installed for real."""

    source: Literal["lab"]
    """Where the chart comes from."""


class NoChart(Section):
    """Somebody else has installed it, and keeps it in step with this configuration."""

    source: Literal["none"]
    """Where the chart comes from."""


Chart = Annotated[RegistryChart | FileChart | LabChart | NoChart, Field(discriminator="source")]


RELEASES = "https://github.com/rancher/rke2/releases/download"


Rke2Version = Annotated[str, Strict(), holds(releases.parse_version, "rke2-release")]
Digest = Annotated[
    Text,
    AfterValidator(lambda value: value.lower().removeprefix("sha256:")),
    matches("[0-9a-f]{64}", "release-digest"),
]
ReleaseUrl = Annotated[
    Text, matches("https://.*", "release-url"), AfterValidator(lambda value: value.rstrip("/"))
]
Folder = Annotated[
    Text,
    matches(r"(?!.*/\.\.(/|$))/.*", "folder"),
    AfterValidator(lambda value: value.rstrip("/") or "/"),
]
ImageArchive = Annotated[Text, matches("rke2-images[^/]*", "image-archive")]
Endpoint = Annotated[
    Text,
    matches("https?://.*", "endpoint"),
    holds(lambda value: "@" not in value.split("/")[2], "endpoint-account"),
]


class DownloadedArtifacts(Section):
    """Every machine downloads the release itself and compares it with its digests."""

    source: Literal["download"]
    """Where the files of the release come from."""
    url: ReleaseUrl = RELEASES
    """Address of the releases, up to and without the version; of a mirror where there is one."""
    checksum: Digest
    """sha256 of the release's sha256sum-amd64.txt, which names the digest of every other file."""
    images: tuple[ImageArchive, ...] = ()
    """Archives of images to bring along, so that nothing is pulled for RKE2 itself."""


class LocalArtifacts(Section):
    """The release lies in a folder of every machine already, as in a closed network."""

    source: Literal["folder"]
    """Where the files of the release come from."""
    folder: Folder
    """Folder on every machine with rke2.linux-amd64.tar.gz, sha256sum-amd64.txt and the images."""
    checksum: Digest
    """sha256 of the release's sha256sum-amd64.txt, which names the digest of every other file."""
    images: tuple[ImageArchive, ...] = (
        "rke2-images-core.linux-amd64.tar.zst",
        "rke2-images-cilium.linux-amd64.tar.zst",
    )
    """Archives of images in that folder."""


class Rke2Server(Section):
    """A machine that runs API server and etcd. Not one with GPUs, unless there is no other."""

    name: DnsLabel
    """Name of the machine and of its node. Without an address: a machine of hosts.machines or of the lab."""
    address: HostAddress | None = None
    """Host name or IP address that SSH connects to, if the machine is not listed elsewhere."""
    port: Port = 22
    """Port of its SSH server."""
    host_key: HostKey | None = None
    """Public host key; needed with an address."""


class Mirror(Section):
    """Where images of one registry are pulled from instead."""

    endpoints: tuple[Endpoint, ...]
    """Tried in this order."""
    rewrite: dict[str, str] = Field(default_factory=dict)
    """Regular expression to replacement, for the path of an image on the mirror."""


Mtu = Annotated[int, Strict(), Field(ge=1280, le=9216)]


class CiliumSettings(Section):
    """Cilium beside what `network` says of it. A running cluster keeps its CNI."""

    policy_enforcement: PolicyEnforcement = PolicyEnforcement.DEFAULT
    """policyEnforcementMode. With always also system pods need policies, or nothing starts."""
    encryption: Encryption = Encryption.NONE
    """Whether traffic between nodes is encrypted: none or wireguard."""
    mtu: Mtu | None = None
    """MTU of the pods' network; found by itself if it is not stated."""
    host_firewall: Flag = False
    """Whether policies may select nodes too. They close nothing until one does."""


class Rke2Common(Section):
    """What every cluster by RKE2 states, whatever type of cluster it belongs to."""

    artifacts: Annotated[DownloadedArtifacts | LocalArtifacts, Field(discriminator="source")]
    """The files of the release, by digest."""
    registration_address: HostAddress | None = None
    """Fixed address of all servers, ports 9345 and 6443: a virtual IP, a load balancer, DNS. Needed for more
    than one; by default the address of the only one."""
    tls_san: tuple[HostAddress, ...] = ()
    """More names and addresses of the API in its certificate."""
    cluster_domain: DnsName = "cluster.local"
    """DNS domain of services."""
    cis_profile: Flag = False
    """profile: cis. Every namespace enforces the Pod Security level restricted then, unless labelled."""
    selinux: Flag = False
    """selinux: true. The package rke2-selinux must be installed."""
    dedicated_servers: Flag = True
    """Whether the servers are tainted, so that they carry nothing but the cluster itself."""
    disabled_charts: tuple[DnsLabel, ...] = (
        "rke2-ingress-nginx",
        "rke2-traefik",
        "rke2-traefik-crd",
        "rke2-security-responder",
    )
    """Charts of RKE2 that are not installed. An Ingress of class nginx or traefik needs theirs;
    rke2-security-responder (from v1.37) reports on the cluster to RKE2's makers."""
    deny_external_ips: Flag = True
    """Whether the API server refuses services with external IPs, by which one tenant could take traffic of
    another. Cilium from 1.19 has no switch for them."""
    system_default_registry: Text | None = None
    """Registry that RKE2's own images are pulled from."""
    mirrors: dict[Text, Mirror] = Field(default_factory=dict)
    """Mirrors by registry: docker.io, nvcr.io, or * for all."""
    default_runtime: Text | None = None
    """Refused: RKE2 does not start while the program of that runtime is missing, and CDI needs none."""
    environment: dict[Text, Text] = Field(default_factory=dict)
    """Variables of the units: HTTP_PROXY, HTTPS_PROXY, NO_PROXY and their CONTAINERD_ forms."""
    etcd_snapshot_cron: Text = "0 */12 * * *"
    """When etcd is snapshotted on every server."""
    etcd_snapshot_retention: Count = 5
    """How many snapshots each server keeps."""
    agents_at_once: Annotated[int, Strict(), Field(ge=1, le=MOST_AGENTS_AT_ONCE)] = 10
    """How many agents join, or are upgraded, at the same time."""
    join_timeout_seconds: Seconds = 900
    """How long one machine may take from its start until its node is Ready."""
    drain_timeout_seconds: Annotated[int, Strict(), Field(ge=0, le=86_400)] = 1800
    """How long pods may take to leave a node before its upgrade or removal. 0: they stay."""


class Rke2Settings(Rke2Common):
    """What a cluster by RKE2 has beside what every cluster has."""

    servers: tuple[Rke2Server, ...]
    """1, 3 or 5 machines; the first one makes the cluster."""
    cilium: CiliumSettings = Field(default_factory=CiliumSettings)
    """Cilium."""


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


_ISOLATES = holds(lambda level: level is not PodSecurityLevel.PRIVILEGED, "privileged-pods")


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
    pod_security: Annotated[PodSecurityLevel, _ISOLATES] = PodSecurityLevel.RESTRICTED
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
