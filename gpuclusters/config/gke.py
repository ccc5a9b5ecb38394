"""The section of a `gke` cluster: the same GPUs as a managed cluster of Google's."""

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from gpuclusters.config.gcp import (
    Labels,
    MachineKind,
    Project,
    ResourceName,
    ServiceAccount,
    Zone,
)
from gpuclusters.config.usernetes import UsernetesProof
from gpuclusters.core.section import Count, Flag, Integer, Network, Seconds, Section, Text, matches
from gpuclusters.gcp import machine_types


class ControlPlaneKind(StrEnum):
    """Where Google runs the control plane."""

    ZONAL = "zonal"
    """In the zone of the nodes, one copy: it is away during its upgrades."""
    REGIONAL = "regional"
    """In three zones of the region. Nodes stay in the one zone."""


class ReleaseChannel(StrEnum):
    """From which of Google's channels the cluster gets its releases."""

    RAPID = "rapid"
    REGULAR = "regular"
    STABLE = "stable"
    EXTENDED = "extended"


class GoogleDriver(StrEnum):
    """Which GPU driver Google installs on the nodes."""

    DEFAULT = "default"
    """The one that belongs to the release of GKE."""
    LATEST = "latest"
    """The newest that the release knows. Refused for Volta, which branches after 580 no longer know."""


class GkeNetwork(Section):
    """A network that this program makes: a subnet with ranges for pods and services, a router and NAT."""

    cidr: Network
    """Range of the nodes. None of them has an address on the internet."""
    pods: Network
    """Range of the pods; each node takes a /24 of it."""
    services: Network
    """Range of the services."""
    control_plane: Network
    """Range of the control plane's own addresses in the network, a /28."""
    mtu: Annotated[Integer, Field(ge=1300, le=8896)] = 1460
    """Bytes of the largest packet. 8896 is the most that Google's network carries."""


class GkePool(MachineKind):
    """A node pool."""

    name: Annotated[ResourceName, Field(max_length=40)]
    """Name of the pool."""
    nodes: Annotated[Count, Field(le=1000)]
    """How many nodes it has; the least where `most-nodes` lets Google add some."""
    most_nodes: Annotated[Count, Field(le=1000)] | None = None
    """Up to how many nodes Google's autoscaler may go; without it there are always `nodes`."""
    driver: GoogleDriver = GoogleDriver.DEFAULT
    """Which GPU driver Google installs: default or latest."""


class NodeAccount(ServiceAccount):
    """What the nodes may do on Google Cloud. They get an account of their own, with no role but these."""

    roles: tuple[Annotated[Text, Field(pattern=r"roles/[A-Za-z0-9.]+")], ...] = (
        "roles/container.defaultNodeServiceAccount",
    )
    """Roles of the account in the project. roles/artifactregistry.reader, with the scope
    devstorage.read_only, lets nodes pull from the project's own registry."""


class GkeProof(UsernetesProof):
    """What has to be shown, the ladder of docs/usernetes-proof.md from rung 5 on: hosts are Google's."""

    rung: Annotated[Integer, Field(ge=5, le=9)] = 8
    """Highest rung: 5 nodes, 6 DNS across nodes, 7 allocatable GPUs, 8 one pod calculates, 9 a training
    over all nodes with GPUs."""


class GkeTimeouts(Section):
    """How long each step may take; what it waits for is said when it is over."""

    nodes_seconds: Seconds = 900
    """All nodes with their drivers and GPUs, once Google has made the pools."""
    rung_seconds: Seconds = 900
    """Rung 6 and rung 8 each, the pull of their images included."""
    proof_seconds: Seconds = 3600
    """All rungs together."""


class GkeConfig(Section):
    """A cluster of Google Kubernetes Engine with pools of GPUs, whose nodes only Google reaches."""

    hosts: ClassVar[None] = None
    """Google's own."""

    name: Annotated[ResourceName, Field(max_length=40)]
    """Name of the cluster."""
    project: Project
    """Id of the project that pays."""
    zone: Zone
    """Zone of all nodes. It has to sell the GPUs."""
    control_plane: ControlPlaneKind = ControlPlaneKind.ZONAL
    """zonal or regional. Google asks the same fee for both. It never changes."""
    release_channel: ReleaseChannel = ReleaseChannel.REGULAR
    """rapid, regular, stable or extended. Google upgrades control plane and nodes along it."""
    version: (
        Annotated[Text, matches(r"1\.[0-9]{2}(\.[0-9]{1,3}(-gke\.[0-9]{1,10})?)?", "gke-release")]
        | None
    ) = None
    """Least release of the control plane, which the channel must have; by default the channel's own."""
    network: GkeNetwork
    """Addresses. They never change once the cluster is there."""
    api_ranges: Annotated[tuple[Network, ...], Field(min_length=1)]
    """Where the API may be reached from, the computer with `pulumi up` included. Never everywhere."""
    pools: Annotated[tuple[GkePool, ...], Field(min_length=1)]
    """The node pools: those with GPUs, and one without for what the cluster itself runs."""
    service_account: NodeAccount = Field(default_factory=lambda: NodeAccount.model_validate({}))
    """What the nodes may do on Google Cloud."""
    workload_identity: Flag = False
    """Whether pods can act as accounts of Google Cloud, each as its own. Without it they reach the nodes'
    account by the metadata server, so it has few roles."""
    labels: Labels = Field(default_factory=dict)
    """Labels of the cluster and all nodes, for the bill."""
    metrics: Literal["none", "dcgm"] = "none"
    """Whether Google collects what the GPUs do, by its own DCGM exporter; costs by the sample."""
    proof: GkeProof = Field(default_factory=GkeProof)
    """What has to be shown before the cluster is called working."""
    timeouts: GkeTimeouts = Field(default_factory=GkeTimeouts)
    """How long each step may take."""
    protect: Flag = False
    """Whether Pulumi and Google refuse to delete the cluster. Set it to false and run `up` before it is
    meant to go."""

    @property
    def region(self) -> str:
        return machine_types.region(self.zone)

    @property
    def location(self) -> str:
        """Where the control plane is, as Google's API calls it."""
        return self.zone if self.control_plane is ControlPlaneKind.ZONAL else self.region

    @property
    def gpu_pools(self) -> tuple[GkePool, ...]:
        return tuple(pool for pool in self.pools if pool.gpu is not None)
