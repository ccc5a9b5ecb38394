"""Row 24: the servers of a cluster that is made with RKE2 can be reached and can hold a majority."""

from __future__ import annotations

from collections.abc import Iterable

from gpuclusters.config import rke2_checks
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.fault import NOTHING, Flaw, Path, show
from gpuclusters.config.hosts import ExistingHosts
from gpuclusters.config.kubernetes import Rke2Kubernetes
from gpuclusters.config.rules.rule import Severity, rule

_PREFIX: Path = ("kubernetes",)


def _rke2(config: CaasConfig) -> Rke2Kubernetes | None:
    return config.kubernetes if isinstance(config.kubernetes, Rke2Kubernetes) else None


@rule(24, needs=["kubernetes"])
def servers_can_hold_a_majority(config: CaasConfig) -> Iterable[Flaw]:
    """There are 1, 3 or 5 servers: an even number survives no more failures than one less."""
    cluster = _rke2(config)
    if cluster is not None:
        yield from rke2_checks.majority(len(cluster.servers), _PREFIX)


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
    yield from rke2_checks.one_address(
        cluster.registration_address,
        {server.name: server.address for server in cluster.servers},
        _PREFIX,
        simulated=not isinstance(config.hosts, ExistingHosts),
    )


@rule(24, needs=["kubernetes", "hosts"], severity=Severity.WARNING)
def one_server_is_no_spare(config: CaasConfig) -> Iterable[Flaw]:
    """With one server, its failure or upgrade is an outage of the API."""
    cluster = _rke2(config)
    if cluster is not None and isinstance(config.hosts, ExistingHosts):
        yield from rke2_checks.no_spare(len(cluster.servers), _PREFIX)


RULES = (
    servers_can_hold_a_majority,
    servers_are_machines_of_their_own,
    servers_have_one_address,
    one_server_is_no_spare,
)
