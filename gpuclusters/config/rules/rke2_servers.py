"""Row 24: the servers of a cluster that is made with RKE2 can be reached and can hold a majority."""

from __future__ import annotations

from collections.abc import Iterable

from gpuclusters.config import rke2_checks
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.fault import NOTHING, finding, show
from gpuclusters.config.hosts import ExistingHosts
from gpuclusters.config.kubernetes import Rke2Kubernetes
from gpuclusters.config.rules.rule import rule
from gpuclusters.core.finding import Finding, Level, Path

_PREFIX: Path = ("kubernetes",)


def _rke2(config: CaasConfig) -> Rke2Kubernetes | None:
    return config.kubernetes if isinstance(config.kubernetes, Rke2Kubernetes) else None


@rule(24, "rke2.server-count")
def servers_can_hold_a_majority(config: CaasConfig) -> Iterable[Finding]:
    cluster = _rke2(config)
    if cluster is not None:
        yield from rke2_checks.majority(len(cluster.servers), _PREFIX)


@rule(24, "caas.server-machine")
def servers_are_machines_of_their_own(config: CaasConfig) -> Iterable[Finding]:
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
            yield finding(
                (*path, "name"),
                f"is also the name of servers[{names[server.name]}]",
                show(server.name),
                "give every server a name of its own: etcd and the cluster know it by its name",
            )
        names.setdefault(server.name, position)
        if server.address is None:
            if server.host_key is not None:
                yield finding(
                    (*path, "host-key"),
                    "is stated without an address",
                    show(server.host_key),
                    "write the address too, or leave both to the machine of this name",
                )
            if isinstance(config.hosts, ExistingHosts) and server.name not in listed:
                yield finding(
                    (*path, "address"),
                    "is missing, and no machine of this name is under hosts.machines",
                    NOTHING,
                    "write address and host-key of the server",
                )
            continue
        if server.host_key is None:
            yield finding(
                (*path, "host-key"),
                "is missing",
                NOTHING,
                "write what `ssh-keyscan -t ed25519 ADDRESS` prints: a machine that cannot prove who it is "
                "gets no command",
            )
        if server.name in nodes or server.name in listed:
            yield finding(
                (*path, "name"),
                "is the name of another machine of this configuration, which has an address already",
                show(server.name),
                "give the server a name of its own, or leave its address out if it is that machine",
            )
        place = f"{server.address}:{server.port}"
        if place in places:
            yield finding(
                (*path, "address"),
                f"is also that of {places[place]}",
                show(server.address),
                "write the address of this server",
            )
        places.setdefault(place, f"servers[{position}]")


@rule(24, "rke2.registration-address")
def servers_have_one_address(config: CaasConfig) -> Iterable[Finding]:
    cluster = _rke2(config)
    if cluster is None:
        return
    yield from rke2_checks.one_address(
        cluster.registration_address,
        {server.name: server.address for server in cluster.servers},
        _PREFIX,
        simulated=not isinstance(config.hosts, ExistingHosts),
    )


@rule(24, "rke2.single-server", level=Level.WARN)
def one_server_is_no_spare(config: CaasConfig) -> Iterable[Finding]:
    cluster = _rke2(config)
    if cluster is not None and isinstance(config.hosts, ExistingHosts):
        yield from rke2_checks.no_spare(len(cluster.servers), _PREFIX)
