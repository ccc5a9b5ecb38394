"""The section of a `caas` cluster: containers as a service on HGX machines, one VM for each container."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from gpuclusters.compat.platforms import PRESETS, Platform
from gpuclusters.config.api import Api, Programs
from gpuclusters.config.hosts import Adopted, Hosts
from gpuclusters.config.kata import DeviceAccess, Kata
from gpuclusters.config.kubernetes import Kubernetes
from gpuclusters.config.nodes import Layout, Node, Preparation, ServiceVm, TablePartition, Versions
from gpuclusters.config.tenants import Leases, Storage, Tenant
from gpuclusters.core.section import (
    AnyNetwork,
    DnsLabel,
    Flag,
    Network,
    Section,
    refusal,
)
from gpuclusters.fabric.table import LayoutError, table_for


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
    adopt: Adopted = Field(default_factory=Adopted)
    """What is there already and is taken over."""
    protect: Flag = False
    """Whether Pulumi refuses to delete what cannot be made again: active partitions, and with
    `kubernetes.source: rke2` the servers with their etcd and the tokens. Set it to false and run `up` before
    they are meant to go."""

    @property
    def own_table(self) -> Mapping[int, tuple[int, ...]] | None:
        """The boards' table as it is stated, modules by number; None where it is known.

        It goes with `platform`, which is not valid without it.
        """
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
            raise refusal(
                f"has no partition table that could be used: {error}",
                "write partition-table: a list of {id: 0, gpus: [1, 2]}, as `fmpm -l` prints it",
            ) from error
        return platform
