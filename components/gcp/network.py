"""A network of its own for the machines of one cluster: one subnet, and a way out that is no way in.

Owns: network, subnet, router, NAT. Deliberately does not own: who may come in (`firewall`), peerings, DNS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_gcp import compute


@dataclass(frozen=True, kw_only=True)
class GcpNetworkArgs:
    """What a network needs to know."""

    project: str
    region: str
    network: str
    """Name on Google Cloud, of network and subnet."""
    cidr: str
    mtu: int


class GcpNetwork(pulumi.ComponentResource):
    """Network `<name>-network` with its subnet, router and NAT."""

    ready: Sequence[pulumi.Resource]
    """To depend on: machines can be made, and reach the outside."""

    def __init__(
        self, name: str, args: GcpNetworkArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:gcp:GcpNetwork", name, None, opts)
        # Names are set, so the old one has to be gone before a new one can have its name.
        child = pulumi.ResourceOptions(parent=self, delete_before_replace=True)
        network = compute.Network(
            f"{name}-network",
            project=args.project,
            name=args.network,
            auto_create_subnetworks=False,
            routing_mode="REGIONAL",
            mtu=args.mtu,
            opts=child,
        )
        subnet = compute.Subnetwork(
            f"{name}-subnet",
            project=args.project,
            region=args.region,
            name=args.network,
            network=network.id,
            ip_cidr_range=args.cidr,
            private_ip_google_access=True,
            opts=child,
        )
        router = compute.Router(
            f"{name}-router",
            project=args.project,
            region=args.region,
            name=args.network,
            network=network.id,
            opts=child,
        )
        nat = compute.RouterNat(
            f"{name}-nat",
            project=args.project,
            region=args.region,
            name=args.network,
            router=router.name,
            nat_ip_allocate_option="AUTO_ONLY",
            source_subnetwork_ip_ranges_to_nat="LIST_OF_SUBNETWORKS",
            subnetworks=[{"name": subnet.id, "source_ip_ranges_to_nats": ["ALL_IP_RANGES"]}],
            # Pulls of images by many pods open more connections than the default of 64 ports lets through.
            enable_dynamic_port_allocation=True,
            enable_endpoint_independent_mapping=False,
            min_ports_per_vm=128,
            max_ports_per_vm=4096,
            log_config={"enable": True, "filter": "ERRORS_ONLY"},
            opts=child,
        )
        self.ready = (subnet, nat)
        self.register_outputs({"network": network.id, "subnetwork": subnet.id})
