"""Rules of rke2: machines and their networks, and the driver that knows each pool's GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network

from gpuclusters.compat import gpu_products, rke2_matrix
from gpuclusters.compat.rke2_matrix import ModulesPolicy, branch_of, operator_major
from gpuclusters.config import gcp_rules, rke2_checks
from gpuclusters.config.fault import NOTHING, render_path, show
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.config.hosts import ExistingHosts, LabHosts
from gpuclusters.config.rke2_cluster import (
    Canal,
    Flannel,
    HostDriver,
    OperatorDriver,
    Pool,
    PoolDriver,
    PoolGpu,
    PrecompiledDriver,
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

SHARED = (
    rule("rke2.host-twice")(machines_are_listed_once),
    rule("rke2.server-count", shared=True)(rke2_checks.servers_can_hold_a_majority),
    rule("rke2.single-server", shared=True, level=Level.WARN)(rke2_checks.one_server_is_no_spare),
    rule("rke2.default-runtime", shared=True)(rke2_checks.no_default_runtime),
    rule("rke2.environment-variable", shared=True)(rke2_checks.variables_are_those_of_a_proxy),
)
"""Rules that clusters of other types have too."""


@rule("rke2.adopted-unknown")
def adopted_machines_are_in_the_cluster(config: Rke2Config) -> Wrongs:
    return unexpected_names(("adopt", "machines"), config.adopt.machines, machine_names(config))


def _named(config: Rke2Config) -> Iterator[tuple[Path, str]]:
    for number, name in enumerate(config.servers):
        yield ("servers", number), name
    for number, pool in enumerate(config.pools):
        for position, name in enumerate(pool.nodes):
            yield ("pools", number, "nodes", position), name


@rule("rke2.machine-in-two-places", each=["pools"])
def nodes_have_names_of_their_own(config: Rke2Config) -> Wrongs:
    named, servers = list(_named(config)), len(config.servers)
    for places in (named[:servers], named[servers:]):
        for again, first in repeats([name for _, name in places]):
            yield Wrong(places[again][0], f"is named at {render_path(places[first][0])} already")


@rule("rke2.machine-unknown")
def machines_are_those_of_hosts(config: Rke2Config) -> Wrongs:
    return rke2_checks.unknown_machines(_named(config), config.hosts)


@rule("rke2.machine-unused", level=Level.WARN)
def every_machine_has_a_place(config: Rke2Config) -> Wrongs:
    for path, name in rke2_checks.unused_machines(_named(config), config.hosts):
        yield Wrong(path, "is neither a server nor in a pool", got=show(name))


@rule("rke2.pool-name", each=["pools"])
def pools_have_names_of_their_own(config: Rke2Config) -> Wrongs:
    remedy = "give every pool a name of its own"
    for again, first in repeats([pool.name for pool in config.pools]):
        yield Wrong(("pools", again, "name"), f"is also that of pools[{first}]", remedy)
    for number, pool in enumerate(config.pools):
        if not pool.nodes:
            remedy = "name its machines, or remove the pool"
            yield Wrong(("pools", number, "nodes"), "is empty", remedy)


@rule("rke2.no-gpus")
def there_are_gpus(config: Rke2Config) -> Wrongs:
    if not gpu_pools(config):
        yield Wrong(
            "pools",
            "have no GPUs",
            got=show([pool.name for pool in config.pools]) if config.pools else NOTHING,
        )


@rule("rke2.pool-gpus", "pools")
def pools_have_the_gpus_of_their_machines(config: Rke2Config, pool: Pool) -> Wrongs:
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


@rule("rke2.processor", "pools")
def machines_have_processors_that_rke2_is_installed_for(_config: Rke2Config, pool: Pool) -> Wrongs:
    if pool.gpu is not None and gpu_products.product(pool.gpu.product).cpu != "amd64":
        wrong = "is on an arm64 machine, and this version installs RKE2 for amd64"
        yield Wrong("gpu.product", wrong)


@rule("rke2.gpus-on-server", each=["pools"], level=Level.WARN)
def gpus_are_not_on_servers(config: Rke2Config) -> Wrongs:
    pools = pool_of(config)
    away = "the API" if len(config.servers) == 1 else "one member of etcd"
    for number, name in enumerate(config.servers):
        if name in pools and pools[name].gpu is not None:
            wrong = f"carries GPUs of pool {pools[name].name}: when the toolkit restarts RKE2, {away} is away"
            yield Wrong(("servers", number), wrong)


@rule("rke2.registration-address")
def servers_have_one_address(config: Rke2Config) -> Wrongs:
    machines = config.hosts.machines if isinstance(config.hosts, ExistingHosts) else ()
    known = {machine.name: machine.address for machine in machines}
    return rke2_checks.one_address(
        config.registration_address,
        {name: known.get(name) for name in config.servers},
        simulated=isinstance(config.hosts, LabHosts),
    )


def _ranges(config: Rke2Config) -> Mapping[str, IPv4Network]:
    return {"cluster-cidr": config.cluster_cidr, "service-cidr": config.service_cidr}


@rule("rke2.network-too-small")
def networks_have_room(config: Rke2Config) -> Wrongs:
    return rke2_checks.room(_ranges(config), len(machine_names(config)))


@rule("rke2.networks-overlap")
def cluster_networks_do_not_meet(config: Rke2Config) -> Wrongs:
    if config.cluster_cidr.overlaps(config.service_cidr):
        yield Wrong("service-cidr", f"meets cluster-cidr, which is {config.cluster_cidr}")


@rule("rke2.machine-in-cluster-network")
def machines_are_outside_of_the_clusters_networks(config: Rke2Config) -> Wrongs:
    return rke2_checks.outside(_addresses(config), _ranges(config))


def _addresses(config: Rke2Config) -> Iterator[tuple[Path, str | None]]:
    machines = config.hosts.machines if isinstance(config.hosts, ExistingHosts) else ()
    for number, machine in enumerate(machines):
        yield ("hosts", "machines", number, "address"), machine.address
    yield ("registration-address",), config.registration_address


@rule("rke2.cis-without-policies")
def the_cni_closes_what_cis_closes(config: Rke2Config) -> Wrongs:
    if config.cis_profile and isinstance(config.cni, Flannel):
        wrong = "enforces no network policies, and cis-profile relies on them"
        yield Wrong("cni.kind", wrong)


@rule("rke2.cni-without-policies", level=Level.WARN)
def flannel_closes_nothing(config: Rke2Config) -> Wrongs:
    if isinstance(config.cni, Flannel):
        yield Wrong("cni.kind", "ignores network policies: every pod reaches every other")


@rule("rke2.google-cloud-refuses", "hosts", kind=GcpHosts)
def google_cloud_can_make_the_machines(config: Rke2Config, hosts: GcpHosts) -> Wrongs:
    return gcp_rules.check(hosts, cluster=config.name, ranges=_ranges(config))


@rule("rke2.mtu-above-network", level=Level.WARN)
def packets_fit_into_googles_network(config: Rke2Config) -> Wrongs:
    if not isinstance(config.hosts, GcpHosts) or config.hosts.network.source != "own":
        return
    overhead = 80 if isinstance(config.cni, Canal) and config.cni.wireguard else 50
    most = config.hosts.network.mtu - overhead
    stated = getattr(config.cni, "mtu", None)
    if stated is not None and stated > most:
        wrong = f"leaves no room for the tunnel in hosts.network.mtu, which is {config.hosts.network.mtu}"
        yield Wrong("cni.mtu", wrong, f"write {most} or less, or remove it")


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


@rule("rke2.driver-without-gpu", each=["pools"])
def the_driver_knows_the_gpus(config: Rke2Config) -> Wrongs:
    apart = "for another driver in another pool write driver.source: host"
    if isinstance(config.driver, HostDriver):
        apart = "or give that pool its own, with pools[].driver.branch"
    for path, pool, _, version in _pools_with_drivers(config):
        branch = rke2_matrix.branch(branch_of(version))
        generation = architecture(pool)
        if branch is not None and generation.is_before(branch.oldest):
            last = rke2_matrix.last_branch_for(generation)
            wrong = f"does not know {generation} GPUs, of pool {pool.name}: the last that does is {last}"
            yield Wrong(path, wrong, f"write driver.branch: {last}; {apart}", show(version))


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


@rule("rke2.driver-branch-differs", each=["pools"])
def version_and_branch_agree(config: Rke2Config) -> Wrongs:
    for path, version, branch in _stated(config):
        if version is not None and branch is not None and branch_of(version) != branch:
            wrong = f"is not of branch {branch}, which is stated beside it"
            yield Wrong((*path, "version"), wrong)


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
        wrong = f"has no driver in the component matrix of GPU Operator {config.operator.version}"
        yield Wrong("branch", wrong, f"write one of {', '.join(map(str, branches))}")


@rule("rke2.operator-driver-untested", "driver", kind=OperatorDriver, level=Level.WARN)
def the_operator_was_tested_with_the_driver(config: Rke2Config, stated: OperatorDriver) -> Wrongs:
    known = rke2_matrix.major(config.operator.version)
    if known and stated.version is not None and stated.version not in known.drivers:
        wrong = f"is not in the component matrix of GPU Operator {config.operator.version}"
        yield Wrong("version", wrong, f"write one of {', '.join(known.drivers)}")


@rule("rke2.precompiled-driver-missing", each=["pools"])
def precompiled_drivers_exist(config: Rke2Config) -> Wrongs:
    known, stated = rke2_matrix.major(config.operator.version), config.driver
    if known is None or not isinstance(stated, PrecompiledDriver) or stated.repository is not None:
        return  # with a repository somebody builds them
    for pool in gpu_pools(config):
        runs = system(config, pool)
        there = known.precompiled.get(runs, ()) if runs is not None else ()
        if runs is None:
            wrong = f"needs to know what the machines of pool {pool.name} run"
            remedy = "write operating-system: precompiled drivers are made for a kernel"
            yield Wrong("driver.source", wrong, remedy)
        elif stated.branch not in there:
            yield Wrong(
                "driver.branch",
                f"is not precompiled for {runs} of pool {pool.name} in GPU Operator "
                f"{operator_major(config.operator.version)}, which has "
                f"{', '.join(map(str, there)) or 'none'}",
                "write a branch that is, another driver.source, or driver.repository of your own containers",
            )


@rule("rke2.pool-driver-differs", "pools")
def pools_differ_only_on_hosts(config: Rke2Config, pool: Pool) -> Wrongs:
    if pool.driver is not None and not isinstance(config.driver, HostDriver):
        wrong = f"cannot differ with driver.source: {config.driver.source}, one driver for all"
        yield Wrong("driver", wrong, got="a driver of its own")


@rule("rke2.systems-differ", each=["pools"])
def driver_containers_have_one_operating_system(config: Rke2Config) -> Wrongs:
    if isinstance(config.driver, HostDriver):
        return
    found = {system(config, pool) for pool in gpu_pools(config)} - {None}
    if len(found) > 1:
        wrong = f"is one driver for all nodes, and they run {', '.join(sorted(map(str, found)))}"
        yield Wrong("driver.source", wrong)


@rule("rke2.driver-without-gpus", "pools")
def pools_without_gpus_have_no_driver(_config: Rke2Config, pool: Pool) -> Wrongs:
    for key, value in (("driver", pool.driver), ("mig", pool.mig)):
        if pool.gpu is None and value is not None:
            yield Wrong(
                key,
                "is stated for a pool without GPUs",
                got=show(value) if isinstance(value, str) else "a driver of its own",
            )


@rule("rke2.kernel-modules", each=["pools"])
def gpus_take_the_kernel_modules(config: Rke2Config) -> Wrongs:
    if isinstance(config.driver, PrecompiledDriver):
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
        wrong = f"is auto, which driver {version} does not understand, and the pools differ"
        remedy = f"write one from {rke2_matrix.matrix().kernel_modules.auto_from} on, or driver.source: host"
        yield Wrong("driver.modules", wrong, remedy)


@rule("rke2.secure-boot", each=["pools"])
def secure_boot_takes_the_modules(config: Rke2Config) -> Wrongs:
    match config.driver if config.secure_boot else None:
        case OperatorDriver():
            wrong = 'builds modules that nobody signs, and Secure Boot says "Key was rejected by service"'
            remedy = "write driver.source: host with packages: distribution, or signed containers"
            yield Wrong("driver.source", wrong, remedy)
        case PrecompiledDriver(secure_boot_signed=False):
            wrong = "is false while secure-boot is true: the modules would be refused"
            remedy = "write true if they are signed by a key that the firmware knows, as SUSE's are"
            yield Wrong("driver.secure-boot-signed", wrong, remedy)
        case HostDriver(packages=PackageSource.NVIDIA):
            wrong = "are built on the hosts by DKMS, without a signature that Secure Boot knows"
            remedy = "write distribution, whose modules are prebuilt and signed"
            yield Wrong("driver.packages", wrong, remedy)


@rule("rke2.distribution-driver-missing", each=["pools"])
def the_distribution_has_the_driver(config: Rke2Config) -> Wrongs:
    stated = config.driver
    if not isinstance(stated, HostDriver) or stated.packages is not PackageSource.DISTRIBUTION:
        return
    for pool in gpu_pools(config):
        runs = system(config, pool)
        if runs is not None and runs.family in ("rhel", "rocky"):
            wrong = f"are not there: {runs} of pool {pool.name} has no driver of its own"
            yield Wrong("driver.packages", wrong)


@rule("rke2.direct-storage-modules", each=["pools"])
def direct_storage_has_open_modules(config: Rke2Config) -> Wrongs:
    for key in ("gds.enabled", "gdrcopy.enabled"):
        path = f"operator.values.{key}"
        if at(config.operator.values, key) is not True:
            continue
        if not isinstance(config.driver, OperatorDriver):
            wrong = f"is built in the driver's container, and driver.source {config.driver.source} has none"
            remedy = "write driver.source: operator, or install it on the hosts and remove this"
            yield Wrong(path, wrong, remedy)
            continue
        for pool in gpu_pools(config):
            if modules(config, pool) is ModulesPolicy.PROPRIETARY and key.startswith("gds"):
                wrong = f"is on, and needs open modules, which pool {pool.name} does not have"
                yield Wrong(path, wrong, "remove it, or leave that pool to another cluster")
