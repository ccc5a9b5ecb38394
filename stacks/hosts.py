"""The machines of a cluster: they exist, are simulated, or are made on Google Cloud."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
import yaml

from components.host_connection import HostConnection
from gpuclusters.config import gcp
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.config.hosts import ExistingHosts
from gpuclusters.config.secrets import HostEndpoint
from gpuclusters.gcp.firewall_rules import Allowed


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """What others build on, of a cluster on hosts."""

    kubeconfig: pulumi.Output[str]
    """Secret. With `api.through: tunnel` it holds while `gpu-clusters tunnel` runs."""
    nodes: pulumi.Input[Mapping[str, Mapping[str, Any]]]
    """By node: `role`, `pool` or `number`, `driver`, `allocatable`, `certificate_expires`."""
    proof: Mapping[str, Any]
    """`level` or `rung`, `verdict`, `at`, and the digest of the evidence."""


@dataclass(frozen=True, kw_only=True)
class Hosts:
    connections: Mapping[str, HostConnection]
    made: Mapping[str, pulumi.Resource] = field(default_factory=dict)
    """Those that are made here: to depend on before they are used."""


def declare(
    hosts: object,
    endpoints: Mapping[str, HostEndpoint],
    *,
    cluster: str,
    between_nodes: Sequence[Allowed],
    protect: Collection[str] = (),
) -> Hosts:
    """The machines of a cluster; `endpoints` has those that are not made here."""
    if not isinstance(hosts, GcpHosts):
        return Hosts(connections={name: connection(name, endpoints[name]) for name in endpoints})
    # Their packages are large, and nobody else needs them.
    import pulumi_gcp

    from components.gcp import GcpPool

    provider = pulumi_gcp.Provider("google-cloud", project=hosts.project, region=hosts.region)
    plan = gcp.pool(
        hosts,
        cluster=cluster,
        owner=gcp.owner(pulumi.get_project(), pulumi.get_stack()),
        between_nodes=between_nodes,
        protect=protect,
    )
    opts = pulumi.ResourceOptions(providers=[provider])
    made = GcpPool(cluster, opts, plan=plan).machines
    return Hosts(connections={name: one.connection for name, one in made.items()}, made=made)


def from_secret(
    name: str, secret: pulumi.Output[str], make: Callable[[str], str], *, otherwise: str
) -> pulumi.Output[str]:
    """What is made of a secret, and is one. Nothing of what cannot be read is told: it may be the password.

    A ValueError of `make` says what is wrong with it, and for every other error that is `otherwise`.
    """

    def made(text: str) -> str:
        try:
            return make(text)
        except (ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
            said = str(error) if type(error) is ValueError else otherwise
            raise pulumi.RunError(f"the secret {name}: {said}") from None

    return secret.apply(made)


def own_address(hosts: object, server: str) -> str:
    """The address of a server that is the only one; that of the lab is this computer."""
    machines = hosts.machines if isinstance(hosts, ExistingHosts) else ()
    return next((one.address for one in machines if one.name == server), "127.0.0.1")


def connection(name: str, machine: HostEndpoint) -> HostConnection:
    """One machine of the configuration or of the lab."""
    return HostConnection(
        host=name,
        address=machine.address,
        port=machine.port,
        user=machine.user,
        host_key=machine.host_key,
    )
