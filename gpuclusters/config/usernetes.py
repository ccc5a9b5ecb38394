"""The section of a `usernetes` cluster: Kubernetes in rootless Docker, whose pods see the hosts' GPUs."""

from enum import StrEnum
from ipaddress import IPv4Address
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from gpuclusters.boot.model import RebootPolicy
from gpuclusters.compat.rke2_matrix import ModulesPolicy
from gpuclusters.config.hosts import User
from gpuclusters.config.rke2_cluster import DriverVersion, GpuProduct, Hosts
from gpuclusters.core.section import (
    DnsLabel,
    Flag,
    Integer,
    PinnedImage,
    Seconds,
    Section,
    Sha256,
    Text,
    holds,
    matches,
    refusal,
)
from gpuclusters.driver.model import PackageSource
from gpuclusters.proof.model import Training
from gpuclusters.tenancy.isolation import literal
from gpuclusters.usernetes.addresses import FIRST_NUMBER, LAST_NUMBER, NetworkPlan


class PackagedDriver(Section):
    """PackageSource on the hosts, pinned, with the kernel held. A cloud's own installer is not used."""

    source: Literal["host"]
    """Who installs the driver."""
    version: DriverVersion | None = None
    """Exact version; by default that of `versions`. Volta needs branch 580 or older."""
    packages: PackageSource = PackageSource.DISTRIBUTION
    """Whose packages: distribution or nvidia."""
    modules: ModulesPolicy = ModulesPolicy.AUTO
    """Kernel modules: open, proprietary, or auto, which decides by the GPUs. Volta needs the proprietary
    ones."""
    reboot: RebootPolicy = RebootPolicy.ALLOW
    """Whether hosts may be restarted for it: allow or refuse."""


class InstalledDriver(Section):
    """The hosts have a driver; it is checked and never changed."""

    source: Literal["installed"]
    """Who installs the driver."""
    version: DriverVersion | None = None
    """Exact version that the hosts should have. What they run is read there, and has to know the GPUs."""


RootlessDriver = Annotated[PackagedDriver | InstalledDriver, Field(discriminator="source")]


NodeNumber = Annotated[Integer, Field(ge=FIRST_NUMBER, le=LAST_NUMBER)]


def _whole(value: Any) -> Any:
    if isinstance(value, bool):  # which Python counts among the numbers
        raise refusal("gpu-count")
    return value


HostIp = Annotated[Text, holds(lambda value: isinstance(literal(value), IPv4Address), "host-ip")]
Account = Annotated[User, matches("(?!root$).*", "root-account")]


class _Node(Section):
    host: DnsLabel
    """Name of the machine, and of the node."""
    host_ip: HostIp | None = None
    """IPv4 address at which the other hosts reach it; by default that of its default route."""


class ControlPlane(_Node):
    """The node with the API. There is one: Usernetes has no second."""

    number: NodeNumber = 1
    """Number of the node: its own network is 10.100.<number>.0/24. It never changes."""


class Worker(_Node):
    """A node that joins."""

    number: NodeNumber
    """Number of the node. It goes with the machine and not with its place in the list, so that a worker
    can be removed from the middle. It never changes."""


class NodeGpus(Section):
    """The GPUs of each node, the control plane included: all nodes are alike."""

    product: GpuProduct
    """What they are: v100-sxm2-16gb, t4, … (docs/rke2.md has the list), or PCI id and memory of one that is
    not there, 10de:2503-12gb."""
    count: Annotated[
        Literal[1, 2, 4, 8], BeforeValidator(_whole, json_schema_input_type=Literal[1, 2, 4, 8])
    ]
    """How many each node has; a node that shows fewer is not ready."""


class PreparedBy(StrEnum):
    """Who does what needs root on a host."""

    SUDO = "sudo"
    """This program, by sudo without a password."""
    ADMINISTRATOR = "administrator"
    """Somebody else. Nothing that needs root is done; what is missing is said, with the command for it."""


class RootlessPreparation(Section):
    """What needs root on a host: packages, driver, cgroups, kernel modules, subordinate ids, linger."""

    by: PreparedBy = PreparedBy.SUDO
    """sudo or administrator."""
    remove_data: Flag = False
    """Whether a host that leaves the cluster loses all of the account's images and volumes too."""


class ContainerEngine(StrEnum):
    """What the nodes' containers run in."""

    DOCKER = "docker"
    """Rootless Docker, the only one that is built."""
    PODMAN = "podman"
    """Refused: its network keeps flannel from the API, and nobody has a GPU recipe for it."""
    NERDCTL = "nerdctl"
    """Refused: it and rootless Docker exclude each other on a host, and nobody has a GPU recipe for it."""


TUNNEL_PORT = 16443


ApiAddress = Annotated[Text, matches(r"[^\s/@\[\]:]*", "api-address")]


class AddressApi(Section):
    """The API answers at an address that leads to the control plane's host."""

    through: Literal["address"]
    """How the API is reached."""
    address: ApiAddress
    """Host name or IPv4 address, without the port. The certificate need not have it: a client is told to
    look for the node's name in it."""


class TunnelApi(Section):
    """The API is reached by SSH to the control plane's host, for as long as a command needs it."""

    through: Literal["tunnel"]
    """How the API is reached."""
    local_port: Annotated[Integer, Field(ge=1024, le=65535)] = TUNNEL_PORT
    """Port on 127.0.0.1 that leads there while `gpu-clusters tunnel` runs."""


Api = Annotated[AddressApi | TunnelApi, Field(discriminator="through")]


_NUMBERS = r"[0-9]{1,4}(\.[0-9]{1,4}){2}"
Tag = Annotated[Text, matches(r"gen[23]-v[0-9]{8}\.[0-9]{1,3}", "usernetes-tag")]
FilePlace = Annotated[Text, matches(r"(https:/)?/\S*", "file-place")]
PackageVersion = Annotated[Text, matches(_NUMBERS, "package-version")]
ReleaseTag = Annotated[Text, matches(f"v{_NUMBERS}", "release-tag")]
ImageTag = Annotated[Text, matches(r"(?!latest$)[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", "image-tag")]


class VersionsName(StrEnum):
    """A set of versions that go together (docs/usernetes.md)."""

    CURRENT = "current"
    """The newest of everything that was read about."""
    PROVEN = "proven"
    """The nearest to what ran on V100s in February 2025 that can still be had."""


class VersionOverrides(Section):
    """Where single versions differ from the set. What is not stated is the set's."""

    usernetes: Tag | None = None
    """Tag of Usernetes; its own Dockerfile decides Kubernetes and the node image, so state these too."""
    usernetes_sha256: Sha256 | None = None
    """SHA-256 of the tag's source archive, which every host compares. It has to be stated: this version
    has not seen the archives. docs/usernetes.md says how it is measured."""
    usernetes_url: FilePlace | None = None
    """Where the source archive is, an address or a path on every host; by default GitHub's archive of
    the tag."""
    kubernetes: ReleaseTag | None = None
    """Kubernetes in the node image."""
    node_image: PinnedImage | None = None
    """What the tag's Dockerfile starts from, by digest. The Dockerfile itself is left as it is."""
    preflight_image: PinnedImage | None = None
    """In which Usernetes' preflight asks for a sysctl, by digest; by default busybox 1.37.0 of Docker Hub."""
    docker: PackageVersion | None = None
    """Docker Engine, rootless extras included."""
    container_toolkit: PackageVersion | None = None
    """All four packages of NVIDIA's container toolkit, on the host and in the node image."""
    device_plugin: ReleaseTag | None = None
    """NVIDIA's device plugin."""
    dcgm_exporter: ImageTag | None = None
    """Tag of NVIDIA's DCGM exporter, for metrics."""
    slirp4netns: Flag | None = None
    """Whether slirp4netns is installed beside Docker. Always; false is refused."""


class UsernetesProof(Section):
    """What has to be shown: rungs of a ladder, each with a message of its own (docs/usernetes-proof.md)."""

    rung: Annotated[Integer, Field(ge=1, le=9)] = 8
    """Highest rung. 1 to 4 are on the hosts, 5 nodes, 6 DNS across nodes, 7 allocatable GPUs, 8 one pod
    calculates, 9 a training over all nodes."""
    namespace: DnsLabel = "gpu-proof"
    """Namespace of its pods, made by this program."""
    network_image: PinnedImage | None = None
    """Image of rung 6, by digest, with Python 3; by default that of the training, else Python's own."""
    vector_add_image: PinnedImage | None = None
    """Image of rung 8, by digest, with NVIDIA's sample vectorAdd; by default NVIDIA's own for CUDA 12.5."""
    training: Annotated[
        Training | None,
        BeforeValidator(
            lambda value: None if value == "none" else value,
            json_schema_input_type=Training | Literal["none"] | None,
        ),
    ] = None
    """The training of rung 9; none if it is not stated."""


class NoExporter(Section):
    """Nobody reports what the GPUs do."""

    kind: Literal["none"]
    """Who reports."""


class DcgmExporter(Section):
    """NVIDIA's DCGM exporter as a DaemonSet, on port 9400 of its pods. Nothing collects what it reports."""

    kind: Literal["dcgm-exporter"]
    """Who reports."""


Exporter = Annotated[NoExporter | DcgmExporter, Field(discriminator="kind")]


class UsernetesTimeouts(Section):
    """How long each step may take; what it waits for is said when it is over."""

    driver_seconds: Seconds = 2400
    """The driver on one host, with its restart."""
    build_seconds: Seconds = 3600
    """The node image, which every host builds for itself."""
    join_seconds: Seconds = 900
    """One node, from the start of kubeadm until it is Ready."""
    drain_seconds: Seconds = 600
    """The pods of a node that leaves or is made anew."""
    gpus_seconds: Seconds = 900
    """All GPUs of all nodes, once the device plugin runs."""
    rung_seconds: Seconds = 900
    """Rung 6 and rung 8 each, the pull of their images included."""
    proof_seconds: Seconds = 3600
    """All rungs in the cluster together."""


class UsernetesConfig(Section):
    """A cluster by Usernetes: every node is a container of an account without privileges, with GPUs."""

    name: DnsLabel
    """Name of the cluster."""
    hosts: Hosts
    """Where the machines come from."""
    versions: VersionsName = VersionsName.CURRENT
    """Set of versions that go together: current or proven."""
    version_overrides: VersionOverrides = Field(default_factory=VersionOverrides)
    """Where single versions differ from the set."""
    control_plane: ControlPlane
    """The node with the API."""
    workers: tuple[Worker, ...] = ()
    """The other nodes."""
    gpus: NodeGpus
    """The GPUs of every node."""
    schedule_on_control_plane: Flag = True
    """Whether pods run on the control plane too, on its GPUs: its taint is taken away."""
    account: Account = "ubuntu"
    """Account that everything runs as. It has no privileges, and ranges of subordinate ids."""
    preparation: RootlessPreparation = Field(default_factory=RootlessPreparation)
    """Who prepares the hosts."""
    secure_boot: Flag = False
    """Whether the machines boot with Secure Boot, which refuses kernel modules without a signature."""
    container_engine: ContainerEngine = ContainerEngine.DOCKER
    """What the nodes run in: rootless Docker. Others are refused."""
    driver: RootlessDriver = Field(
        default_factory=lambda: PackagedDriver.model_validate({"source": "host"})
    )
    """Who installs the GPU driver, and which."""
    network: NetworkPlan = Field(default_factory=NetworkPlan)
    """Addresses and ports."""
    api: Api | None = None
    """How the API is reached from outside of its host; by default through a tunnel. The lab's is on this
    computer."""
    join_token_hours: Annotated[Integer, Field(ge=1, le=24)] = 1
    """How long a token to join is good for. Each join gets a new one, so that an hour is plenty."""
    metrics: Exporter = Field(default_factory=lambda: NoExporter.model_validate({"kind": "none"}))
    """Who reports what the GPUs do."""
    proof: UsernetesProof = Field(default_factory=UsernetesProof)
    """What has to be shown before the cluster is called working."""
    timeouts: UsernetesTimeouts = Field(default_factory=UsernetesTimeouts)
    """How long each step may take."""
    protect: Flag = False
    """Whether Pulumi refuses to delete what cannot be made again: the control plane, whose volumes are the
    cluster. Set it to false and run `up` before it is meant to go."""
