"""Rules of rke2: machines and their networks, and the driver that knows each pool's GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network
from typing import Any

from gpuclusters.compat import gpu_products, rke2_matrix
from gpuclusters.compat.rke2_matrix import ModulesPolicy, branch_of, operator_major
from gpuclusters.config import gcp_rules, rke2_checks
from gpuclusters.config.fault import NOTHING, render_path, show
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.config.hosts import LabHosts, listed_addresses, listed_machines
from gpuclusters.config.rke2_cluster import (
    OWN_MODULES,
    Canal,
    Flannel,
    HostDriver,
    MadeCluster,
    OperatorDriver,
    Pool,
    PoolDriver,
    PoolGpu,
    PrecompiledDriver,
    PreinstalledDriver,
    Rke2Config,
    machine_names,
)
from gpuclusters.config.rke2_machines import (
    architecture,
    driver_version,
    gpu_pools,
    modules,
    pool_of,
    system,
)
from gpuclusters.config.rules.rule import (
    Wrong,
    Wrongs,
    machines_are_listed_once,
    repeats,
    rule,
    unexpected_names,
)
from gpuclusters.core.finding import Level, Path
from gpuclusters.driver.model import PackageSource
from gpuclusters.gpu_operator.keys import at
from gpuclusters.gpu_operator.values import understands_auto

_MADE: Mapping[str, Any] = {"shared": True, "section": MadeCluster}
SHARED = (
    rule("rke2.host-twice", section=MadeCluster)(machines_are_listed_once),
    rule("rke2.server-count", **_MADE)(rke2_checks.servers_can_hold_a_majority),
    rule("rke2.single-server", **_MADE, level=Level.WARN)(rke2_checks.one_server_is_no_spare),
    rule("rke2.default-runtime", **_MADE)(rke2_checks.no_default_runtime),
    rule("rke2.environment-variable", **_MADE)(rke2_checks.variables_are_those_of_a_proxy),
)
"""Rules that clusters of other types have too."""


@rule("rke2.adopted-unknown")
def adopted_machines_are_in_the_cluster(config: Rke2Config) -> Wrongs:
    return unexpected_names(("adopt", "machines"), config.adopt.machines, machine_names(config))


def _named(config: Rke2Config) -> Iterator[tuple[Path, str]]:
    for number, name in enumerate(config.own_servers):
        yield ("servers", number), name
    for number, pool in enumerate(config.pools):
        for position, name in enumerate(pool.nodes):
            yield ("pools", number, "nodes", position), name


@rule("rke2.machine-in-two-places", each=["pools"])
def nodes_have_names_of_their_own(config: Rke2Config) -> Wrongs:
    named, servers = list(_named(config)), len(config.own_servers)
    for places in (named[:servers], named[servers:]):
        for again, first in repeats([name for _, name in places]):
            yield Wrong(places[again][0], first=render_path(places[first][0]))


@rule("rke2.machine-unknown", section=MadeCluster)
def machines_are_those_of_hosts(config: MadeCluster) -> Wrongs:
    return rke2_checks.unknown_machines(_named(config), config.hosts)


@rule("rke2.machine-unused", level=Level.WARN, section=MadeCluster)
def every_machine_has_a_place(config: MadeCluster) -> Wrongs:
    for path, name in rke2_checks.unused_machines(_named(config), config.hosts):
        yield Wrong(path, got=show(name))


@rule("rke2.pool-name", each=["pools"])
def pools_have_names_of_their_own(config: Rke2Config) -> Wrongs:
    for again, first in repeats([pool.name for pool in config.pools]):
        yield Wrong(("pools", again, "name"), "twice", first=first)
    for number, pool in enumerate(config.pools):
        if not pool.nodes:
            yield Wrong(("pools", number, "nodes"), "empty")


@rule("rke2.no-gpus")
def there_are_gpus(config: Rke2Config) -> Wrongs:
    if not gpu_pools(config):
        names = [pool.name for pool in config.pools]
        yield Wrong("pools", got=show(names) if names else NOTHING)


@rule("rke2.pool-gpus", "pools", section=MadeCluster)
def pools_have_the_gpus_of_their_machines(config: MadeCluster, pool: Pool) -> Wrongs:
    if not isinstance(config.hosts, GcpHosts):
        return
    wanted = None if pool.gpu is None else (pool.gpu.product, pool.gpu.count)
    for name in pool.nodes:
        group = config.hosts.group_of(name)
        made = group.gpu if group is not None else None
        there = None if made is None else (made.product, made.count)
        if group is not None and there != wanted:
            yield Wrong("gpu", got=_gpus(wanted), name=name, made=_gpus(there))
            return


def _gpus(found: tuple[str, int] | None) -> str:
    return "nothing" if found is None else f"{found[1]} × {found[0]}"


@rule("rke2.processor", "pools")
def machines_have_processors_that_rke2_is_installed_for(_config: Rke2Config, pool: Pool) -> Wrongs:
    if pool.gpu is not None and gpu_products.product(pool.gpu.product).cpu != "amd64":
        yield Wrong("gpu.product")


@rule("rke2.gpus-on-server", each=["pools"], level=Level.WARN, section=MadeCluster)
def gpus_are_not_on_servers(config: MadeCluster) -> Wrongs:
    pools = pool_of(config)
    away = "the API" if len(config.servers) == 1 else "one member of etcd"
    for number, name in enumerate(config.servers):
        if name in pools and pools[name].gpu is not None:
            yield Wrong(("servers", number), name=pools[name].name, away=away)


@rule("rke2.registration-address", section=MadeCluster)
def servers_have_one_address(config: MadeCluster) -> Wrongs:
    known = {machine.name: machine.address for machine in listed_machines(config.hosts)}
    return rke2_checks.one_address(
        config.registration_address,
        {name: known.get(name) for name in config.servers},
        simulated=isinstance(config.hosts, LabHosts),
    )


def _ranges(config: MadeCluster) -> Mapping[str, IPv4Network]:
    return {"cluster-cidr": config.cluster_cidr, "service-cidr": config.service_cidr}


@rule("rke2.network-too-small", section=MadeCluster)
def networks_have_room(config: MadeCluster) -> Wrongs:
    return rke2_checks.room(_ranges(config), len(machine_names(config)))


@rule("rke2.networks-overlap", section=MadeCluster)
def cluster_networks_do_not_meet(config: MadeCluster) -> Wrongs:
    if config.cluster_cidr.overlaps(config.service_cidr):
        yield Wrong("service-cidr", cluster_cidr=config.cluster_cidr)


@rule("rke2.machine-in-cluster-network", section=MadeCluster)
def machines_are_outside_of_the_clusters_networks(config: MadeCluster) -> Wrongs:
    registration = ("registration-address",), config.registration_address
    stated = [*listed_addresses(config.hosts), registration]
    return rke2_checks.outside(stated, _ranges(config))


@rule("rke2.cis-without-policies", section=MadeCluster)
def the_cni_closes_what_cis_closes(config: MadeCluster) -> Wrongs:
    if config.cis_profile and isinstance(config.cni, Flannel):
        yield Wrong("cni.kind")


@rule("rke2.cni-without-policies", level=Level.WARN, section=MadeCluster)
def flannel_closes_nothing(config: MadeCluster) -> Wrongs:
    if isinstance(config.cni, Flannel):
        yield Wrong("cni.kind")


@rule("rke2.google-cloud-refuses", "hosts", kind=GcpHosts, section=MadeCluster)
def google_cloud_can_make_the_machines(config: MadeCluster, hosts: GcpHosts) -> Wrongs:
    return gcp_rules.check(hosts, cluster=config.name, ranges=_ranges(config))


@rule("rke2.mtu-above-network", level=Level.WARN, section=MadeCluster)
def packets_fit_into_googles_network(config: MadeCluster) -> Wrongs:
    if not isinstance(config.hosts, GcpHosts) or config.hosts.network.source != "own":
        return
    overhead = 80 if isinstance(config.cni, Canal) and config.cni.wireguard else 50
    most = config.hosts.network.mtu - overhead
    stated = getattr(config.cni, "mtu", None)
    if stated is not None and stated > most:
        yield Wrong("cni.mtu", mtu=config.hosts.network.mtu, most=most)


def _pools_with_drivers(config: Rke2Config) -> Iterator[tuple[Path, Pool, PoolGpu, str]]:
    """Pools with GPUs, the driver of each, and where it is stated, else where it is decided."""
    common = "version" if getattr(config.driver, "version", None) is not None else "branch"
    for number, pool in enumerate(config.pools):
        own = pool.driver
        path: Path = ("driver", common)
        if own is not None and (own.version or own.branch):
            path = ("pools", number, "driver", "version" if own.version else "branch")
        if pool.gpu is not None:
            yield path, pool, pool.gpu, driver_version(config, own)


_WHERE = {HostDriver: "on-hosts", PreinstalledDriver: "already-there"}


@rule("rke2.driver-without-gpu", each=["pools"])
def the_driver_knows_the_gpus(config: Rke2Config) -> Wrongs:
    case = _WHERE.get(type(config.driver), "in-containers")
    for path, pool, _, version in _pools_with_drivers(config):
        branch = rke2_matrix.branch(branch_of(version))
        generation = architecture(pool)
        if branch is not None and generation.is_before(branch.oldest):
            last = rke2_matrix.last_branch_for(generation)
            yield Wrong(path, case, got=show(version), generation=generation, pool=pool, last=last)


@rule("rke2.driver-too-old", each=["pools"])
def the_driver_is_new_enough(config: Rke2Config) -> Wrongs:
    by_branch = isinstance(config.driver, PrecompiledDriver)
    for path, _, gpu, version in _pools_with_drivers(config):
        yield from rke2_checks.new_enough(path, version, gpu.product, by_branch=by_branch)


def _stated(config: Rke2Config) -> Iterator[tuple[Path, str | None, int | None]]:
    """Where drivers are stated: the key, version and branch."""
    drivers: list[tuple[Path, object]] = [((), config.driver)]
    drivers += [(("pools", number), pool.driver) for number, pool in enumerate(config.pools)]
    for prefix, one in drivers:
        match one:
            case PrecompiledDriver():
                yield (*prefix, "driver"), None, one.branch
            case HostDriver() | OperatorDriver() | PoolDriver():
                yield (*prefix, "driver"), one.version, one.branch
            case PreinstalledDriver():
                yield (*prefix, "driver"), one.version, None


@rule("rke2.driver-branch-differs", each=["pools"])
def version_and_branch_agree(config: Rke2Config) -> Wrongs:
    for path, version, branch in _stated(config):
        if version is not None and branch is not None and branch_of(version) != branch:
            yield Wrong((*path, "version"), branch=branch)


@rule("rke2.driver-branch-unknown", each=["pools"])
def the_branch_is_known(config: Rke2Config) -> Wrongs:
    for path, version, branch in _stated(config):
        if branch is not None:
            yield from rke2_checks.known_branch((*path, "branch"), branch, branch)
        if version is not None:
            number = branch_of(version)
            yield from rke2_checks.known_branch((*path, "version"), number, number)


@rule("rke2.driver-version-unknown", each=["pools"], level=Level.WARN)
def the_version_is_known(config: Rke2Config) -> Wrongs:
    first: dict[str, Path] = {}
    for path, _, _, version in _pools_with_drivers(config):
        first.setdefault(version, path)
    for version, path in first.items():
        yield from rke2_checks.known_version(path, version)


@rule("rke2.driver-branch-ended", each=["pools"], level=Level.WARN)
def the_branch_still_gets_fixes(config: Rke2Config) -> Wrongs:
    said: set[int] = set()
    for path, _, _, version in _pools_with_drivers(config):
        if branch_of(version) not in said:
            said.add(branch_of(version))
            yield from rke2_checks.fixed_branch(path, version)


@rule("rke2.operator-driver-missing", "driver", kind=OperatorDriver)
def the_operator_has_the_driver(config: Rke2Config, stated: OperatorDriver) -> Wrongs:
    known = rke2_matrix.major(config.operator.version)
    branches = sorted({branch_of(one) for one in known.drivers}) if known else []
    if known and stated.branch is not None and stated.branch not in branches:
        yield Wrong("branch", version=config.operator.version, branches=branches)


@rule("rke2.operator-driver-untested", "driver", kind=OperatorDriver, level=Level.WARN)
def the_operator_was_tested_with_the_driver(config: Rke2Config, stated: OperatorDriver) -> Wrongs:
    known = rke2_matrix.major(config.operator.version)
    if known and stated.version is not None and stated.version not in known.drivers:
        yield Wrong("version", version=config.operator.version, drivers=known.drivers)


@rule("rke2.precompiled-driver-missing", each=["pools"])
def precompiled_drivers_exist(config: Rke2Config) -> Wrongs:
    known, stated = rke2_matrix.major(config.operator.version), config.driver
    if known is None or not isinstance(stated, PrecompiledDriver) or stated.repository is not None:
        return  # with a repository somebody builds them
    for pool in gpu_pools(config):
        runs = system(config, pool)
        there = known.precompiled.get(runs, ()) if runs is not None else ()
        if runs is None:
            yield Wrong("driver.source", "system", pool=pool)
        elif stated.branch not in there:
            major, branches = operator_major(config.operator.version), there or "none"
            path = "driver.branch"
            yield Wrong(path, "branch", runs=runs, pool=pool, operator=major, branches=branches)


@rule("rke2.pool-driver-differs", "pools")
def pools_differ_only_on_hosts(config: Rke2Config, pool: Pool) -> Wrongs:
    if pool.driver is not None and not isinstance(config.driver, HostDriver):
        yield Wrong("driver", got="a driver of its own", source=config.driver.source)


@rule("rke2.systems-differ", each=["pools"])
def driver_containers_have_one_operating_system(config: Rke2Config) -> Wrongs:
    if isinstance(config.driver, HostDriver | PreinstalledDriver):
        return
    found = {system(config, pool) for pool in gpu_pools(config)} - {None}
    if len(found) > 1:
        yield Wrong("driver.source", systems=sorted(map(str, found)))


@rule("rke2.driver-without-gpus", "pools")
def pools_without_gpus_have_no_driver(_config: Rke2Config, pool: Pool) -> Wrongs:
    for key, value in (("driver", pool.driver), ("mig", pool.mig)):
        if pool.gpu is None and value is not None:
            yield Wrong(key, got=show(value) if isinstance(value, str) else "a driver of its own")


@rule("rke2.kernel-modules", each=["pools"])
def gpus_take_the_kernel_modules(config: Rke2Config) -> Wrongs:
    if isinstance(config.driver, OWN_MODULES):
        return
    for number, pool in enumerate(config.pools):
        if pool.gpu is not None:
            own = pool.driver is not None and pool.driver.modules is not None
            yield from rke2_checks.fitting_modules(
                ("pools", number, "driver", "modules") if own else ("driver", "modules"),
                modules(config, pool),
                driver_version(config, pool.driver),
                pool.gpu.product,
                f" of pool {pool.name}",
            )


@rule("rke2.kernel-modules-unstated", each=["pools"])
def old_drivers_are_told_their_modules(config: Rke2Config) -> Wrongs:
    if not isinstance(config.driver, OperatorDriver):
        return
    version = driver_version(config)
    each = {modules(config, pool) for pool in gpu_pools(config)}
    auto = config.driver.modules is ModulesPolicy.AUTO
    if auto and len(each) > 1 and not understands_auto(version):
        yield Wrong("driver.modules", version=version, table=rke2_matrix.matrix().kernel_modules)


@rule("rke2.secure-boot", each=["pools"])
def secure_boot_takes_the_modules(config: Rke2Config) -> Wrongs:
    match config.driver if config.secure_boot else None:
        case OperatorDriver():
            yield Wrong("driver.source", "operator")
        case PrecompiledDriver(secure_boot_signed=False):
            yield Wrong("driver.secure-boot-signed", "unsigned")
        case HostDriver(packages=PackageSource.NVIDIA):
            yield Wrong("driver.packages", "dkms")


@rule("rke2.distribution-driver-missing", each=["pools"])
def the_distribution_has_the_driver(config: Rke2Config) -> Wrongs:
    stated = config.driver
    if not isinstance(stated, HostDriver) or stated.packages is not PackageSource.DISTRIBUTION:
        return
    for pool in gpu_pools(config):
        runs = system(config, pool)
        if runs is not None and runs.family in ("rhel", "rocky"):
            yield Wrong("driver.packages", runs=runs, name=pool.name)


@rule("rke2.direct-storage-modules", each=["pools"])
def direct_storage_has_open_modules(config: Rke2Config) -> Wrongs:
    for key in ("gds.enabled", "gdrcopy.enabled"):
        path = f"operator.values.{key}"
        if at(config.operator.values, key) is not True:
            continue
        if not isinstance(config.driver, OperatorDriver):
            yield Wrong(path, "container", source=config.driver.source)
            continue
        for pool in gpu_pools(config):
            if modules(config, pool) is ModulesPolicy.PROPRIETARY and key.startswith("gds"):
                yield Wrong(path, "modules", name=pool.name)
