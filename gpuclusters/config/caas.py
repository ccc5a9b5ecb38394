"""The section of a `caas` cluster: containers as a service on HGX machines, one VM for each container."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from gpuclusters.boot.model import Preparation
from gpuclusters.compat.platforms import PRESETS, Platform
from gpuclusters.config import certificate
from gpuclusters.config.hosts import Adopted, Hosts
from gpuclusters.config.kubernetes import Kubernetes
from gpuclusters.config.nodes import (
    DeviceAccess,
    Kata,
    Layout,
    Node,
    ServiceVm,
    TablePartition,
    Versions,
)
from gpuclusters.config.tenants import Leases, Storage, Tenant, TenantsOnDemand
from gpuclusters.core import naming
from gpuclusters.core.section import (
    AnyNetwork,
    Count,
    DnsLabel,
    Flag,
    Integer,
    Network,
    ObjectName,
    PemCertificate,
    PinnedImage,
    Section,
    Text,
    holds,
    https_url,
    matches,
    refusal,
)
from gpuclusters.fabric.table import LayoutError, table_for
from gpuclusters.proof.model import ContainerProof
from gpuclusters.tenancy import programs
from gpuclusters.tenancy.programs import Accounts

HostName = Annotated[
    Text,
    matches(
        r"(?=.{,253}$)([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\.)+[a-z]([-a-z0-9]{0,61}[a-z0-9])?",
        "host-name",
    ),
]
CertificateChain = Annotated[PemCertificate, holds(certificate.read, "certificate-chain")]


class IssuerKind(StrEnum):
    CLUSTER_ISSUER = "ClusterIssuer"
    ISSUER = "Issuer"


class ManagedCertificate(Section):
    """cert-manager gets the certificate and renews it. It must be installed, with this issuer."""

    source: Literal["cert-manager"]
    """Where the certificate comes from."""
    issuer: ObjectName
    """Name of the issuer."""
    issuer_kind: IssuerKind = IssuerKind.CLUSTER_ISSUER
    """ClusterIssuer, or Issuer for one in the namespace of the API."""


class GivenCertificate(Section):
    """A certificate that you have. Its private key is the secret `gpu-clusters:api-private-key`."""

    source: Literal["given"]
    """Where the certificate comes from."""
    chain: CertificateChain
    """Certificate of the host, then those of the authorities that signed it, in PEM."""


Certificate = Annotated[ManagedCertificate | GivenCertificate, Field(discriminator="source")]


class TlsExposure(Section):
    """What ends TLS for a host name of the API."""

    host: HostName
    """Name by which tenants call the API. DNS leads it to the ingress, the gateway or the balancer."""
    certificate: Certificate
    """What is shown to tenants."""
    annotations: dict[Text, Text] = Field(default_factory=dict)
    """More annotations of the Ingress, of the Gateway and its Service, or of the Service."""


class IngressExposure(TlsExposure):
    """An Ingress, whose controller ends TLS."""

    kind: Literal["ingress"]
    """What stands before the API."""
    ingress_class: ObjectName
    """Class of the Ingress: nginx, cilium, traefik, or another one of the cluster."""


class GatewayExposure(TlsExposure):
    """A Gateway of its own, with its routes; the gateway ends TLS. Needs the Gateway API's CRDs."""

    kind: Literal["gateway"]
    """What stands before the API."""
    gateway_class: DnsLabel
    """Class of the Gateway, such as cilium."""


class LoadBalancerExposure(TlsExposure):
    """The API's Service gets an address of its own, and the API itself ends TLS."""

    kind: Literal["load-balancer"]
    """What stands before the API."""


class ExternalExposure(Section):
    """Something that you have ends TLS and leads to the Service of the API. Nothing is declared for it."""

    kind: Literal["external"]
    """What stands before the API."""


Exposure = Annotated[
    IngressExposure | GatewayExposure | LoadBalancerExposure | ExternalExposure,
    Field(discriminator="kind"),
]


Https = Annotated[Text, https_url("https://id.example.com")]
ProgramsNamespace = Annotated[
    DnsLabel,
    holds(lambda value: not naming.is_reserved_namespace(value), "reserved-namespace"),
    holds(
        lambda value: len(value) <= programs.LONGEST_BASE,
        "long-namespace",
        most=programs.LONGEST_BASE,
    ),
]


class Api(Section):
    """The public API: who is let in, and how much each may ask."""

    issuer: Https | None = None
    """OpenID issuer whose tokens are accepted (`iss`). Stated for existing clusters; the lab has its own."""
    audience: Text = "gpu-clusters"
    """What `aud` of a token must name."""
    jwks_url: Https | None = None
    """Where the issuer's keys are; by default its OpenID configuration says so."""
    tenant_claim: Text = "tenant"
    """Claim that names the tenant."""
    operator_group: Text | None = None
    """Who has this value in the claim `groups` of the token reads the whole cluster over the API and on its
    page for operators: every machine, lease and tenant. Without it nobody does."""
    requests_per_second: Count = 20
    """Rate limit of each tenant."""
    burst: Count = 40
    """Requests that a tenant may have saved up."""
    max_containers: Count = 100
    """Containers of one tenant that exist at once, waiting ones included."""
    connections_per_address: Count = 64
    """Connections that one client's address may have at once."""
    proxies: tuple[Network, ...] = ()
    """Networks of the proxies through which tenants come: their connections do not count as one client's, and
    their X-Forwarded-For is believed. By default those of pods and nodes, where an ingress or a gateway
    stands before the API, and none where nothing does."""
    exposure: Exposure | None = None
    """How tenants reach the API over TLS. Stated for existing clusters; the lab's API has a certificate of
    the lab."""
    max_body_kib: Annotated[Integer, Field(ge=1, le=1024)] = 64
    """The largest request, in KiB."""


class Programs(Section):
    """The programs in the cluster: API, controllers, device plugin; one image."""

    image: PinnedImage | None = None
    """Image built from `caas/Dockerfile`. Stated for existing clusters; the lab runs the checkout itself."""
    namespace: ProgramsNamespace = programs.BASE
    """Where the API lives. Controllers and device plugin have namespaces of their own, named after this one
    without its ending `-system`: `gpu-clusters-controllers`, `gpu-clusters-device-plugin`."""
    replicas: Annotated[Integer, Field(ge=1, le=9)] = 2
    """Copies of the API and of the controllers; of the latter one is at work."""
    image_pull_secret: DnsLabel | None = None
    """Secret for a registry that wants one; it must be in all three namespaces."""
    monitoring: Flag = False
    """Declare a ServiceMonitor, alert rules and the dashboard; needs the CRDs of the Prometheus Operator."""

    @property
    def accounts(self) -> Accounts:
        return Accounts(self.namespace)


class ClusterNetwork(Section):
    """Cilium as it runs in the cluster, and the networks that no tenant may reach."""

    kube_proxy_replacement: Flag = True
    """kubeProxyReplacement of the Cilium of a cluster that is made here. One that you have needs l7Proxy, and
    beside kubeProxyReplacement socketLB.hostNamespaceOnly: without it VMs reach no service."""
    node_cidrs: tuple[AnyNetwork, ...] = ()
    """Networks of the machines and servers, closed to every tenant. Needed for machines of your own: every
    address under hosts and kubernetes must be in one."""
    bmc_cidrs: tuple[AnyNetwork, ...] = ()
    """Networks of their management controllers, closed to every tenant. Needed with nodes[].bmc."""
    storage_cidrs: tuple[Network, ...] = ()
    """Networks of file servers; open to a tenant only for its own servers."""


class CaasConfig(Section):
    """A cluster of HGX machines whose containers are VMs with GPUs."""

    name: DnsLabel
    """Name of the cluster."""
    partition_table: tuple[TablePartition, ...] | None = None
    """The boards' own partition table, as `fmpm -l` prints it on the machines. Stated for hgx-a100 alone,
    whose table is in no source; those of the others are known, and compared with the machines as well."""
    platform: Platform
    """Type of the machines; its preset knows the board and the PCI addresses."""
    hosts: Hosts
    """Where the machines come from."""
    kubernetes: Kubernetes
    """Where Kubernetes comes from."""
    nodes: tuple[Node, ...] = Field(min_length=1)
    """The machines that carry GPUs."""
    partition_layout: Layout
    """How every board is cut: sizes that add up to 8; mixed if every node states its own; by-lease if no cut
    is declared and a lease may take any partition of the table whose GPUs are free."""
    tenants: tuple[Tenant, ...] = ()
    """Who shares the cluster."""
    tenants_on_demand: TenantsOnDemand | None = None
    """Who else gets a tenancy, by asking for it with a valid token; without it nobody does."""
    tenant_namespace_prefix: Annotated[str, Field(max_length=40)] = "tenant-"
    """What a tenant's namespace begins with, if the tenant names none."""
    versions: Versions = Field(default_factory=Versions)
    """Versions that must agree."""
    preparation: Preparation = Field(default_factory=Preparation)
    """How the machines are made ready: kernel, drivers, packages, limits, reboots."""
    service_vm: ServiceVm = Field(default_factory=ServiceVm)
    """The VM that runs the fabric manager."""
    kata: Kata = Field(default_factory=Kata)
    """Kata Containers."""
    device_access: DeviceAccess = Field(default_factory=DeviceAccess)
    """How GPUs are named."""
    gpu_operator: Flag = False
    """Whether the cluster has the GPU Operator, which labels nodes itself; docs/kata.md says how it must be
    set."""
    network: ClusterNetwork = Field(default_factory=ClusterNetwork)
    """Cilium and closed networks."""
    storage: Storage = Field(default_factory=Storage)
    """NFS for tenants."""
    leases: Leases = Field(default_factory=Leases)
    """What a GPU goes through between two tenants."""
    api: Api = Field(default_factory=Api)
    """The public API."""
    programs: Programs = Field(default_factory=Programs)
    """What runs inside the cluster."""
    proof: ContainerProof | None = None
    """What `gpu-clusters verify` runs beside its attacks, to show that the GPUs compute."""
    adopt: Adopted = Field(default_factory=Adopted)
    """What is there already and is taken over."""
    protect: Flag = False
    """Whether Pulumi refuses to delete what cannot be made again: active partitions, and with
    `kubernetes.source: rke2` the servers with their etcd and the tokens. Set it to false and run `up` before
    they are meant to go."""

    @property
    def shares(self) -> tuple[Tenant, ...]:
        """Every tenant that is declared, and one of those on demand."""
        also = self.tenants_on_demand
        return (*self.tenants, *([also.as_tenant()] if also is not None else ()))

    @property
    def own_table(self) -> Mapping[int, tuple[int, ...]] | None:
        """The boards' own table, modules by number; None where it is known. `platform` needs it."""
        if self.partition_table is None:
            return None
        return {partition.id: partition.gpus for partition in self.partition_table}

    @field_validator("platform")
    @classmethod
    def _its_partitions_are_known(cls, platform: Platform, info: ValidationInfo) -> Platform:
        """No rule about partitions can run without a table."""
        own = info.data.get("partition_table")
        baseboard = PRESETS[platform].baseboard
        try:
            table_for(baseboard, {p.id: p.gpus for p in own} if own else None)
        except LayoutError as error:
            raise refusal("partition-table", error=error) from error
        return platform
