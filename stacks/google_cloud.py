"""Machines on Google Cloud, for every cluster type that takes its hosts from there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from components.gcp.firewall import GcpFirewall, GcpFirewallArgs
from components.gcp.identity import GcpIdentity, GcpIdentityArgs
from components.gcp.network import GcpNetwork, GcpNetworkArgs
from components.gcp.pool import GcpPool, GcpPoolArgs, PoolMachine
from components.host_connection import HostConnection
from gpuclusters.config import gcp_plan
from gpuclusters.config.gcp import GcpHosts, IapAccess, OwnNetwork
from gpuclusters.domain.gcp_ports import Allowed


@dataclass(frozen=True, kw_only=True)
class GoogleMachines:
    """Machines that are made, or found as they were made before."""

    connections: Mapping[str, HostConnection]
    """By name in the configuration."""
    zones: Mapping[str, pulumi.Output[str]]
    """Where each is."""
    ready: Mapping[str, Sequence[pulumi.Resource]]
    """By name: to depend on."""


def declare(hosts: GcpHosts, *, cluster: str, between_nodes: Sequence[Allowed]) -> GoogleMachines:
    """The machines of a cluster with their network, firewall and account.

    Args:
        hosts: the section.
        cluster: name of the cluster, with which names on Google Cloud begin.
        between_nodes: what the cluster type needs from node to node.
    """
    provider = gcp.Provider("google-cloud", project=hosts.project, region=hosts.region)
    opts = pulumi.ResourceOptions(providers=[provider])
    network = _network(hosts, cluster, opts)
    firewall = _firewall(hosts, cluster, between_nodes, opts, network)
    identity = GcpIdentity(
        cluster,
        GcpIdentityArgs(
            project=hosts.project,
            account_id=gcp_plan.account_id(cluster),
            cluster=cluster,
            roles=hosts.service_account.roles,
        ),
        opts,
    )
    owner = gcp_plan.owner(pulumi.get_project(), pulumi.get_stack())
    pool = GcpPool(
        cluster,
        GcpPoolArgs(
            project=hosts.project,
            region=hosts.region,
            owner=owner,
            machines=[
                PoolMachine(host=one.name, inputs=one.inputs, needs=one.needs)
                for one in gcp_plan.machines(hosts, cluster=cluster, owner=owner)
            ],
            service_account=identity.email,
            user=hosts.user,
            authorized_keys=hosts.authorized_keys,
            through_iap=isinstance(hosts.access, IapAccess),
            requires=(*network, *firewall, *identity.ready),
        ),
        opts,
    )
    return GoogleMachines(
        connections={name: one.connection for name, one in pool.machines.items()},
        zones={name: one.zone for name, one in pool.machines.items()},
        ready={name: one.ready for name, one in pool.machines.items()},
    )


def _network(
    hosts: GcpHosts, cluster: str, opts: pulumi.ResourceOptions
) -> Sequence[pulumi.Resource]:
    if not isinstance(hosts.network, OwnNetwork):
        return ()
    args = GcpNetworkArgs(
        project=hosts.project,
        region=hosts.region,
        network=cluster,
        cidr=str(hosts.network.cidr),
        mtu=hosts.network.mtu,
    )
    return GcpNetwork(cluster, args, opts).ready


def _firewall(
    hosts: GcpHosts,
    cluster: str,
    between_nodes: Sequence[Allowed],
    opts: pulumi.ResourceOptions,
    network: Sequence[pulumi.Resource],
) -> Sequence[pulumi.Resource]:
    args = GcpFirewallArgs(
        project=gcp_plan.network_project(hosts),
        network=gcp_plan.network_path(hosts, cluster),
        cluster=cluster,
        ssh_sources=gcp_plan.ssh_sources(hosts),
        between_nodes=between_nodes,
        requires=network,
    )
    return GcpFirewall(cluster, args, opts).ready
