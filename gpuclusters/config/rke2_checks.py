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
        yield Wrong(path, got=show(got), table=table)


def known_version(path: Path, version: str) -> Wrongs:
    """The version of a driver is not newer than the newest of its branch that was read about."""
    branch = rke2_matrix.branch(branch_of(version))
    if branch is not None and older(branch.newest, parse_release(version) or ()):
        yield Wrong(path, got=show(version), table=rke2_matrix.matrix(), branch=branch)


def fixed_branch(path: Path, version: str) -> Wrongs:
    """The branch of a driver still gets fixes."""
    table, number = rke2_matrix.matrix(), branch_of(version)
    branch = rke2_matrix.branch(number)
    if branch is not None and branch.is_over(table.as_of):
        case = "over" if branch.end == rke2_matrix.ENDED else "over-since"
        good = [n for n, one in table.drivers.items() if not one.is_over(table.as_of)]
        yield Wrong(path, case, got=show(version), number=number, branch=branch, good=good)


def new_enough(path: Path, version: str, product: str, *, by_branch: bool = False) -> Wrongs:
    """The driver is not older than the first one for the GPUs; `by_branch`, any of that branch will do."""
    least = gpu_products.product(product).minimum_driver
    if least is None:
        return
    branches = branch_of(version), branch_of(least)
    if branches[0] < branches[1] or (not by_branch and release(version) < release(least)):
        yield Wrong(path, got=show(version), least=least, product=product)


def fitting_modules(
    path: Path, chosen: ModulesPolicy, version: str, product: str, whose: str = ""
) -> Wrongs:
    """The GPUs run with these kernel modules of the driver."""
    generation = gpu_products.product(product).architecture
    problem = rke2_matrix.module_problem(chosen, branch_of(version), generation)
    if problem is not None:
        open_ones = chosen is ModulesPolicy.OPEN
        other = ModulesPolicy.PROPRIETARY if open_ones else ModulesPolicy.OPEN
        yield Wrong(path, got=show(chosen), product=product, whose=whose, why=problem, other=other)


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
            yield Wrong(path, near=near)


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
        yield Wrong("servers", got=f"a list of {count}", count=count)


def one_address(
    stated: str | None, servers: Mapping[str, str | None], *, simulated: bool
) -> Wrongs:
    """Several servers are reached by one fixed address, else the cluster hangs on the first.

    `servers`: their own addresses by name; `simulated` ones are all reached by this computer.
    """
    path = "registration-address"
    if stated is None:
        if len(servers) > 1:
            yield Wrong(path, "missing", count=len(servers))
    elif not simulated:
        if is_own(stated):
            yield Wrong(path, "own")
        own = [name for name, address in servers.items() if address == stated]
        if own and len(servers) > 1:
            yield Wrong(path, "one-server", owner=own[0])


def is_own(host: str) -> bool:
    """Whether every machine reaches itself by this address or name."""
    address = literal(host)
    if address is None:
        return host == "localhost"
    return address.is_loopback or address.is_unspecified


def one_server_is_no_spare(config: Any, cluster: Any) -> Wrongs:
    """With one server, its failure or upgrade is an outage of the API."""
    if len(cluster.servers) == 1 and not isinstance(config.hosts, LabHosts):
        yield Wrong("servers", got="a list of 1")


def room(ranges: Mapping[str, IPv4Network], nodes: int) -> Wrongs:
    """Pods, whose range is the first, have a /24 for every node, and services, the next, have one /24."""
    (pods, network), (services, other), *_ = ranges.items()
    most = 2 ** (NODE_PREFIX - network.prefixlen) if network.prefixlen <= NODE_PREFIX else 0
    if nodes > most:
        yield Wrong(pods, "pods", most=most, nodes=nodes)
    if other.prefixlen > NODE_PREFIX:
        yield Wrong(services, "services", prefix=NODE_PREFIX)


def outside(stated: Iterable[tuple[Path, str | None]], ranges: Mapping[str, IPv4Network]) -> Wrongs:
    """No machine has an address of the cluster's networks: it could not be reached from within."""
    for path, text in stated:
        address = literal(text or "")
        for key, network in ranges.items():
            if isinstance(address, IPv4Address) and address in network:
                other = f"another {key}" if network != DOCKER_BRIDGE else "an address outside of it"
                yield Wrong(path, "within", key=key, network=network, other=other)


def no_default_runtime(_config: Any, cluster: Rke2Common) -> Wrongs:
    """`default-runtime` keeps RKE2 from starting before the runtime's program is there."""
    if cluster.default_runtime is not None:
        yield Wrong("default-runtime")


def variables_are_those_of_a_proxy(_config: Any, cluster: Rke2Common) -> Wrongs:
    """The units' environment holds proxies; CONTAINERD_CONFIG there breaks RKE2 at its next restart."""
    for name in cluster.environment:
        path: Path = ("environment", name)
        if name in ("CONTAINERD_CONFIG", "CONTAINERD_SOCKET", "RUNTIME_CONFIG_SOURCE"):
            yield Wrong(path, "containerd", got=show(name))
        elif name.removeprefix("CONTAINERD_") not in PROXY_VARIABLES:
            yield Wrong(path, "unknown", got=show(name), known=show_values(PROXY_VARIABLES))
