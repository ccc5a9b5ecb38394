"""Who may reach the machines of one cluster: SSH from few, and each other on exactly the needed ports.

Everything else stays closed: Google lets nothing in that no rule names.

Owns: the rules. Deliberately does not own: the network, and rules that others put into it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network

import pulumi
from pulumi_gcp import compute

from gpuclusters.domain.gcp_ports import Allowed

SSH_PORT = "22"


@dataclass(frozen=True, kw_only=True)
class GcpFirewallArgs:
    """What the rules need to know."""

    project: str
    """Of the network."""
    network: pulumi.Input[str]
    """Path of the network, from `projects/` on."""
    cluster: str
    """With it the names of the rules begin, and the machines carry it as their network tag."""
    ssh_sources: Sequence[str]
    """Ranges that may open SSH."""
    between_nodes: Sequence[Allowed]
    """What the cluster type needs from node to node."""
    requires: Sequence[pulumi.Resource] = ()
    """The network, where it is made with them."""

    def __post_init__(self) -> None:
        """Refuse a door that is open to everybody; the configuration should have done so before."""
        for source in self.ssh_sources:
            if IPv4Network(source).prefixlen == 0:
                raise pulumi.RunError(
                    f"SSH from {source} is the whole internet; name ranges or IAP"
                )


class GcpFirewall(pulumi.ComponentResource):
    """Two rules: `<name>-ssh` and `<name>-nodes`."""

    ready: Sequence[pulumi.Resource]
    """To depend on: the machines can be reached."""

    def __init__(
        self, name: str, args: GcpFirewallArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:gcp:GcpFirewall", name, None, opts)
        child = pulumi.ResourceOptions(
            parent=self, delete_before_replace=True, depends_on=list(args.requires)
        )
        ssh = compute.Firewall(
            f"{name}-ssh",
            project=args.project,
            network=args.network,
            name=f"{args.cluster}-ssh",
            description="SSH for those who look after the machines",
            direction="INGRESS",
            source_ranges=list(args.ssh_sources),
            target_tags=[args.cluster],
            allows=[{"protocol": "tcp", "ports": [SSH_PORT]}],
            log_config={"metadata": "INCLUDE_ALL_METADATA"},
            opts=child,
        )
        nodes = compute.Firewall(
            f"{name}-nodes",
            project=args.project,
            network=args.network,
            name=f"{args.cluster}-nodes",
            description="What nodes of the cluster send to each other",
            direction="INGRESS",
            source_tags=[args.cluster],
            target_tags=[args.cluster],
            allows=[_allowed(one) for one in args.between_nodes],
            opts=child,
        )
        self.ready = (ssh, nodes)
        self.register_outputs({})


def _allowed(one: Allowed) -> compute.FirewallAllowArgs:
    return compute.FirewallAllowArgs(protocol=one.protocol, ports=list(one.ports) or None)
