"""Where the machines of an `rke2` cluster come from: they exist, are simulated, or are made here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi

from components.host_connection import HostConnection
from gpuclusters.config.hosts import ExistingHosts
from gpuclusters.config.rke2_cluster import Rke2Config
from gpuclusters.config.rke2_secrets import Secrets
from stacks import reach

_THIS_COMPUTER = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class Hosts:
    """The machines of a cluster."""

    connections: Mapping[str, HostConnection]
    """By name."""
    registration_address: str
    """Fixed address of the servers."""
    ready: Sequence[pulumi.Resource] = ()
    """What must be there before any of them is used."""


def declare(config: Rke2Config, secrets: Secrets) -> Hosts:
    """The machines, and the address under which the servers are found."""
    return Hosts(
        connections={
            name: reach.connection(name, machine) for name, machine in secrets.hosts.items()
        },
        registration_address=config.registration_address or _only_address(config),
    )


def _only_address(config: Rke2Config) -> str:
    """The address of the only server; that of the lab is this computer."""
    if not isinstance(config.hosts, ExistingHosts):
        return _THIS_COMPUTER
    (server,) = config.servers
    return next(one.address for one in config.hosts.machines if one.name == server)
