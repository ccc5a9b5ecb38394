"""Machines on Google Cloud, for every cluster type that takes its hosts from there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pulumi
import pulumi_gcp as gcp

from components.gcp import GcpPool, GcpPoolArgs, GpuMachine, OwnNetwork
from gpuclusters.config import gcp as section
from gpuclusters.config import gcp_plan
from gpuclusters.gcp.firewall_rules import Allowed


def declare(
    hosts: section.GcpHosts,
    *,
    cluster: str,
    between_nodes: Sequence[Allowed],
    protect: Collection[str] = (),
) -> Mapping[str, GpuMachine]:
    """The machines of a cluster by name, with their network, firewall and account."""
    provider = gcp.Provider("google-cloud", project=hosts.project, region=hosts.region)
    owner = gcp_plan.owner(pulumi.get_project(), pulumi.get_stack())
    machines = gcp_plan.machines(hosts, cluster=cluster, owner=owner)
    network = hosts.network
    args = GcpPoolArgs(
        project=hosts.project,
        region=hosts.region,
        cluster=cluster,
        owner=owner,
        network=(
            OwnNetwork(cidr=str(network.cidr), mtu=network.mtu)
            if isinstance(network, section.OwnNetwork)
            else None
        ),
        network_project=gcp_plan.network_project(hosts),
        network_path=gcp_plan.network_path(hosts, cluster),
        ssh_sources=gcp_plan.ssh_sources(hosts),
        between_nodes=between_nodes,
        account_id=gcp_plan.account_id(cluster),
        roles=hosts.service_account.roles,
        machines={one.name: one.inputs for one in machines},
        needs={str(one.inputs["name"]): one.needs for one in machines},
        user=hosts.user,
        authorized_keys=hosts.authorized_keys,
        through_iap=isinstance(hosts.access, section.IapAccess),
        protect=protect,
    )
    return GcpPool(cluster, args, pulumi.ResourceOptions(providers=[provider])).machines
