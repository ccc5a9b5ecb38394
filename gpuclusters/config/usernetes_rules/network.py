"""Row 46: addresses and ports have room, and do not meet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import AddressValueError, IPv4Address, IPv4Network

from gpuclusters.config.fault import finding, show
from gpuclusters.config.gcp import GcpHosts, OwnNetwork
from gpuclusters.config.hosts import ExistingHosts, LabHosts
from gpuclusters.config.rules.rule import Wrong, rule
from gpuclusters.config.usernetes import AddressApi, ControlPlane, UsernetesConfig, Worker
from gpuclusters.config.usernetes_plan import DOCKER_MTU, host_mtu, ports, versions
from gpuclusters.core.finding import Finding, Level, Path
from gpuclusters.usernetes import addresses
from gpuclusters.usernetes.addresses import DOCKER_BRIDGE, POD_SUBNET, SERVICE_SUBNET

_NODES_PREFIX = 16
"""Of the range that all nodes' networks are cut from: 254 of a /24 each."""
_POD_PREFIX = 24
"""Each node takes a /24 of the pods' range (node-cidr-mask-size of the controller manager)."""
_SMALLEST_SERVICES = 24
_SSH = 22


def ranges(config: UsernetesConfig) -> Mapping[str, IPv4Network]:
    """The networks of the cluster, by key."""
    stated = config.network
    return {
        "network.pod-subnet": stated.pod_subnet,
        "network.service-subnet": stated.service_subnet,
        "network.node-subnets": stated.node_subnets,
    }


@rule(46, "usernetes.node-number-twice", each=["workers"])
def node_numbers_are_unique(config: UsernetesConfig) -> Iterable[Wrong]:
    seen = {config.control_plane.number: "the control plane"}
    for position, worker in enumerate(config.workers):
        if worker.number in seen:
            yield Wrong(
                ("workers", position, "number"),
                f"is that of {seen[worker.number]}, and with it its network",
                f"write one that is free: {_free(config)}",
                show(worker.number),
            )
        seen.setdefault(worker.number, f"workers[{position}]")


def _free(config: UsernetesConfig) -> int:
    taken = {config.control_plane.number, *(worker.number for worker in config.workers)}
    numbers = range(addresses.FIRST_NUMBER, addresses.LAST_NUMBER + 1)
    return next((number for number in numbers if number not in taken), 0)


@rule(46, "usernetes.node-range")
def node_subnets_hold_every_number(config: UsernetesConfig) -> Iterable[Wrong]:
    stated = config.network.node_subnets
    if stated.prefixlen != _NODES_PREFIX or not stated.is_private:
        yield Wrong(
            "network.node-subnets",
            "is not a private /16",
            f"write one like {addresses.NODE_SUBNETS}",
        )


@rule(46, "usernetes.networks-overlap")
def networks_of_the_cluster_do_not_meet(config: UsernetesConfig) -> Iterable[Wrong]:
    known = ranges(config)
    for one, other in addresses.collisions({**known, "docker0": DOCKER_BRIDGE}):
        # docker0 is on every host and not ours to move.
        key, against = (one, "docker0 of every host") if other == "docker0" else (other, one)
        network = DOCKER_BRIDGE if other == "docker0" else known[one]
        yield Wrong(
            tuple(key.split(".")),
            f"meets {against}, which is {network}",
            "write ranges that have no address in common; they never change",
            show(str(known[key])),
        )


@rule(46, "usernetes.network-too-small")
def pods_and_services_have_room(config: UsernetesConfig) -> Iterable[Wrong]:
    pods, services = config.network.pod_subnet, config.network.service_subnet
    nodes = len(config.workers) + 1
    most = 2 ** (_POD_PREFIX - pods.prefixlen) if pods.prefixlen <= _POD_PREFIX else 0
    if nodes > most:
        yield Wrong(
            "network.pod-subnet",
            f"has room for {most} nodes, and there are {nodes}",
            "write a wider range; it cannot be changed once the cluster is there",
            show(str(pods)),
        )
    if services.prefixlen > _SMALLEST_SERVICES:
        yield Wrong(
            "network.service-subnet",
            f"is smaller than a /{_SMALLEST_SERVICES}",
            "write a wider range; it cannot be changed once the cluster is there",
            show(str(services)),
        )


@rule(46, "usernetes.machine-in-cluster-network", each=["workers"])
def machines_are_outside_of_the_nodes_networks(
    config: UsernetesConfig,
) -> Iterable[Wrong | Finding]:
    places: list[tuple[Path, str | None]] = [
        (("control-plane", "host-ip"), config.control_plane.host_ip),
        *((("workers", n, "host-ip"), worker.host_ip) for n, worker in enumerate(config.workers)),
    ]
    if isinstance(config.hosts, ExistingHosts):
        machines = enumerate(config.hosts.machines)
        places += [(("hosts", "machines", n, "address"), one.address) for n, one in machines]
    for path, address in places:
        if address is not None:
            yield from within(path, address, config)


@rule(46, "usernetes.host-ip", each=["workers"])
def hosts_are_reached_at_addresses_of_their_own(config: UsernetesConfig) -> Iterable[Wrong]:
    seen: dict[str, str] = {}
    nodes: list[tuple[Path, ControlPlane | Worker]] = [(("control-plane",), config.control_plane)]
    nodes += [(("workers", number), worker) for number, worker in enumerate(config.workers)]
    for path, node in nodes:
        text = node.host_ip
        if text is None:
            continue
        if IPv4Address(text).is_loopback or text in seen:
            owner = seen.get(text)
            yield Wrong(
                (*path, "host-ip"),
                f"is that of {owner} too" if owner else "is every host's own",
                "write the address of this host in the network that all of them share",
                show(text),
            )
        seen.setdefault(text, node.host)


def within(path: Path, text: str, config: UsernetesConfig) -> Iterator[Finding]:
    """An address that lies in a network of the cluster; a name is nobody's to judge."""
    try:
        address = IPv4Address(text)
    except AddressValueError:
        return
    for key, network in {**ranges(config), "docker0 of every host": DOCKER_BRIDGE}.items():
        if address in network:
            other = "an address outside of it" if network == DOCKER_BRIDGE else f"another {key}"
            yield finding(
                path, f"lies within {key}, which is {network}", show(text), f"write {other}"
            )


@rule(46, "usernetes.range-fixed")
def generation_2_has_fixed_ranges(config: UsernetesConfig) -> Iterable[Wrong]:
    chosen = versions(config)
    if chosen.generation != 2:
        return
    stated = config.network
    for key, network, fixed in (
        ("pod-subnet", stated.pod_subnet, POD_SUBNET),
        ("service-subnet", stated.service_subnet, SERVICE_SUBNET),
    ):
        if network != fixed:
            yield Wrong(
                ("network", key),
                f"cannot be chosen with {chosen.usernetes}, which has {fixed}",
                "remove it, or write versions: current",
                show(str(network)),
            )


@rule(46, "usernetes.port-twice")
def services_have_ports_of_their_own(config: UsernetesConfig) -> Iterable[Wrong]:
    for port, names in addresses.shared_ports(ports(config)):
        keys = [name.replace("_", "-") for name in names]
        yield Wrong(
            ("network", "ports", keys[-1]),
            f"is the port of {' and '.join(keys[:-1])} too",
            "give each a port of its own",
            show(port),
        )


@rule(46, "usernetes.ssh-port")
def ports_leave_ssh_alone(config: UsernetesConfig) -> Iterable[Wrong]:
    if isinstance(config.hosts, LabHosts):
        return
    listening = {_SSH: "SSH"}
    if isinstance(config.hosts, ExistingHosts):
        listening = {
            machine.port: f"the SSH server of {machine.name}" for machine in config.hosts.machines
        }
    for name, port in ports(config).tcp.items():
        if port in listening:
            yield Wrong(
                ("network", "ports", name.replace("_", "-")),
                f"is the port of {listening[port]}",
                "write another one; it is the same on all hosts",
                show(port),
            )


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
            show(stated),
        )
    elif stated is None and most is None:
        yield Wrong(
            "network.mtu",
            f"is missing, and that of the existing network is not known here: {DOCKER_MTU} is above Google's"
            " default of 1460",
            "write the MTU that `gcloud compute networks describe` prints",
        )


_ADDRESS: Path = ("api", "address")


@rule(53, "usernetes.api-address")
def the_apis_address_is_reached_from_outside(config: UsernetesConfig) -> Iterable[Wrong | Finding]:
    if not isinstance(config.api, AddressApi):
        return
    text = config.api.address
    if _only_there(text):
        yield Wrong(
            _ADDRESS,
            "is every machine's own",
            "write an address of the control plane's host, or through: tunnel",
            show(text),
        )
    yield from within(_ADDRESS, text, config)


def _only_there(text: str) -> bool:
    try:
        address = IPv4Address(text)
    except AddressValueError:
        return text == "localhost"
    return address.is_loopback or address.is_unspecified


@rule(53, "usernetes.api-behind-firewall")
def googles_firewall_lets_the_api_through(config: UsernetesConfig) -> Iterable[Wrong]:
    hosts = config.hosts
    if (
        isinstance(config.api, AddressApi)
        and isinstance(hosts, GcpHosts)
        and isinstance(hosts.network, OwnNetwork)
    ):
        yield Wrong(
            "api.through",
            "is address, and the firewall that is made with hosts.network lets only SSH in from outside",
            "write tunnel, or a network of your own whose firewall lets the API through",
        )


@rule(53, "usernetes.api-in-lab", level=Level.WARN)
def the_labs_api_is_on_this_computer(config: UsernetesConfig) -> Iterable[Wrong]:
    if isinstance(config.hosts, LabHosts) and config.api is not None:
        yield Wrong(
            "api",
            "changes nothing in the lab, whose API is on this computer",
            "remove it",
            show(config.api.through),
        )
