"""Row 24: a cluster that is made with RKE2 can be made, and its settings do not contradict each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import AddressValueError, IPv4Address

from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.fault import NOTHING, Flaw, Path, show, show_values
from gpuclusters.config.hosts import ExistingHosts
from gpuclusters.config.kubernetes import ContainerdConfigVersion, Distribution, Rke2Kubernetes
from gpuclusters.config.rules.rule import Severity, rule
from gpuclusters.domain import rke2
from gpuclusters.domain.rke2_cilium import PolicyEnforcement
from gpuclusters.domain.rke2_plan import SERVER_COUNTS

_NODE_PREFIX = 24
"""Each node takes a /24 of the pods' range (node-cidr-mask-size of the controller manager)."""
_SMALLEST_SERVICE_RANGE = 24
_ALLOWED_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


def _rke2(config: CaasConfig) -> Rke2Kubernetes | None:
    return config.kubernetes if isinstance(config.kubernetes, Rke2Kubernetes) else None


@rule(24, needs=["kubernetes"])
def servers_can_hold_a_majority(config: CaasConfig) -> Iterable[Flaw]:
    """There are 1, 3 or 5 servers: an even number survives no more failures than one less."""
    cluster = _rke2(config)
    if cluster is not None and len(cluster.servers) not in SERVER_COUNTS:
        yield Flaw(
            ("kubernetes", "servers"),
            f"has {len(cluster.servers)} machines, and etcd needs a majority of an odd number",
            f"a list of {len(cluster.servers)}",
            "write 3 (one may fail), 5 (two may), or 1 (none may)",
        )


@rule(24, needs=["kubernetes", "hosts", "nodes"])
def servers_are_machines_of_their_own(config: CaasConfig) -> Iterable[Flaw]:
    """Every server is one machine that can be reached, and none is listed twice."""
    cluster = _rke2(config)
    if cluster is None:
        return
    machines = config.hosts.machines if isinstance(config.hosts, ExistingHosts) else ()
    listed = {machine.name: f"{machine.address}:{machine.port}" for machine in machines}
    nodes = {node.name for node in config.nodes}
    names: dict[str, int] = {}
    places = {place: f"hosts.machines, as {name}" for name, place in listed.items()}
    for position, server in enumerate(cluster.servers):
        path: Path = ("kubernetes", "servers", position)
        if server.name in names:
            yield Flaw(
                (*path, "name"),
                f"is also the name of servers[{names[server.name]}]",
                show(server.name),
                "give every server a name of its own: etcd and the cluster know it by its name",
            )
        names.setdefault(server.name, position)
        if server.address is None:
            if server.host_key is not None:
                yield Flaw(
                    (*path, "host-key"),
                    "is stated without an address",
                    show(server.host_key),
                    "write the address too, or leave both to the machine of this name",
                )
            if isinstance(config.hosts, ExistingHosts) and server.name not in listed:
                yield Flaw(
                    (*path, "address"),
                    "is missing, and no machine of this name is under hosts.machines",
                    NOTHING,
                    "write address and host-key of the server",
                )
            continue
        if server.host_key is None:
            yield Flaw(
                (*path, "host-key"),
                "is missing",
                NOTHING,
                "write what `ssh-keyscan -t ed25519 ADDRESS` prints: a machine that cannot prove who it is "
                "gets no command",
            )
        if server.name in nodes or server.name in listed:
            yield Flaw(
                (*path, "name"),
                "is the name of another machine of this configuration, which has an address already",
                show(server.name),
                "give the server a name of its own, or leave its address out if it is that machine",
            )
        place = f"{server.address}:{server.port}"
        if place in places:
            yield Flaw(
                (*path, "address"),
                f"is also that of {places[place]}",
                show(server.address),
                "write the address of this server",
            )
        places.setdefault(place, f"servers[{position}]")


@rule(24, needs=["kubernetes", "hosts"])
def servers_have_one_address(config: CaasConfig) -> Iterable[Flaw]:
    """Several servers are reached by one fixed address, else the cluster hangs on the first."""
    cluster = _rke2(config)
    if cluster is None:
        return
    path: Path = ("kubernetes", "registration-address")
    stated = cluster.registration_address
    if stated is None:
        if len(cluster.servers) > 1:
            yield Flaw(
                path,
                f"is missing for {len(cluster.servers)} servers",
                NOTHING,
                "write the virtual IP, load balancer or DNS name that leads to all of them on ports 9345 "
                "and 6443",
            )
    elif isinstance(config.hosts, ExistingHosts):
        if _is_loopback(stated):
            yield Flaw(
                path,
                "is every machine's own",
                show(stated),
                "write an address of the servers that all machines reach",
            )
        own = [server.name for server in cluster.servers if server.address == stated]
        if own and len(cluster.servers) > 1:
            yield Flaw(
                path,
                f"is the address of {own[0]} alone: while it is down nothing joins and nobody gets in",
                show(stated),
                "write an address that moves: a virtual IP (keepalived, kube-vip), a load balancer, DNS",
            )


@rule(24, needs=["kubernetes", "nodes"])
def networks_have_room(config: CaasConfig) -> Iterable[Flaw]:
    """The pods' range has a /24 for every node; neither range can grow later."""
    cluster = _rke2(config)
    if cluster is None:
        return
    names = {node.name for node in config.nodes} | {server.name for server in cluster.servers}
    room = 2 ** max(0, _NODE_PREFIX - cluster.pod_cidr.prefixlen)
    if cluster.pod_cidr.prefixlen > _NODE_PREFIX:
        room = 0
    if len(names) > room:
        yield Flaw(
            ("kubernetes", "pod-cidr"),
            f"has room for {room} nodes, and there are {len(names)}",
            show(str(cluster.pod_cidr)),
            "write a wider range; it cannot be changed once the cluster is there",
        )
    if cluster.service_cidr.prefixlen > _SMALLEST_SERVICE_RANGE:
        yield Flaw(
            ("kubernetes", "service-cidr"),
            "is smaller than a /24",
            show(str(cluster.service_cidr)),
            "write a wider range; it cannot be changed once the cluster is there",
        )


@rule(24, needs=["kubernetes", "hosts"])
def machines_are_outside_of_the_clusters_networks(config: CaasConfig) -> Iterable[Flaw]:
    """No machine has an address of pods or services: it could not be reached from within."""
    cluster = _rke2(config)
    if cluster is None:
        return
    ranges = {"pod-cidr": cluster.pod_cidr, "service-cidr": cluster.service_cidr}
    for path, address in _addresses(config, cluster):
        for key, network in ranges.items():
            if address in network:
                yield Flaw(
                    path,
                    f"lies within kubernetes.{key}, which is {network}",
                    show(str(address)),
                    f"write another {key}",
                )


def _addresses(config: CaasConfig, cluster: Rke2Kubernetes) -> Iterator[tuple[Path, IPv4Address]]:
    machines = config.hosts.machines if isinstance(config.hosts, ExistingHosts) else ()
    stated: list[tuple[Path, str | None]] = [
        (("hosts", "machines", n, "address"), machine.address) for n, machine in enumerate(machines)
    ]
    stated += [
        (("kubernetes", "servers", n, "address"), server.address)
        for n, server in enumerate(cluster.servers)
    ]
    stated.append((("kubernetes", "registration-address"), cluster.registration_address))
    for path, text in stated:
        try:
            yield path, IPv4Address(text or "")
        except AddressValueError:
            continue


@rule(24, needs=["kubernetes"])
def the_release_brings_containerd_2(config: CaasConfig) -> Iterable[Flaw]:
    """RKE2 brings its own containerd, which has to be 2.x: CDI and drop-ins in version 3."""
    cluster = _rke2(config)
    if cluster is None:
        return
    if not rke2.parse_version(cluster.version).has_containerd_2:
        yield Flaw(
            ("kubernetes", "version"),
            "brings containerd 1.7",
            show(cluster.version),
            "write v1.31.6, v1.32.2, or anything from v1.33 on",
        )
    if cluster.containerd.config_version is not ContainerdConfigVersion.V3:
        yield Flaw(
            ("kubernetes", "containerd", "config-version"),
            "is not that of RKE2's containerd: a drop-in with it would be ignored silently",
            show(cluster.containerd.config_version.value),
            "remove it, or write 3",
        )
    if cluster.containerd.enable_cdi:
        yield Flaw(
            ("kubernetes", "containerd", "enable-cdi"),
            "is on, and RKE2's containerd reads CDI by itself",
            "true",
            "remove it",
        )
    if cluster.distribution is not Distribution.RKE2:
        yield Flaw(
            ("kubernetes", "distribution"),
            "is another one than kubernetes.source",
            show(cluster.distribution.value),
            "remove it",
        )


@rule(24, needs=["kubernetes"])
def no_default_runtime(config: CaasConfig) -> Iterable[Flaw]:
    """`default-runtime` keeps RKE2 from starting before the runtime's program is there."""
    cluster = _rke2(config)
    if cluster is not None and cluster.default_runtime is not None:
        yield Flaw(
            ("kubernetes", "default-runtime"),
            "keeps RKE2 from starting: its containerd refuses a runtime whose program is not there yet, "
            '"default runtime ... was not found"',
            show(cluster.default_runtime),
            "remove it: pods choose their runtime by RuntimeClass, and CDI needs none",
        )


@rule(24, needs=["kubernetes"])
def variables_are_those_of_a_proxy(config: CaasConfig) -> Iterable[Flaw]:
    """The units' environment holds proxies; CONTAINERD_CONFIG there breaks RKE2 at its next restart."""
    cluster = _rke2(config)
    for name in cluster.environment if cluster is not None else ():
        path: Path = ("kubernetes", "environment", name)
        if name in ("CONTAINERD_CONFIG", "CONTAINERD_SOCKET", "RUNTIME_CONFIG_SOURCE"):
            yield Flaw(
                path,
                "is no setting of RKE2: it writes containerd's configuration anew with every start, and "
                "what points there broke clusters at their next reboot",
                show(name),
                "remove it; containerd is set by drop-ins",
            )
        elif name.removeprefix("CONTAINERD_") not in _ALLOWED_VARIABLES:
            yield Flaw(
                path,
                "is not a variable that RKE2's units are given for",
                show(name),
                f"write {show_values(_ALLOWED_VARIABLES)}, or the same with CONTAINERD_ before it",
            )


@rule(24, needs=["kubernetes"], severity=Severity.WARNING)
def the_release_is_known(config: CaasConfig) -> Iterable[Flaw]:
    """A release whose minor nobody has read about may behave otherwise."""
    cluster = _rke2(config)
    newest = rke2.UNTIL_KUBERNETES_MINOR
    if cluster is not None and rke2.parse_version(cluster.version).minor > newest:
        yield Flaw(
            ("kubernetes", "version"),
            f"is newer than v1.{newest}, the last one that was read about here",
            show(cluster.version),
            "read its release notes for changes of Cilium, containerd and ingress before you apply it",
        )


@rule(24, needs=["kubernetes"], severity=Severity.WARNING)
def always_closes_the_system_too(config: CaasConfig) -> Iterable[Flaw]:
    """With policyEnforcementMode always nothing starts before somebody wrote policies for it."""
    cluster = _rke2(config)
    if cluster is not None and cluster.cilium.policy_enforcement is PolicyEnforcement.ALWAYS:
        yield Flaw(
            ("kubernetes", "cilium", "policy-enforcement"),
            "closes system pods too, CoreDNS among them, until policies open them",
            '"always"',
            "write default: tenants are closed by the policy of all tenants either way",
        )


@rule(24, needs=["kubernetes", "hosts"], severity=Severity.WARNING)
def one_server_is_no_spare(config: CaasConfig) -> Iterable[Flaw]:
    """With one server, its failure or upgrade is an outage of the API."""
    cluster = _rke2(config)
    if (
        cluster is not None
        and len(cluster.servers) == 1
        and isinstance(config.hosts, ExistingHosts)
    ):
        yield Flaw(
            ("kubernetes", "servers"),
            "has one machine: nobody reaches the API while it restarts, and its disk is the only copy",
            "a list of 1",
            "write 3, and keep etcd's snapshots elsewhere",
        )


def _is_loopback(text: str) -> bool:
    try:
        return IPv4Address(text).is_loopback
    except AddressValueError:
        return text == "localhost"


RULES = (
    servers_can_hold_a_majority,
    servers_are_machines_of_their_own,
    servers_have_one_address,
    networks_have_room,
    machines_are_outside_of_the_clusters_networks,
    the_release_brings_containerd_2,
    no_default_runtime,
    variables_are_those_of_a_proxy,
    the_release_is_known,
    always_closes_the_system_too,
    one_server_is_no_spare,
)
