"""Rows 46 and 53: addresses and ports have room and do not meet, and the API is reached."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network

from gpuclusters.config import rke2_checks
from gpuclusters.config.fault import show
from gpuclusters.config.gcp import GcpHosts, OwnNetwork
from gpuclusters.config.hosts import ExistingHosts, LabHosts
from gpuclusters.config.rules.rule import Wrong, repeats, rule
from gpuclusters.config.usernetes import AddressApi, ControlPlane, UsernetesConfig, Worker
from gpuclusters.config.usernetes_plan import DOCKER_MTU, host_mtu, nodes, versions
from gpuclusters.core.finding import Finding, Level, Path
from gpuclusters.core.section import kebab
from gpuclusters.usernetes import addresses
from gpuclusters.usernetes.addresses import DOCKER_BRIDGE, POD_SUBNET, SERVICE_SUBNET

_NODES_PREFIX = 16
"""Of the range that all nodes' networks are cut from: 254 of a /24 each."""
_SSH = 22
_DOCKER = "docker0 of every host"


def _chosen(config: UsernetesConfig) -> Mapping[str, IPv4Network]:
    return {
        "network.pod-subnet": config.network.pod_subnet,
        "network.service-subnet": config.network.service_subnet,
    }


def ranges(config: UsernetesConfig) -> Mapping[str, IPv4Network]:
    """The networks of the cluster, by key."""
    return {**_chosen(config), "network.node-subnets": config.network.node_subnets}


def stated_for_nodes(config: UsernetesConfig, key: str) -> list[tuple[Path, ControlPlane | Worker]]:
    """All nodes, the control plane first, each with the path of one of its keys."""
    paths = [("control-plane",), *(("workers", number) for number in range(len(config.workers)))]
    return [((*path, key), node) for path, node in zip(paths, nodes(config), strict=True)]


def node_name(position: int) -> str:
    """A node in words, by its position among all of them."""
    return f"workers[{position - 1}]" if position else "the control plane"


@rule(46, "usernetes.node-number-twice", each=["workers"])
def node_numbers_are_unique(config: UsernetesConfig) -> Iterable[Wrong]:
    taken = [node.number for node in nodes(config)]
    every = range(addresses.FIRST_NUMBER, addresses.LAST_NUMBER + 1)
    free = next((number for number in every if number not in taken), 0)
    for again, first in repeats(taken):
        wrong = f"is that of {node_name(first)}, and with it its network"
        yield Wrong(("workers", again - 1, "number"), wrong, f"write one that is free: {free}")


@rule(46, "usernetes.node-range")
def node_subnets_hold_every_number(config: UsernetesConfig) -> Iterable[Wrong]:
    stated = config.network.node_subnets
    if stated.prefixlen != _NODES_PREFIX or not stated.is_private:
        remedy = f"write one like {addresses.NODE_SUBNETS}"
        yield Wrong("network.node-subnets", "is not a private /16", remedy)


@rule(46, "usernetes.networks-overlap")
def networks_of_the_cluster_do_not_meet(config: UsernetesConfig) -> Iterable[Wrong]:
    known = {_DOCKER: DOCKER_BRIDGE, **ranges(config)}
    for against, key in addresses.collisions(known):
        wrong = f"meets {against}, which is {known[against]}"
        yield Wrong(key, wrong)


@rule(46, "usernetes.network-too-small")
def pods_and_services_have_room(config: UsernetesConfig) -> Iterable[Wrong]:
    return rke2_checks.room(_chosen(config), len(nodes(config)))


@rule(46, "usernetes.machine-in-cluster-network", each=["workers"])
def machines_are_outside_of_the_nodes_networks(config: UsernetesConfig) -> Iterable[Finding]:
    machines = config.hosts.machines if isinstance(config.hosts, ExistingHosts) else ()
    places: list[tuple[Path, str | None]] = [
        *((path, node.host_ip) for path, node in stated_for_nodes(config, "host-ip")),
        *((("hosts", "machines", n, "address"), one.address) for n, one in enumerate(machines)),
    ]
    return rke2_checks.outside(places, {**ranges(config), _DOCKER: DOCKER_BRIDGE})


@rule(46, "usernetes.host-ip", each=["workers"])
def hosts_are_reached_at_addresses_of_their_own(config: UsernetesConfig) -> Iterable[Wrong]:
    seen: dict[str, ControlPlane | Worker] = {}
    for path, node in stated_for_nodes(config, "host-ip"):
        if node.host_ip is None:
            continue
        owner = seen.setdefault(node.host_ip, node)
        own = rke2_checks.is_own(node.host_ip)
        if own or owner is not node:
            yield Wrong(path, "is every host's own" if own else f"is that of {owner.host} too")


@rule(46, "usernetes.range-fixed")
def generation_2_has_fixed_ranges(config: UsernetesConfig) -> Iterable[Wrong]:
    chosen, stated = versions(config), _chosen(config)
    fixed = {"network.pod-subnet": POD_SUBNET, "network.service-subnet": SERVICE_SUBNET}
    for key, network in fixed.items():
        if chosen.generation == 2 and stated[key] != network:
            wrong = f"cannot be chosen with {chosen.usernetes}, which has {network}"
            yield Wrong(key, wrong)


@rule(46, "usernetes.port-twice")
def services_have_ports_of_their_own(config: UsernetesConfig) -> Iterable[Wrong]:
    for _, names in addresses.shared_ports(config.network.ports):
        *others, last = map(kebab, names)
        wrong = f"is the port of {' and '.join(others)} too"
        yield Wrong(("network", "ports", last), wrong)


@rule(46, "usernetes.ssh-port")
def ports_leave_ssh_alone(config: UsernetesConfig) -> Iterable[Wrong]:
    if isinstance(config.hosts, LabHosts):
        return
    listening = {_SSH: "SSH"}
    if isinstance(config.hosts, ExistingHosts):
        listening = {one.port: f"the SSH server of {one.name}" for one in config.hosts.machines}
    for name, port in config.network.ports.tcp.items():
        if port in listening:
            yield Wrong(("network", "ports", kebab(name)), f"is the port of {listening[port]}")


@rule(46, "usernetes.mtu-above-network", level=Level.WARN)
def nodes_packets_fit_into_googles_network(config: UsernetesConfig) -> Iterable[Wrong]:
    if not isinstance(config.hosts, GcpHosts):
        return
    stated, most = config.network.mtu, host_mtu(config)
    if stated is not None and most is not None and stated > most:
        yield Wrong(
            "network.mtu",
            f"is above hosts.network.mtu, which is {most}: packets between nodes go out in pieces",
            f"write {most} or less, or remove it",
        )
    elif stated is None and most is None:
        yield Wrong(
            "network.mtu",
            f"is missing, and that of the existing network is not known here: {DOCKER_MTU} is above Google's"
            " default of 1460",
            "write the MTU that `gcloud compute networks describe` prints",
        )


@rule(53, "usernetes.api-address", "api", kind=AddressApi)
def the_apis_address_is_reached_from_outside(
    config: UsernetesConfig, api: AddressApi
) -> Iterable[Wrong | Finding]:
    if rke2_checks.is_own(api.address):
        yield Wrong("address", "is every machine's own")
    known = {**ranges(config), _DOCKER: DOCKER_BRIDGE}
    yield from rke2_checks.outside([(("api", "address"), api.address)], known)


@rule(53, "usernetes.api-behind-firewall", "api", kind=AddressApi)
def googles_firewall_lets_the_api_through(
    config: UsernetesConfig, _api: AddressApi
) -> Iterable[Wrong]:
    if isinstance(config.hosts, GcpHosts) and isinstance(config.hosts.network, OwnNetwork):
        wrong = "is address, and the firewall that is made with hosts.network lets only SSH in from outside"
        yield Wrong("through", wrong)


@rule(53, "usernetes.api-in-lab", level=Level.WARN)
def the_labs_api_is_on_this_computer(config: UsernetesConfig) -> Iterable[Wrong]:
    if isinstance(config.hosts, LabHosts) and config.api is not None:
        wrong = "changes nothing in the lab, whose API is on this computer"
        yield Wrong("api", wrong, got=show(config.api.through))
