"""Rows 30 to 32: machines are there once, servers hold a majority, networks have room and do not meet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gpuclusters.compat import gpu_products
from gpuclusters.config import gcp_rules, rke2_checks
from gpuclusters.config.fault import NOTHING, finding, show
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.config.hosts import ExistingHosts, LabHosts
from gpuclusters.config.rke2_cluster import Canal, Flannel, Rke2Config, machine_names
from gpuclusters.config.rke2_machines import agents, gpu_pools, pool_of
from gpuclusters.config.rules.rule import Wrong, listed_twice, rule, unexpected_names
from gpuclusters.core.finding import Finding, Level, Path


@rule(30, "rke2.adopted-unknown")
def adopted_machines_are_in_the_cluster(config: Rke2Config) -> Iterable[Wrong | Finding]:
    yield from unexpected_names(("adopt", "machines"), config.adopt.machines, machine_names(config))


@rule(30, "rke2.machine-in-two-places", each=["pools"])
def nodes_have_names_of_their_own(config: Rke2Config) -> Iterable[Wrong | Finding]:
    seen: dict[str, str] = {}
    for number, name in enumerate(config.servers):
        if name in seen:
            yield _twice(("servers", number), name, seen[name])
        seen.setdefault(name, f"servers[{number}]")
    placed: dict[str, str] = {}
    for number, pool in enumerate(config.pools):
        for position, name in enumerate(pool.nodes):
            if name in placed:
                yield _twice(("pools", number, "nodes", position), name, placed[name])
            placed.setdefault(name, f"pools[{number}].nodes[{position}]")


def _twice(path: Path, name: str, place: str) -> Finding:
    return finding(
        path,
        f"is named at {place} already",
        show(name),
        "name each machine once; one that is a server and carries GPUs is in servers and in one pool",
    )


@rule(30, "rke2.machine-unknown")
def machines_are_those_of_hosts(config: Rke2Config) -> Iterable[Wrong]:
    return rke2_checks.unknown_machines(_named(config), config.hosts)


@rule(30, "rke2.machine-unused", level=Level.WARN)
def every_machine_has_a_place(config: Rke2Config) -> Iterable[Wrong]:
    used = {name for _, name in _named(config)}
    for number, name in enumerate(rke2_checks.known_machines(config.hosts) or ()):
        if name not in used:
            path: Path = ("hosts", "machines", number)
            yield Wrong(
                path if isinstance(config.hosts, ExistingHosts) else ("hosts", "groups"),
                "is neither a server nor in a pool",
                "name it under servers or in a pool, or remove it",
                show(name),
            )


def _named(config: Rke2Config) -> Iterator[tuple[Path, str]]:
    for number, name in enumerate(config.servers):
        yield ("servers", number), name
    for number, pool in enumerate(config.pools):
        for position, name in enumerate(pool.nodes):
            yield ("pools", number, "nodes", position), name


@rule(30, "rke2.host-twice")
def hosts_are_listed_once(config: Rke2Config) -> Iterable[Wrong | Finding]:
    return listed_twice(config.hosts)


@rule(30, "rke2.pool-name", each=["pools"])
def pools_have_names_of_their_own(config: Rke2Config) -> Iterable[Wrong]:
    seen: dict[str, int] = {}
    for number, pool in enumerate(config.pools):
        if pool.name in seen:
            yield Wrong(
                ("pools", number, "name"),
                f"is also that of pools[{seen[pool.name]}]",
                "give every pool a name of its own",
                show(pool.name),
            )
        seen.setdefault(pool.name, number)
        if not pool.nodes:
            yield Wrong(
                ("pools", number, "nodes"), "is empty", "name its machines, or remove the pool"
            )


@rule(30, "rke2.no-gpus")
def there_are_gpus(config: Rke2Config) -> Iterable[Wrong]:
    if not gpu_pools(config):
        yield Wrong(
            "pools",
            "have no GPUs",
            "write gpu: {product: …, count: …} for the pool that has them",
            show([pool.name for pool in config.pools]) if config.pools else NOTHING,
        )


@rule(30, "rke2.pool-gpus", each=["pools"])
def pools_have_the_gpus_of_their_machines(config: Rke2Config) -> Iterable[Wrong]:
    if not isinstance(config.hosts, GcpHosts):
        return
    for number, pool in enumerate(config.pools):
        for name in pool.nodes:
            if name not in config.hosts.machines:
                continue
            made = config.hosts.group_of(name).gpu
            there = None if made is None else (made.product, made.count)
            wanted = None if pool.gpu is None else (pool.gpu.product, pool.gpu.count)
            if there != wanted:
                yield Wrong(
                    ("pools", number, "gpu"),
                    f"is not what {name} is made with under hosts.groups, which is {_gpus(there)}",
                    "write the same in both places",
                    _gpus(wanted),
                )
                break


def _gpus(found: tuple[str, int] | None) -> str:
    return "nothing" if found is None else f"{found[1]} × {found[0]}"


@rule(30, "rke2.processor", each=["pools"])
def machines_have_processors_that_rke2_is_installed_for(config: Rke2Config) -> Iterable[Wrong]:
    for number, pool in enumerate(config.pools):
        if pool.gpu is not None and gpu_products.product(pool.gpu.product).cpu != "amd64":
            yield Wrong(
                ("pools", number, "gpu", "product"),
                "is on an arm64 machine, and this version installs RKE2 for amd64",
                "leave these machines out",
                show(pool.gpu.product),
            )


@rule(30, "rke2.gpus-on-server", each=["pools"], level=Level.WARN)
def gpus_are_not_on_servers(config: Rke2Config) -> Iterable[Wrong]:
    pools = pool_of(config)
    for number, name in enumerate(config.servers):
        if name in pools and pools[name].gpu is not None:
            alone = len(config.servers) == 1
            away = (
                "the API is away for a minute"
                if alone
                else "one member of etcd is away for a minute"
            )
            yield Wrong(
                ("servers", number),
                f"carries the GPUs of pool {pools[name].name}: when the toolkit restarts RKE2, {away}",
                "keep GPUs on machines that are no servers",
                show(name),
            )


def _addresses(config: Rke2Config) -> Mapping[str, str]:
    machines = config.hosts.machines if isinstance(config.hosts, ExistingHosts) else ()
    return {machine.name: machine.address for machine in machines}


@rule(31, "rke2.server-count")
def servers_can_hold_a_majority(config: Rke2Config) -> Iterable[Wrong | Finding]:
    return rke2_checks.majority(len(config.servers), ())


@rule(31, "rke2.registration-address")
def servers_have_one_address(config: Rke2Config) -> Iterable[Wrong | Finding]:
    known = _addresses(config)
    return rke2_checks.one_address(
        config.registration_address,
        {name: known.get(name) for name in config.servers},
        (),
        simulated=isinstance(config.hosts, LabHosts),
    )


@rule(31, "rke2.single-server", level=Level.WARN)
def one_server_is_no_spare(config: Rke2Config) -> Iterable[Wrong | Finding]:
    if not isinstance(config.hosts, LabHosts):
        yield from rke2_checks.no_spare(len(config.servers), ())


@rule(32, "rke2.network-too-small")
def networks_have_room(config: Rke2Config) -> Iterable[Wrong | Finding]:
    nodes = len(set(config.servers)) + len(agents(config))
    return rke2_checks.room(("cluster-cidr", config.cluster_cidr), config.service_cidr, nodes, ())


@rule(32, "rke2.networks-overlap")
def cluster_networks_do_not_meet(config: Rke2Config) -> Iterable[Wrong]:
    if config.cluster_cidr.overlaps(config.service_cidr):
        yield Wrong(
            "service-cidr",
            f"meets cluster-cidr, which is {config.cluster_cidr}",
            "write ranges that have no address in common; they never change",
        )


@rule(32, "rke2.machine-in-cluster-network")
def machines_are_outside_of_the_clusters_networks(config: Rke2Config) -> Iterable[Wrong | Finding]:
    ranges = {"cluster-cidr": config.cluster_cidr, "service-cidr": config.service_cidr}
    return rke2_checks.outside(_stated(config), ranges, ())


def _stated(config: Rke2Config) -> Iterator[tuple[Path, str | None]]:
    machines = config.hosts.machines if isinstance(config.hosts, ExistingHosts) else ()
    for number, machine in enumerate(machines):
        yield ("hosts", "machines", number, "address"), machine.address
    yield ("registration-address",), config.registration_address


@rule(32, "rke2.cis-without-policies")
def the_cni_closes_what_cis_closes(config: Rke2Config) -> Iterable[Wrong]:
    if config.cis_profile and isinstance(config.cni, Flannel):
        yield Wrong(
            "cni.kind",
            "enforces no network policies, and cis-profile relies on them",
            "write canal, calico or cilium; it never changes",
        )


@rule(32, "rke2.cni-without-policies", level=Level.WARN)
def flannel_closes_nothing(config: Rke2Config) -> Iterable[Wrong]:
    if isinstance(config.cni, Flannel):
        yield Wrong(
            "cni.kind",
            "ignores network policies: every pod reaches every other",
            "write canal for the same network with policies; it never changes",
        )


@rule(32, "rke2.google-cloud-refuses")
def google_cloud_can_make_the_machines(config: Rke2Config) -> Iterable[Wrong | Finding]:
    if isinstance(config.hosts, GcpHosts):
        yield from gcp_rules.check(
            config.hosts,
            cluster=config.name,
            ranges={"cluster-cidr": config.cluster_cidr, "service-cidr": config.service_cidr},
        )


@rule(32, "rke2.mtu-above-network", level=Level.WARN)
def packets_fit_into_googles_network(config: Rke2Config) -> Iterable[Wrong]:
    if not isinstance(config.hosts, GcpHosts) or config.hosts.network.source != "own":
        return
    overhead = 80 if isinstance(config.cni, Canal) and config.cni.wireguard else 50
    most = config.hosts.network.mtu - overhead
    stated = getattr(config.cni, "mtu", None)
    if stated is not None and stated > most:
        yield Wrong(
            "cni.mtu",
            f"leaves no room for the tunnel in hosts.network.mtu, which is {config.hosts.network.mtu}",
            f"write {most} or less, or remove it",
            show(stated),
        )
