"""Rules of usernetes: every node is one machine with its GPUs, with room and root."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network

from gpuclusters.compat import gpu_products
from gpuclusters.config import gcp_rules, rke2_checks
from gpuclusters.config.fault import NOTHING, show
from gpuclusters.config.gcp import GcpGroup, GcpHosts, OwnNetwork, either, public_system
from gpuclusters.config.hosts import ExistingHosts, LabHosts, listed_addresses
from gpuclusters.config.rke2_cluster import Hosts
from gpuclusters.config.rules.rule import Wrong, Wrongs, machines_are_listed_once, repeats, rule
from gpuclusters.config.usernetes import (
    AddressApi,
    ContainerEngine,
    ControlPlane,
    PackagedDriver,
    UsernetesConfig,
    Worker,
)
from gpuclusters.config.usernetes_plan import (
    DOCKER_MTU,
    host_mtu,
    nodes,
    schedulable,
    uses_sudo,
    versions,
)
from gpuclusters.core.finding import Level, Path
from gpuclusters.core.naming import kebab
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
    return {**_chosen(config), "network.node-subnets": config.network.node_subnets}


def stated_for_nodes(config: UsernetesConfig, key: str) -> list[tuple[Path, ControlPlane | Worker]]:
    """All nodes, the control plane first, each with the path of one of its keys."""
    paths = [("control-plane",), *(("workers", number) for number in range(len(config.workers)))]
    return [((*path, key), node) for path, node in zip(paths, nodes(config), strict=True)]


def node_name(position: int) -> str:
    """A node in words, by its position among all of them."""
    return f"workers[{position - 1}]" if position else "the control plane"


existing_machines_are_listed_once = rule("usernetes.host-twice")(machines_are_listed_once)


@rule("usernetes.node-number-twice", each=["workers"])
def node_numbers_are_unique(config: UsernetesConfig) -> Wrongs:
    taken = [node.number for node in nodes(config)]
    every = range(addresses.FIRST_NUMBER, addresses.LAST_NUMBER + 1)
    free = next((number for number in every if number not in taken), 0)
    for again, first in repeats(taken):
        yield Wrong(("workers", again - 1, "number"), node=node_name(first), free=free)


@rule("usernetes.node-range")
def node_subnets_hold_every_number(config: UsernetesConfig) -> Wrongs:
    stated = config.network.node_subnets
    if stated.prefixlen != _NODES_PREFIX or not stated.is_private:
        yield Wrong("network.node-subnets", usual=addresses.NODE_SUBNETS)


@rule("usernetes.networks-overlap")
def networks_of_the_cluster_do_not_meet(config: UsernetesConfig) -> Wrongs:
    known = {_DOCKER: DOCKER_BRIDGE, **ranges(config)}
    for against, key in addresses.collisions(known):
        yield Wrong(key, against=against, network=known[against])


@rule("usernetes.network-too-small")
def pods_and_services_have_room(config: UsernetesConfig) -> Wrongs:
    return rke2_checks.room(_chosen(config), len(nodes(config)))


@rule("usernetes.machine-in-cluster-network", each=["workers"])
def machines_are_outside_of_the_nodes_networks(config: UsernetesConfig) -> Wrongs:
    places: list[tuple[Path, str | None]] = [
        *((path, node.host_ip) for path, node in stated_for_nodes(config, "host-ip")),
        *listed_addresses(config.hosts),
    ]
    return rke2_checks.outside(places, {**ranges(config), _DOCKER: DOCKER_BRIDGE})


@rule("usernetes.host-ip", each=["workers"])
def hosts_are_reached_at_addresses_of_their_own(config: UsernetesConfig) -> Wrongs:
    seen: dict[str, ControlPlane | Worker] = {}
    for path, node in stated_for_nodes(config, "host-ip"):
        if node.host_ip is None:
            continue
        owner = seen.setdefault(node.host_ip, node)
        own = rke2_checks.is_own(node.host_ip)
        if own or owner is not node:
            yield Wrong(path, "own" if own else "taken", owner=owner)


@rule("usernetes.range-fixed")
def generation_2_has_fixed_ranges(config: UsernetesConfig) -> Wrongs:
    chosen, stated = versions(config), _chosen(config)
    fixed = {"network.pod-subnet": POD_SUBNET, "network.service-subnet": SERVICE_SUBNET}
    for key, network in fixed.items():
        if chosen.generation == 2 and stated[key] != network:
            yield Wrong(key, usernetes=chosen.usernetes, network=network)


@rule("usernetes.port-twice")
def services_have_ports_of_their_own(config: UsernetesConfig) -> Wrongs:
    for _, names in addresses.shared_ports(config.network.ports):
        *others, last = map(kebab, names)
        yield Wrong(("network", "ports", last), others=" and ".join(others))


@rule("usernetes.ssh-port")
def ports_leave_ssh_alone(config: UsernetesConfig) -> Wrongs:
    if isinstance(config.hosts, LabHosts):
        return
    listening = {_SSH: "SSH"}
    if isinstance(config.hosts, ExistingHosts):
        listening = {one.port: f"the SSH server of {one.name}" for one in config.hosts.machines}
    for name, port in config.network.ports.tcp.items():
        if port in listening:
            yield Wrong(("network", "ports", kebab(name)), whose=listening[port])


@rule("usernetes.mtu-above-network", level=Level.WARN)
def nodes_packets_fit_into_googles_network(config: UsernetesConfig) -> Wrongs:
    if not isinstance(config.hosts, GcpHosts):
        return
    stated, most = config.network.mtu, host_mtu(config)
    if stated is not None and most is not None and stated > most:
        yield Wrong("network.mtu", "above", most=most)
    elif stated is None and most is None:
        yield Wrong("network.mtu", "unstated", mtu=DOCKER_MTU)


@rule("usernetes.api-address", "api", kind=AddressApi)
def the_apis_address_is_reached_from_outside(config: UsernetesConfig, api: AddressApi) -> Wrongs:
    if rke2_checks.is_own(api.address):
        yield Wrong("address")
    known = {**ranges(config), _DOCKER: DOCKER_BRIDGE}
    yield from rke2_checks.outside([(("address",), api.address)], known)


@rule("usernetes.api-behind-firewall", "api", kind=AddressApi)
def googles_firewall_lets_the_api_through(config: UsernetesConfig, _api: AddressApi) -> Wrongs:
    if isinstance(config.hosts, GcpHosts) and isinstance(config.hosts.network, OwnNetwork):
        yield Wrong("through")


@rule("usernetes.api-in-lab", level=Level.WARN)
def the_labs_api_is_on_this_computer(config: UsernetesConfig) -> Wrongs:
    if isinstance(config.hosts, LabHosts) and config.api is not None:
        yield Wrong("api", got=show(config.api.through))


MOST_MEASURED = 32
"""Nodes of the largest cluster with Usernetes and V100s that anybody wrote about (size-32, 2025)."""


def _named(config: UsernetesConfig) -> list[tuple[Path, str]]:
    return [(path, node.host) for path, node in stated_for_nodes(config, "host")]


@rule("usernetes.machine-twice", each=["workers"])
def a_machine_is_one_node(config: UsernetesConfig) -> Wrongs:
    named = _named(config)
    for again, first in repeats([name for _, name in named]):
        yield Wrong(named[again][0], node=node_name(first))


@rule("usernetes.machine-unknown", each=["workers"])
def nodes_are_machines_of_hosts(config: UsernetesConfig) -> Wrongs:
    return rke2_checks.unknown_machines(_named(config), config.hosts)


@rule("usernetes.machine-unused", level=Level.WARN)
def every_machine_is_a_node(config: UsernetesConfig) -> Wrongs:
    listed = isinstance(config.hosts, ExistingHosts)
    for path, name in rke2_checks.unused_machines(_named(config), config.hosts):
        yield Wrong(path, "listed" if listed else "made", got=show(name), name=name)


def _groups(config: UsernetesConfig) -> Iterator[tuple[Path, str, GcpGroup]]:
    """Nodes on Google Cloud, with the group that makes the machine of each."""
    hosts = config.hosts
    for path, name in _named(config):
        if isinstance(hosts, GcpHosts) and (group := hosts.group_of(name)) is not None:
            yield path, name, group


@rule("usernetes.group-role", each=["workers"])
def groups_say_what_their_machines_are(config: UsernetesConfig) -> Wrongs:
    roles = {"controller": "the control plane", "worker": "a worker"}
    for path, name, group in _groups(config):
        role = "controller" if name == config.control_plane.host else "worker"
        if group.role != role:
            yield Wrong(path, what=roles[role], name=group.name, stated=group.role, role=role)


@rule("usernetes.many-nodes", level=Level.WARN)
def so_many_nodes_were_seen(config: UsernetesConfig) -> Wrongs:
    nodes = len(config.workers) + 1
    if nodes > MOST_MEASURED:
        got = f"a list of {len(config.workers)}"
        yield Wrong("workers", got=got, nodes=nodes, most=MOST_MEASURED)


@rule("usernetes.machine-gpus", each=["workers"])
def nodes_have_the_gpus_of_their_machines(config: UsernetesConfig) -> Wrongs:
    product, count = config.gpus.product, config.gpus.count
    names = {name for _, name in _named(config)}
    groups = config.hosts.groups if isinstance(config.hosts, GcpHosts) else ()
    for number, group in enumerate(groups):
        made = None if group.gpu is None else (group.gpu.product, group.gpu.count)
        if made != (product, count) and not names.isdisjoint(group.machines):
            got = NOTHING if made is None else f"{made[1]} × {made[0]}"
            yield Wrong(("hosts", "groups", number, "gpu"), got=got, gpus=config.gpus)


@rule("usernetes.processor")
def gpus_are_in_machines_that_are_installed_for(config: UsernetesConfig) -> Wrongs:
    if gpu_products.product(config.gpus.product).cpu != "amd64":
        yield Wrong("gpus.product")


@rule("usernetes.no-node-for-pods")
def some_node_takes_pods(config: UsernetesConfig) -> Wrongs:
    if not schedulable(config):
        yield Wrong("schedule-on-control-plane")


@rule("usernetes.control-plane-gpus-unused", level=Level.WARN)
def the_gpus_of_the_control_plane_are_used(config: UsernetesConfig) -> Wrongs:
    if not config.schedule_on_control_plane and config.workers:
        yield Wrong("schedule-on-control-plane")


@rule("usernetes.training-single-node", level=Level.WARN)
def a_training_crosses_nodes(config: UsernetesConfig) -> Wrongs:
    stated, taking = config.proof.training, len(schedulable(config))
    if stated is not None and taking and (stated.pods or taking) == 1:
        yield Wrong("proof.training.pods")


_OS_LOGIN = re.compile(r"sa_[0-9]+|ext_.+|[a-z0-9_]+_[a-z0-9]+_(com|org|net|edu|io|dev|gov)")
"""Names that OS Login makes of addresses: jane_doe_example_com, ext_jane_gmail_com, sa_1234567890."""


@rule("usernetes.os-login-account", level=Level.WARN)
def the_account_is_none_of_os_login(config: UsernetesConfig) -> Wrongs:
    if _OS_LOGIN.fullmatch(config.account):
        yield Wrong("account")


@rule("usernetes.driver-without-root", "driver", kind=PackagedDriver)
def an_administrator_installs_the_driver(
    config: UsernetesConfig, _driver: PackagedDriver
) -> Wrongs:
    if not uses_sudo(config):
        yield Wrong("source")


@rule("usernetes.account-without-sudo", "hosts")
def without_sudo_the_account_logs_in_itself(config: UsernetesConfig, hosts: Hosts) -> Wrongs:
    known = isinstance(hosts, ExistingHosts | GcpHosts)
    if known and not uses_sudo(config) and hosts.user != config.account:
        yield Wrong("user", account=config.account)


@rule("usernetes.machines-not-prepared")
def new_machines_are_prepared_by_somebody(config: UsernetesConfig) -> Wrongs:
    made = isinstance(config.hosts, GcpHosts) and not uses_sudo(config)
    if made and public_system(config.hosts.image) is not None:
        yield Wrong("preparation.by")


@rule("usernetes.container-engine")
def only_rootless_docker_is_built(config: UsernetesConfig) -> Wrongs:
    if config.container_engine is not ContainerEngine.DOCKER:
        yield Wrong("container-engine", config.container_engine.value)


@rule("usernetes.google-cloud-refuses", "hosts", kind=GcpHosts)
def google_cloud_can_make_the_nodes(config: UsernetesConfig, hosts: GcpHosts) -> Wrongs:
    return gcp_rules.check(hosts, cluster=config.name, ranges=ranges(config))


@rule("usernetes.image-system", "hosts", kind=GcpHosts)
def images_are_of_ubuntu(_config: UsernetesConfig, hosts: GcpHosts) -> Wrongs:
    if hosts.image.system not in (None, *gcp_rules.SYSTEMS):
        yield Wrong("image.system", systems=either(gcp_rules.SYSTEMS))
