"""Rows 30 to 32: machines are there once, servers hold a majority, networks have room and do not meet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Network

from gpuclusters.compat import gpu_products
from gpuclusters.config import gcp_rules, rke2_checks
from gpuclusters.config.fault import NOTHING, render_path, show
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.config.hosts import ExistingHosts, LabHosts
from gpuclusters.config.rke2_cluster import Canal, Flannel, Pool, Rke2Config, machine_names
from gpuclusters.config.rke2_machines import gpu_pools, pool_of
from gpuclusters.config.rules.rule import Wrong, listed_twice, repeats, rule, unexpected_names
from gpuclusters.core.finding import Finding, Level, Path


@rule(30, "rke2.adopted-unknown")
def adopted_machines_are_in_the_cluster(config: Rke2Config) -> Iterable[Finding]:
    return unexpected_names(("adopt", "machines"), config.adopt.machines, machine_names(config))


def _named(config: Rke2Config) -> Iterator[tuple[Path, str]]:
    for number, name in enumerate(config.servers):
        yield ("servers", number), name
    for number, pool in enumerate(config.pools):
        for position, name in enumerate(pool.nodes):
            yield ("pools", number, "nodes", position), name


@rule(30, "rke2.machine-in-two-places", each=["pools"])
def nodes_have_names_of_their_own(config: Rke2Config) -> Iterable[Wrong]:
    named, servers = list(_named(config)), len(config.servers)
    for places in (named[:servers], named[servers:]):
        for again, first in repeats([name for _, name in places]):
            yield Wrong(places[again][0], f"is named at {render_path(places[first][0])} already")


@rule(30, "rke2.machine-unknown")
def machines_are_those_of_hosts(config: Rke2Config) -> Iterable[Wrong]:
    return rke2_checks.unknown_machines(_named(config), config.hosts)


@rule(30, "rke2.machine-unused", level=Level.WARN)
def every_machine_has_a_place(config: Rke2Config) -> Iterable[Wrong]:
    for path, name in rke2_checks.unused_machines(_named(config), config.hosts):
        yield Wrong(path, "is neither a server nor in a pool", got=show(name))


@rule(30, "rke2.host-twice")
def hosts_are_listed_once(config: Rke2Config) -> Iterable[Finding]:
    return listed_twice(config.hosts)


@rule(30, "rke2.pool-name", each=["pools"])
def pools_have_names_of_their_own(config: Rke2Config) -> Iterable[Wrong]:
    remedy = "give every pool a name of its own"
    for again, first in repeats([pool.name for pool in config.pools]):
        yield Wrong(("pools", again, "name"), f"is also that of pools[{first}]", remedy)
    for number, pool in enumerate(config.pools):
        if not pool.nodes:
            remedy = "name its machines, or remove the pool"
            yield Wrong(("pools", number, "nodes"), "is empty", remedy)


@rule(30, "rke2.no-gpus")
def there_are_gpus(config: Rke2Config) -> Iterable[Wrong]:
    if not gpu_pools(config):
        yield Wrong(
            "pools",
            "have no GPUs",
            got=show([pool.name for pool in config.pools]) if config.pools else NOTHING,
        )


@rule(30, "rke2.pool-gpus", "pools")
def pools_have_the_gpus_of_their_machines(config: Rke2Config, pool: Pool) -> Iterable[Wrong]:
    if not isinstance(config.hosts, GcpHosts):
        return
    wanted = None if pool.gpu is None else (pool.gpu.product, pool.gpu.count)
    for name in pool.nodes:
        group = config.hosts.group_of(name)
        made = group.gpu if group is not None else None
        there = None if made is None else (made.product, made.count)
        if group is not None and there != wanted:
            wrong = f"is not what {name} is made with under hosts.groups, which is {_gpus(there)}"
            yield Wrong("gpu", wrong, got=_gpus(wanted))
            return


def _gpus(found: tuple[str, int] | None) -> str:
    return "nothing" if found is None else f"{found[1]} × {found[0]}"


@rule(30, "rke2.processor", "pools")
def machines_have_processors_that_rke2_is_installed_for(
    _config: Rke2Config, pool: Pool
) -> Iterable[Wrong]:
    if pool.gpu is not None and gpu_products.product(pool.gpu.product).cpu != "amd64":
        wrong = "is on an arm64 machine, and this version installs RKE2 for amd64"
        yield Wrong("gpu.product", wrong)


@rule(30, "rke2.gpus-on-server", each=["pools"], level=Level.WARN)
def gpus_are_not_on_servers(config: Rke2Config) -> Iterable[Wrong]:
    pools = pool_of(config)
    away = "the API" if len(config.servers) == 1 else "one member of etcd"
    for number, name in enumerate(config.servers):
        if name in pools and pools[name].gpu is not None:
            yield Wrong(
                ("servers", number),
                f"carries the GPUs of pool {pools[name].name}: when the toolkit restarts RKE2, {away} is "
                "away for a minute",
            )


@rule(31, "rke2.server-count")
def servers_can_hold_a_majority(config: Rke2Config) -> Iterable[Wrong]:
    return rke2_checks.majority(len(config.servers))


@rule(31, "rke2.registration-address")
def servers_have_one_address(config: Rke2Config) -> Iterable[Wrong]:
    machines = config.hosts.machines if isinstance(config.hosts, ExistingHosts) else ()
    known = {machine.name: machine.address for machine in machines}
    return rke2_checks.one_address(
        config.registration_address,
        {name: known.get(name) for name in config.servers},
        simulated=isinstance(config.hosts, LabHosts),
    )


@rule(31, "rke2.single-server", level=Level.WARN)
def one_server_is_no_spare(config: Rke2Config) -> Iterable[Wrong]:
    if not isinstance(config.hosts, LabHosts):
        yield from rke2_checks.no_spare(len(config.servers))


def _ranges(config: Rke2Config) -> Mapping[str, IPv4Network]:
    return {"cluster-cidr": config.cluster_cidr, "service-cidr": config.service_cidr}


@rule(32, "rke2.network-too-small")
def networks_have_room(config: Rke2Config) -> Iterable[Wrong]:
    return rke2_checks.room(_ranges(config), len(machine_names(config)))


@rule(32, "rke2.networks-overlap")
def cluster_networks_do_not_meet(config: Rke2Config) -> Iterable[Wrong]:
    if config.cluster_cidr.overlaps(config.service_cidr):
        yield Wrong("service-cidr", f"meets cluster-cidr, which is {config.cluster_cidr}")


@rule(32, "rke2.machine-in-cluster-network")
def machines_are_outside_of_the_clusters_networks(config: Rke2Config) -> Iterable[Finding]:
    return rke2_checks.outside(_stated(config), _ranges(config))


def _stated(config: Rke2Config) -> Iterator[tuple[Path, str | None]]:
    machines = config.hosts.machines if isinstance(config.hosts, ExistingHosts) else ()
    for number, machine in enumerate(machines):
        yield ("hosts", "machines", number, "address"), machine.address
    yield ("registration-address",), config.registration_address


@rule(32, "rke2.cis-without-policies")
def the_cni_closes_what_cis_closes(config: Rke2Config) -> Iterable[Wrong]:
    if config.cis_profile and isinstance(config.cni, Flannel):
        wrong = "enforces no network policies, and cis-profile relies on them"
        yield Wrong("cni.kind", wrong)


@rule(32, "rke2.cni-without-policies", level=Level.WARN)
def flannel_closes_nothing(config: Rke2Config) -> Iterable[Wrong]:
    if isinstance(config.cni, Flannel):
        yield Wrong("cni.kind", "ignores network policies: every pod reaches every other")


@rule(32, "rke2.google-cloud-refuses", "hosts", kind=GcpHosts)
def google_cloud_can_make_the_machines(config: Rke2Config, hosts: GcpHosts) -> Iterable[Wrong]:
    return gcp_rules.check(hosts, cluster=config.name, ranges=_ranges(config))


@rule(32, "rke2.mtu-above-network", level=Level.WARN)
def packets_fit_into_googles_network(config: Rke2Config) -> Iterable[Wrong]:
    if not isinstance(config.hosts, GcpHosts) or config.hosts.network.source != "own":
        return
    overhead = 80 if isinstance(config.cni, Canal) and config.cni.wireguard else 50
    most = config.hosts.network.mtu - overhead
    stated = getattr(config.cni, "mtu", None)
    if stated is not None and stated > most:
        wrong = f"leaves no room for the tunnel in hosts.network.mtu, which is {config.hosts.network.mtu}"
        yield Wrong("cni.mtu", wrong, f"write {most} or less, or remove it")
