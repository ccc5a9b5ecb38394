"""What must hold for every cluster by RKE2, whatever type it belongs to; the rules of each type call these.

`prefix` is where the settings stand within the section: `kubernetes` in a `caas` cluster, nothing in an
`rke2` one. Each gives what is wrong; none reads more than its arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import AddressValueError, IPv4Address, IPv4Network

from gpuclusters.compat import rke2_matrix
from gpuclusters.compat.versions import older, parse_release
from gpuclusters.config.fault import NOTHING, finding, render_path, show, show_values
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.config.hosts import ExistingHosts
from gpuclusters.config.rke2 import Rke2Common
from gpuclusters.config.rules.rule import Wrong
from gpuclusters.core.finding import Finding, Path
from gpuclusters.rke2.model import SERVER_COUNTS

NODE_PREFIX = 24
"""Each node takes a /24 of the pods' range (node-cidr-mask-size of the controller manager)."""
SMALLEST_SERVICE_RANGE = 24
_SHOWN = 8
PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


def known_branch(path: Path, branch: int, got: object) -> Iterable[Wrong]:
    """The branch of a driver is one that was read about."""
    table = rke2_matrix.matrix()
    if rke2_matrix.branch(branch) is None:
        wrong = f"is of a branch that was not read about here, as of {table.as_of}"
        yield Wrong(path, wrong, f"write one of {', '.join(map(str, table.drivers))}", show(got))


def known_version(path: Path, version: str) -> Iterable[Wrong]:
    """The version of a driver is not newer than the newest of its branch that was read about."""
    branch = rke2_matrix.branch(rke2_matrix.branch_of(version))
    if branch is not None and older(branch.newest, parse_release(version) or ()):
        wrong = f"is newer than any of its branch that was read about, as of {rke2_matrix.matrix().as_of}"
        yield Wrong(path, wrong, f"see that it exists; {branch.newest} does", show(version))


def fixed_branch(path: Path, version: str) -> Iterable[Wrong]:
    """The branch of a driver still gets fixes."""
    table, number = rke2_matrix.matrix(), rke2_matrix.branch_of(version)
    branch = rke2_matrix.branch(number)
    if branch is not None and branch.is_over(table.as_of):
        end = "" if branch.end == rke2_matrix.ENDED else f" since {branch.end}"
        good = ", ".join(str(n) for n, one in table.drivers.items() if not one.is_over(table.as_of))
        wrong = f"is of branch {number}, which gets no fixes{end}"
        yield Wrong(path, wrong, f"write a branch that does: {good}", show(version))


def known_machines(hosts: object) -> tuple[str, ...] | None:
    """Names of the machines that there are; None in the lab, which makes what is named."""
    match hosts:
        case ExistingHosts():
            return tuple(machine.name for machine in hosts.machines)
        case GcpHosts():
            return hosts.machines
    return None


def unknown_machines(named: Iterable[tuple[Path, str]], hosts: object) -> Iterable[Wrong]:
    """Every name is that of a machine under hosts."""
    known = known_machines(hosts)
    for path, name in () if known is None else named:
        if name not in (known or ()):
            near = show_values((known or ())[:_SHOWN]) + (
                ", …" if len(known or ()) > _SHOWN else ""
            )
            remedy = f"write one of {near}, or add it there"
            yield Wrong(path, "is none of the machines under hosts", remedy, show(name))


def majority(count: int, prefix: Path) -> Iterable[Finding]:
    """There are 1, 3 or 5 servers: an even number survives no more failures than one less."""
    if count not in SERVER_COUNTS:
        yield finding(
            (*prefix, "servers"),
            f"has {count} machines, and etcd needs a majority of an odd number",
            f"a list of {count}",
            "write 3 (one may fail), 5 (two may), or 1 (none may)",
        )


def one_address(
    stated: str | None, servers: Mapping[str, str | None], prefix: Path, *, simulated: bool
) -> Iterable[Finding]:
    """Several servers are reached by one fixed address, else the cluster hangs on the first.

    Args:
        stated: the registration address.
        servers: address by name, where it is stated.
        prefix: where the settings stand.
        simulated: whether they are the lab's, which are all reached by this computer.
    """
    path: Path = (*prefix, "registration-address")
    if stated is None:
        if len(servers) > 1:
            yield finding(
                path,
                f"is missing for {len(servers)} servers",
                NOTHING,
                "write the virtual IP, load balancer or DNS name that leads to all of them on ports 9345 "
                "and 6443",
            )
    elif not simulated:
        if _is_loopback(stated):
            yield finding(
                path,
                "is every machine's own",
                show(stated),
                "write an address of the servers that all machines reach",
            )
        own = [name for name, address in servers.items() if address == stated]
        if own and len(servers) > 1:
            yield finding(
                path,
                f"is the address of {own[0]} alone: while it is down nothing joins and nobody gets in",
                show(stated),
                "write an address that moves: a virtual IP (keepalived, kube-vip), a load balancer, DNS",
            )


def no_spare(count: int, prefix: Path) -> Iterable[Finding]:
    """With one server, its failure or upgrade is an outage of the API."""
    if count == 1:
        yield finding(
            (*prefix, "servers"),
            "has one machine: nobody reaches the API while it restarts, and its disk is the only copy",
            "a list of 1",
            "write 3, and keep etcd's snapshots elsewhere",
        )


def room(
    pods: tuple[str, IPv4Network], services: IPv4Network, nodes: int, prefix: Path
) -> Iterable[Finding]:
    """The pods' range has a /24 for every node; neither range can grow later.

    `pods`: the key of their range, and the range.
    """
    key, network = pods
    most = 2 ** (NODE_PREFIX - network.prefixlen) if network.prefixlen <= NODE_PREFIX else 0
    if nodes > most:
        yield finding(
            (*prefix, key),
            f"has room for {most} nodes, and there are {nodes}",
            show(str(network)),
            "write a wider range; it cannot be changed once the cluster is there",
        )
    if services.prefixlen > SMALLEST_SERVICE_RANGE:
        yield finding(
            (*prefix, "service-cidr"),
            f"is smaller than a /{SMALLEST_SERVICE_RANGE}",
            show(str(services)),
            "write a wider range; it cannot be changed once the cluster is there",
        )


def outside(
    stated: Iterable[tuple[Path, str | None]], ranges: Mapping[str, IPv4Network], prefix: Path
) -> Iterable[Finding]:
    """No machine has an address of pods or services: it could not be reached from within."""
    for path, text in stated:
        try:
            address = IPv4Address(text or "")
        except AddressValueError:
            continue
        for key, network in ranges.items():
            if address in network:
                yield finding(
                    path,
                    f"lies within {render_path((*prefix, key))}, which is {network}",
                    show(str(address)),
                    f"write another {key}",
                )


def no_default_runtime(cluster: Rke2Common, prefix: Path) -> Iterable[Finding]:
    """`default-runtime` keeps RKE2 from starting before the runtime's program is there."""
    if cluster.default_runtime is not None:
        yield finding(
            (*prefix, "default-runtime"),
            "keeps RKE2 from starting: its containerd refuses a runtime whose program is not there yet, "
            '"default runtime ... was not found"',
            show(cluster.default_runtime),
            "remove it: pods choose their runtime by RuntimeClass, and CDI needs none",
        )


def variables(cluster: Rke2Common, prefix: Path) -> Iterable[Finding]:
    """The units' environment holds proxies; CONTAINERD_CONFIG there breaks RKE2 at its next restart."""
    for name in cluster.environment:
        path: Path = (*prefix, "environment", name)
        if name in ("CONTAINERD_CONFIG", "CONTAINERD_SOCKET", "RUNTIME_CONFIG_SOURCE"):
            yield finding(
                path,
                "is no setting of RKE2: it writes containerd's configuration anew with every start, and "
                "what points there broke clusters at their next reboot",
                show(name),
                "remove it; containerd is set by drop-ins",
            )
        elif name.removeprefix("CONTAINERD_") not in PROXY_VARIABLES:
            yield finding(
                path,
                "is not a variable that RKE2's units are given for",
                show(name),
                f"write {show_values(PROXY_VARIABLES)}, or the same with CONTAINERD_ before it",
            )


def _is_loopback(text: str) -> bool:
    try:
        return IPv4Address(text).is_loopback
    except AddressValueError:
        return text == "localhost"
