"""Where the machines of an `rke2` cluster come from: they exist, are simulated, or are made here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pulumi

from components.host_connection import HostConnection
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.config.hosts import ExistingHosts
from gpuclusters.config.rke2_cluster import Rke2Config
from gpuclusters.config.rke2_cluster_metrics import NoMetrics
from gpuclusters.config.rke2_secrets import Secrets
from gpuclusters.domain import gcp_ports
from stacks import reach

_THIS_COMPUTER = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class Hosts:
    """The machines of a cluster."""

    connections: Mapping[str, HostConnection]
    """By name."""
    registration_address: str
    """Fixed address of the servers."""
    ready: Mapping[str, Sequence[pulumi.Resource]] = field(default_factory=dict)
    """By name: what must be there before it is used."""


def declare(config: Rke2Config, secrets: Secrets) -> Hosts:
    """The machines, and the address under which the servers are found."""
    if isinstance(config.hosts, GcpHosts):
        return _on_google_cloud(config, config.hosts)
    return Hosts(
        connections={
            name: reach.connection(name, machine) for name, machine in secrets.hosts.items()
        },
        registration_address=config.registration_address or _only_address(config),
    )


def _on_google_cloud(config: Rke2Config, hosts: GcpHosts) -> Hosts:
    # Its packages are large, and nobody else needs them.
    from stacks import google_cloud

    metrics = not isinstance(config.metrics, NoMetrics)
    made = google_cloud.declare(
        hosts, cluster=config.name, between_nodes=gcp_ports.rke2(config.cni.kind, metrics=metrics)
    )
    if config.registration_address is None:
        raise RuntimeError("no registration-address, which the rules ask for on Google Cloud")
    return Hosts(
        connections=made.connections,
        registration_address=config.registration_address,
        ready=made.ready,
    )


def _only_address(config: Rke2Config) -> str:
    """The address of the only server; that of the lab is this computer."""
    if not isinstance(config.hosts, ExistingHosts):
        return _THIS_COMPUTER
    (server,) = config.servers
    return next(one.address for one in config.hosts.machines if one.name == server)
