"""The section of a `usernetes` cluster: Kubernetes in rootless Docker, whose pods see the hosts' GPUs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gpuclusters.config.base import DnsLabel, Flag, Integer, Seconds, Section, checked
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.config.hosts import ExistingHosts, LabHosts
from gpuclusters.config.usernetes_driver import PackagedDriver, RootlessDriver
from gpuclusters.config.usernetes_machines import (
    Account,
    ContainerEngine,
    ControlPlane,
    NodeGpus,
    RootlessPreparation,
    Worker,
)
from gpuclusters.config.usernetes_network import Api, UsernetesNetwork
from gpuclusters.config.usernetes_proof import Exporter, NoExporter, UsernetesProof
from gpuclusters.config.usernetes_versions import VersionOverrides, VersionsName

UsernetesHosts = Annotated[ExistingHosts | LabHosts | GcpHosts, Field(discriminator="source")]


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
    hosts: UsernetesHosts
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
    secure_boot: Annotated[Flag, checked(48)] = False
    """Whether the machines boot with Secure Boot, which refuses kernel modules without a signature."""
    container_engine: Annotated[ContainerEngine, checked(51)] = ContainerEngine.DOCKER
    """What the nodes run in: rootless Docker. Others are refused."""
    driver: RootlessDriver = Field(
        default_factory=lambda: PackagedDriver.model_validate({"source": "host"})
    )
    """Who installs the GPU driver, and which."""
    network: UsernetesNetwork = Field(default_factory=UsernetesNetwork)
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
