"""Where machines and their management controllers are: what the configuration says of it, by key."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network, ip_network
from urllib.parse import urlsplit

from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.hosts import ExistingHosts
from gpuclusters.config.kubernetes import Rke2Kubernetes
from gpuclusters.core.finding import Path
from gpuclusters.tenancy.ranges import Range, around, literal


def machines(config: CaasConfig) -> Iterator[tuple[Path, str]]:
    """Addresses and names of machines, servers, and of what leads to the API server."""
    listed = config.hosts.machines if isinstance(config.hosts, ExistingHosts) else ()
    for number, machine in enumerate(listed):
        yield ("hosts", "machines", number, "address"), machine.address
    cluster = config.kubernetes
    if not isinstance(cluster, Rke2Kubernetes):
        return
    for number, server in enumerate(cluster.servers):
        if server.address is not None:
            yield ("kubernetes", "servers", number, "address"), server.address
    if cluster.registration_address is not None:
        yield ("kubernetes", "registration-address"), cluster.registration_address


def management_controllers(config: CaasConfig) -> Iterator[tuple[Path, str]]:
    """Addresses and names of BMCs."""
    for number, node in enumerate(config.nodes):
        if node.bmc is not None:
            yield ("nodes", number, "bmc", "url"), urlsplit(node.bmc.url).hostname or ""


def service_vm_network(config: CaasConfig) -> IPv4Network:
    """The range that each machine shares with its service VM."""
    network = config.service_vm.network
    return IPv4Network(f"{network.host_address}/{network.prefix_length}", strict=False)


def closed_to_tenants(config: CaasConfig) -> Iterator[Range]:
    """All that is known to be no tenant's business; a tenant's own pods are reached past these ranges.

    Cilium applies ranges to what it does not manage: a pod's address has the pod's identity instead.
    """
    yield from config.network.node_cidrs
    yield from config.network.bmc_cidrs
    yield config.kubernetes.pod_cidr
    yield config.kubernetes.service_cidr
    yield service_vm_network(config)
    for _, host in (*machines(config), *management_controllers(config)):
        address = literal(host)
        if address is not None:
            yield ip_network(address)


def likely(hosts: list[str]) -> list[Range]:
    """The networks in which these hosts probably are, as far as they are given by address."""
    return sorted({around(found) for host in hosts if (found := literal(host))}, key=str)
