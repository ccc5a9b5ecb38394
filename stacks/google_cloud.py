"""Machines on Google Cloud, for every cluster type that takes its hosts from there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pulumi
import pulumi_gcp as gcp

from components.gcp import GcpPool, GpuMachine
from gpuclusters.config import gcp_plan
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.gcp.firewall_rules import Allowed


def declare(
    hosts: GcpHosts,
    *,
    cluster: str,
    between_nodes: Sequence[Allowed],
    protect: Collection[str] = (),
) -> Mapping[str, GpuMachine]:
    """The machines of a cluster by name, with their network, firewall and account."""
    provider = gcp.Provider("google-cloud", project=hosts.project, region=hosts.region)
    plan = gcp_plan.pool(
        hosts,
        cluster=cluster,
        owner=gcp_plan.owner(pulumi.get_project(), pulumi.get_stack()),
        between_nodes=between_nodes,
        protect=protect,
    )
    return GcpPool(cluster, plan, pulumi.ResourceOptions(providers=[provider])).machines
