"""Rows 34 to 36: every pool has a driver that knows its GPUs, with modules that its hosts boot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuclusters.compat import rke2_matrix
from gpuclusters.compat.rke2_matrix import ModulesPolicy, branch_of, operator_major
from gpuclusters.config import rke2_checks
from gpuclusters.config.fault import show
from gpuclusters.config.rke2_cluster import (
    HostDriver,
    OperatorDriver,
    Pool,
    PoolDriver,
    PoolGpu,
    PrecompiledDriver,
    Rke2Config,
)
from gpuclusters.config.rke2_machines import (
    architecture,
    driver_version,
    gpu_pools,
    modules,
    system,
)
from gpuclusters.config.rules.rule import Wrong, rule
from gpuclusters.core.finding import Level, Path
from gpuclusters.driver.model import PackageSource
from gpuclusters.gpu_operator.keys import at
from gpuclusters.gpu_operator.values import understands_auto


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


@rule(34, "rke2.driver-without-gpu", each=["pools"])
def the_driver_knows_the_gpus(config: Rke2Config) -> Iterable[Wrong]:
    apart = "for another driver in another pool write driver.source: host"
    if isinstance(config.driver, HostDriver):
        apart = "or give that pool its own, with pools[].driver.branch"
    for path, pool, _, version in _pools_with_drivers(config):
        branch = rke2_matrix.branch(branch_of(version))
        generation = architecture(pool)
        if branch is not None and generation.is_before(branch.oldest):
            last = rke2_matrix.last_branch_for(generation)
            yield Wrong(
                path,
                f"does not know the {generation} GPUs of pool {pool.name}: the last that does is {last}; "
                "later ones leave them out with a line in dmesg",
                f"write driver.branch: {last}; {apart}",
                show(version),
            )


@rule(34, "rke2.driver-too-old", each=["pools"])
def the_driver_is_new_enough(config: Rke2Config) -> Iterable[Wrong]:
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


@rule(34, "rke2.driver-branch-differs", each=["pools"])
def version_and_branch_agree(config: Rke2Config) -> Iterable[Wrong]:
    for path, version, branch in _stated(config):
        if version is not None and branch is not None and branch_of(version) != branch:
            wrong = f"is not of branch {branch}, which is stated beside it"
            yield Wrong((*path, "version"), wrong)


@rule(34, "rke2.driver-branch-unknown", each=["pools"])
def the_branch_is_known(config: Rke2Config) -> Iterable[Wrong]:
    for path, version, branch in _stated(config):
        if branch is not None:
            yield from rke2_checks.known_branch((*path, "branch"), branch, branch)
        if version is not None:
            number = branch_of(version)
            yield from rke2_checks.known_branch((*path, "version"), number, number)


@rule(34, "rke2.driver-version-unknown", each=["pools"], level=Level.WARN)
def the_version_is_known(config: Rke2Config) -> Iterable[Wrong]:
    first: dict[str, Path] = {}
    for path, _, _, version in _pools_with_drivers(config):
        first.setdefault(version, path)
    for version, path in first.items():
        yield from rke2_checks.known_version(path, version)


@rule(34, "rke2.driver-branch-ended", each=["pools"], level=Level.WARN)
def the_branch_still_gets_fixes(config: Rke2Config) -> Iterable[Wrong]:
    said: set[int] = set()
    for path, _, _, version in _pools_with_drivers(config):
        if branch_of(version) not in said:
            said.add(branch_of(version))
            yield from rke2_checks.fixed_branch(path, version)


@rule(34, "rke2.operator-driver-missing", "driver", kind=OperatorDriver)
def the_operator_has_the_driver(config: Rke2Config, stated: OperatorDriver) -> Iterable[Wrong]:
    known = rke2_matrix.major(config.operator.version)
    branches = sorted({branch_of(one) for one in known.drivers}) if known else []
    if known and stated.branch is not None and stated.branch not in branches:
        wrong = f"has no driver in the component matrix of GPU Operator {config.operator.version}"
        yield Wrong("branch", wrong, f"write one of {', '.join(map(str, branches))}")


@rule(34, "rke2.operator-driver-untested", "driver", kind=OperatorDriver, level=Level.WARN)
def the_operator_was_tested_with_the_driver(
    config: Rke2Config, stated: OperatorDriver
) -> Iterable[Wrong]:
    known = rke2_matrix.major(config.operator.version)
    if known and stated.version is not None and stated.version not in known.drivers:
        wrong = f"is not in the component matrix of GPU Operator {config.operator.version}"
        yield Wrong("version", wrong, f"write one of {', '.join(known.drivers)}")


@rule(34, "rke2.precompiled-driver-missing", each=["pools"])
def precompiled_drivers_exist(config: Rke2Config) -> Iterable[Wrong]:
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


@rule(34, "rke2.pool-driver-differs", "pools")
def pools_differ_only_on_hosts(config: Rke2Config, pool: Pool) -> Iterable[Wrong]:
    if pool.driver is not None and not isinstance(config.driver, HostDriver):
        yield Wrong(
            "driver",
            f"cannot differ with driver.source: {config.driver.source}, one driver for all nodes",
            got="a driver of its own",
        )


@rule(34, "rke2.systems-differ", each=["pools"])
def driver_containers_have_one_operating_system(config: Rke2Config) -> Iterable[Wrong]:
    if isinstance(config.driver, HostDriver):
        return
    found = {system(config, pool) for pool in gpu_pools(config)} - {None}
    if len(found) > 1:
        yield Wrong(
            "driver.source",
            "installs one driver container on all nodes, and they run "
            f"{', '.join(sorted(map(str, found)))}",
        )


@rule(34, "rke2.driver-without-gpus", "pools")
def pools_without_gpus_have_no_driver(_config: Rke2Config, pool: Pool) -> Iterable[Wrong]:
    for key, value in (("driver", pool.driver), ("mig", pool.mig)):
        if pool.gpu is None and value is not None:
            yield Wrong(
                key,
                "is stated for a pool without GPUs",
                got=show(value) if isinstance(value, str) else "a driver of its own",
            )


@rule(35, "rke2.kernel-modules", each=["pools"])
def gpus_take_the_kernel_modules(config: Rke2Config) -> Iterable[Wrong]:
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


@rule(35, "rke2.kernel-modules-unstated", each=["pools"])
def old_drivers_are_told_their_modules(config: Rke2Config) -> Iterable[Wrong]:
    if not isinstance(config.driver, OperatorDriver):
        return
    version = driver_version(config)
    each = {modules(config, pool) for pool in gpu_pools(config)}
    auto = config.driver.modules is ModulesPolicy.AUTO
    if auto and len(each) > 1 and not understands_auto(version):
        yield Wrong(
            "driver.modules",
            f"is auto, which the container of {version} does not understand, and the pools differ",
            f"write a driver from {rke2_matrix.matrix().kernel_modules.auto_from} on, or driver.source: host",
        )


@rule(36, "rke2.secure-boot", each=["pools"])
def secure_boot_takes_the_modules(config: Rke2Config) -> Iterable[Wrong]:
    match config.driver if config.secure_boot else None:
        case OperatorDriver():
            yield Wrong(
                "driver.source",
                "builds modules on the nodes, which nobody signs: Secure Boot refuses them, "
                '"Key was rejected by service"',
                "write driver.source: host with driver.packages: distribution, or signed containers",
            )
        case PrecompiledDriver(secure_boot_signed=False):
            yield Wrong(
                "driver.secure-boot-signed",
                "is false while secure-boot is true: the modules would be refused",
                "write true if they are signed with a key that the firmware knows, as SUSE's are",
            )
        case HostDriver(packages=PackageSource.NVIDIA):
            wrong = "are built on the hosts by DKMS, without a signature that Secure Boot knows"
            remedy = "write distribution, whose modules are prebuilt and signed"
            yield Wrong("driver.packages", wrong, remedy)


@rule(36, "rke2.distribution-driver-missing", each=["pools"])
def the_distribution_has_the_driver(config: Rke2Config) -> Iterable[Wrong]:
    stated = config.driver
    if not isinstance(stated, HostDriver) or stated.packages is not PackageSource.DISTRIBUTION:
        return
    for pool in gpu_pools(config):
        runs = system(config, pool)
        if runs is not None and runs.family in ("rhel", "rocky"):
            wrong = f"are not there: {runs} of pool {pool.name} has no driver of its own"
            yield Wrong("driver.packages", wrong)


@rule(35, "rke2.direct-storage-modules", each=["pools"])
def direct_storage_has_open_modules(config: Rke2Config) -> Iterable[Wrong]:
    for key in ("gds.enabled", "gdrcopy.enabled"):
        path = f"operator.values.{key}"
        if at(config.operator.values, key) is not True:
            continue
        if not isinstance(config.driver, OperatorDriver):
            yield Wrong(
                path,
                "is on, and is built in the driver's container, which driver.source "
                f"{config.driver.source} does not have",
                "write driver.source: operator, or install it on the hosts and remove this",
            )
            continue
        for pool in gpu_pools(config):
            if modules(config, pool) is ModulesPolicy.PROPRIETARY and key.startswith("gds"):
                wrong = f"is on, and needs open modules, which pool {pool.name} does not have"
                yield Wrong(path, wrong, "remove it, or leave that pool to another cluster")
