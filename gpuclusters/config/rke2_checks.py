"""Checks that the rules of several cluster types share; paths are below the section of the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from gpuclusters.compat import gpu_products, rke2_matrix
from gpuclusters.compat.rke2_matrix import ModulesPolicy, branch_of
from gpuclusters.compat.versions import older, parse_release, release
from gpuclusters.config.fault import show, show_values
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.config.hosts import ExistingHosts, LabHosts
from gpuclusters.config.kubernetes import Rke2Common
from gpuclusters.config.rules.rule import Wrong, Wrongs
from gpuclusters.core.finding import Path
from gpuclusters.rke2.model import SERVER_COUNTS
from gpuclusters.tenancy.isolation import literal
from gpuclusters.usernetes.addresses import DOCKER_BRIDGE

NODE_PREFIX = 24
"""Each node takes a /24 of the pods' range (node-cidr-mask-size of the controller manager)."""
_SHOWN = 8
PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


def known_branch(path: Path, branch: int, got: object) -> Wrongs:
    """The branch of a driver is one that was read about."""
    table = rke2_matrix.matrix()
    if rke2_matrix.branch(branch) is None:
        wrong = f"is of a branch that was not read about here, as of {table.as_of}"
        yield Wrong(path, wrong, f"write one of {', '.join(map(str, table.drivers))}", show(got))


def known_version(path: Path, version: str) -> Wrongs:
    """The version of a driver is not newer than the newest of its branch that was read about."""
    branch = rke2_matrix.branch(branch_of(version))
    if branch is not None and older(branch.newest, parse_release(version) or ()):
        wrong = f"is newer than any of its branch that was read about, as of {rke2_matrix.matrix().as_of}"
        yield Wrong(path, wrong, f"see that it exists; {branch.newest} does", show(version))


def fixed_branch(path: Path, version: str) -> Wrongs:
    """The branch of a driver still gets fixes."""
    table, number = rke2_matrix.matrix(), branch_of(version)
    branch = rke2_matrix.branch(number)
    if branch is not None and branch.is_over(table.as_of):
        end = "" if branch.end == rke2_matrix.ENDED else f" since {branch.end}"
        good = ", ".join(str(n) for n, one in table.drivers.items() if not one.is_over(table.as_of))
        wrong = f"is of branch {number}, which gets no fixes{end}"
        yield Wrong(path, wrong, f"write a branch that does: {good}", show(version))


def new_enough(path: Path, version: str, product: str, *, by_branch: bool = False) -> Wrongs:
    """The driver is not older than the first one for the GPUs; `by_branch`, any of that branch will do."""
    least = gpu_products.product(product).minimum_driver
    if least is None:
        return
    branches = branch_of(version), branch_of(least)
    if branches[0] < branches[1] or (not by_branch and release(version) < release(least)):
        wrong = f"is older than {least}, the first driver for {product}"
        yield Wrong(path, wrong, f"write {least} or newer", show(version))


def fitting_modules(
    path: Path, chosen: ModulesPolicy, version: str, product: str, whose: str = ""
) -> Wrongs:
    """The GPUs run with these kernel modules of the driver."""
    generation = gpu_products.product(product).architecture
    problem = rke2_matrix.module_problem(chosen, branch_of(version), generation)
    if problem is not None:
        open_ones = chosen is ModulesPolicy.OPEN
        other = ModulesPolicy.PROPRIETARY if open_ones else ModulesPolicy.OPEN
        wrong = f"do not fit {product}{whose}: its GPUs {problem}"
        yield Wrong(path, wrong, f"write auto, or {other}", show(chosen))


def known_machines(hosts: object) -> tuple[str, ...] | None:
    """Names of the machines that there are; None in the lab, which makes what is named."""
    match hosts:
        case ExistingHosts():
            return tuple(machine.name for machine in hosts.machines)
        case GcpHosts():
            return hosts.machines
    return None


def unknown_machines(named: Iterable[tuple[Path, str]], hosts: object) -> Wrongs:
    """Every name is that of a machine under hosts."""
    known = known_machines(hosts)
    for path, name in () if known is None else named:
        if known is not None and name not in known:
            near = show_values(known[:_SHOWN]) + (", …" if len(known) > _SHOWN else "")
            remedy = f"write one of {near}, or add it there"
            yield Wrong(path, "is none of the machines under hosts", remedy)


def unused_machines(named: Iterable[tuple[Path, str]], hosts: object) -> Iterator[tuple[Path, str]]:
    """Machines under hosts that are no node, with where they are stated."""
    used = {name for _, name in named}
    listed = isinstance(hosts, ExistingHosts)
    for number, name in enumerate(known_machines(hosts) or ()):
        if name not in used:
            yield ("hosts", "machines", number) if listed else ("hosts", "groups"), name


def servers_can_hold_a_majority(_config: Any, cluster: Any) -> Wrongs:
    """There are 1, 3 or 5 servers: an even number survives no more failures than one less."""
    if (count := len(cluster.servers)) not in SERVER_COUNTS:
        wrong = f"has {count} machines, and etcd needs a majority of an odd number"
        yield Wrong("servers", wrong, got=f"a list of {count}")


def one_address(
    stated: str | None, servers: Mapping[str, str | None], *, simulated: bool
) -> Wrongs:
    """Several servers are reached by one fixed address, else the cluster hangs on the first.

    `servers`: their own addresses by name; `simulated` ones are all reached by this computer.
    """
    path = "registration-address"
    if stated is None:
        if len(servers) > 1:
            remedy = "write a virtual IP, balancer or name that leads to all, ports 9345 and 6443"
            yield Wrong(path, f"is missing for {len(servers)} servers", remedy)
    elif not simulated:
        if is_own(stated):
            remedy = "write an address of the servers that all machines reach"
            yield Wrong(path, "is every machine's own", remedy)
        own = [name for name, address in servers.items() if address == stated]
        if own and len(servers) > 1:
            wrong = f"is the address of {own[0]} alone: while it is down nothing joins and nobody gets in"
            remedy = "write an address that moves: a virtual IP (keepalived, kube-vip), a load balancer, DNS"
            yield Wrong(path, wrong, remedy)


def is_own(host: str) -> bool:
    """Whether every machine reaches itself by this address or name."""
    address = literal(host)
    if address is None:
        return host == "localhost"
    return address.is_loopback or address.is_unspecified


def one_server_is_no_spare(config: Any, cluster: Any) -> Wrongs:
    """With one server, its failure or upgrade is an outage of the API."""
    if len(cluster.servers) == 1 and not isinstance(config.hosts, LabHosts):
        wrong = "has one machine: nobody reaches the API while it restarts, and its disk is the only copy"
        yield Wrong("servers", wrong, got="a list of 1")


def room(ranges: Mapping[str, IPv4Network], nodes: int) -> Wrongs:
    """Pods, whose range is the first, have a /24 for every node, and services, the next, have one /24."""
    (pods, network), (services, other), *_ = ranges.items()
    most = 2 ** (NODE_PREFIX - network.prefixlen) if network.prefixlen <= NODE_PREFIX else 0
    remedy = "write a wider range; it cannot be changed once the cluster is there"
    if nodes > most:
        yield Wrong(pods, f"has room for {most} nodes, and there are {nodes}", remedy)
    if other.prefixlen > NODE_PREFIX:
        yield Wrong(services, f"is smaller than a /{NODE_PREFIX}", remedy)


def outside(stated: Iterable[tuple[Path, str | None]], ranges: Mapping[str, IPv4Network]) -> Wrongs:
    """No machine has an address of the cluster's networks: it could not be reached from within."""
    for path, text in stated:
        address = literal(text or "")
        for key, network in ranges.items():
            if isinstance(address, IPv4Address) and address in network:
                other = f"another {key}" if network != DOCKER_BRIDGE else "an address outside of it"
                yield Wrong(path, f"lies within {key}, which is {network}", f"write {other}")


def no_default_runtime(_config: Any, cluster: Rke2Common) -> Wrongs:
    """`default-runtime` keeps RKE2 from starting before the runtime's program is there."""
    if cluster.default_runtime is not None:
        wrong = 'keeps RKE2 from starting until that runtime is there: "default runtime ... was not found"'
        yield Wrong("default-runtime", wrong)


def variables_are_those_of_a_proxy(_config: Any, cluster: Rke2Common) -> Wrongs:
    """The units' environment holds proxies; CONTAINERD_CONFIG there breaks RKE2 at its next restart."""
    for name in cluster.environment:
        path: Path = ("environment", name)
        if name in ("CONTAINERD_CONFIG", "CONTAINERD_SOCKET", "RUNTIME_CONFIG_SOURCE"):
            wrong = "is no setting of RKE2, and what it points to breaks it at its next restart"
            yield Wrong(path, wrong, "remove it; containerd is set by drop-ins", show(name))
        elif name.removeprefix("CONTAINERD_") not in PROXY_VARIABLES:
            wrong = "is not a variable that RKE2's units are given for"
            remedy = f"write {show_values(PROXY_VARIABLES)}, or the same with CONTAINERD_ before it"
            yield Wrong(path, wrong, remedy, show(name))
