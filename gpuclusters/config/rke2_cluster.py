"""The section of an `rke2` cluster: RKE2 on your machines, with the GPU Operator and proof that GPUs work."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gpuclusters.config.adopted import AdoptedMachines
from gpuclusters.config.base import DnsLabel, Flag, Network, Seconds, Section, Text, checked
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.config.hosts import ExistingHosts, LabHosts
from gpuclusters.config.rke2 import Rke2Common, Rke2Version
from gpuclusters.config.rke2_cluster_driver import Driver, HostDriver
from gpuclusters.config.rke2_cluster_metrics import Metrics, NoMetrics
from gpuclusters.config.rke2_cluster_network import Canal, Cni
from gpuclusters.config.rke2_cluster_operator import Operator
from gpuclusters.config.rke2_cluster_pools import Pool
from gpuclusters.config.rke2_cluster_proof import Proof, ProofL0
from gpuclusters.config.rke2_cluster_sharing import NotShared, Sharing
from gpuclusters.domain import rke2_config
from gpuclusters.domain.rke2_matrix import OperatingSystem

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


class _Cluster(Section):
    name: DnsLabel
    """Name of the cluster."""
    hosts: Hosts
    """Where the machines come from."""
    version: Rke2Version
    """Release of RKE2. Another one upgrades the servers one at a time and then the agents; by one minor."""
    servers: tuple[DnsLabel, ...]
    """1, 3 or 5 machines, by name; the first one makes the cluster."""
    pools: tuple[Pool, ...] = ()
    """The other machines, by what they have."""
    operating_system: OperatingSystem | None = None
    """What the machines run, for the support matrix and for the tags of driver containers."""
    secure_boot: Annotated[Flag, checked(36)] = False
    """Whether the machines boot with Secure Boot, which refuses kernel modules without a signature."""
    cni: Cni = Field(default_factory=lambda: Canal.model_validate({"kind": "canal"}))
    """Who connects the pods. It never changes."""
    cluster_cidr: Network = rke2_config.POD_CIDR
    """Addresses of pods; each node takes a /24 of it. They never change."""
    service_cidr: Network = rke2_config.SERVICE_CIDR
    """Addresses of services; they never change."""
    registry_auth: tuple[Text, ...] = ()
    """Registries that want a password; the secret `gpu-clusters:registry-credentials` has it for each."""
    air_gap: Annotated[Flag, checked(43)] = False
    """Whether the machines reach nothing but their own network. Everything must come from there then."""
    driver: Driver = Field(default_factory=lambda: HostDriver.model_validate({"source": "host"}))
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
    protect: Flag = False
    """Whether Pulumi refuses to delete what cannot be made again: the servers with their etcd, the tokens.
    Set it to false and run `up` before they are meant to go."""


class Rke2Config(Rke2Common, _Cluster):
    """A cluster by RKE2 whose nodes have NVIDIA GPUs."""

    default_runtime: Annotated[Text | None, checked(38)] = None
    """Refused: RKE2 does not start while the program of that runtime is missing, and CDI needs none."""


def machine_names(config: Rke2Config) -> tuple[str, ...]:
    """Names of all machines, servers first."""
    pooled = (node for pool in config.pools for node in pool.nodes)
    return tuple(dict.fromkeys((*config.servers, *pooled)))
