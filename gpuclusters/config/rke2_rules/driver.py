"""Rows 34 to 36: every pool has a driver that knows its GPUs, with modules that its hosts boot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuclusters.compat import gpu_products, rke2_matrix
from gpuclusters.compat.rke2_matrix import ModulesPolicy, branch_of
from gpuclusters.compat.versions import release
from gpuclusters.config import rke2_checks
from gpuclusters.config.fault import show
from gpuclusters.config.rke2_cluster import (
    HostDriver,
    OperatorDriver,
    Pool,
    PrecompiledDriver,
    Rke2Config,
)
from gpuclusters.config.rke2_machines import (
    architecture,
    driver_version,
    modules,
    system,
)
from gpuclusters.config.rules.rule import Wrong, rule
from gpuclusters.core.finding import Finding, Level, Path
from gpuclusters.driver.model import PackageSource
from gpuclusters.gpu_operator.keys import at
from gpuclusters.gpu_operator.values import understands_auto


def pools_with_drivers(config: Rke2Config) -> Iterator[tuple[int, Pool, str]]:
    """Pools with GPUs, and the driver of each."""
    for number, pool in enumerate(config.pools):
        if pool.gpu is not None:
            yield number, pool, driver_version(config, pool.driver)


def _place(config: Rke2Config, number: int, pool: Pool) -> Path:
    """Where the driver of a pool is stated, else the GPUs that decided it."""
    own = pool.driver
    if own is not None and (own.version or own.branch):
        return ("pools", number, "driver", "version" if own.version else "branch")
    stated = config.driver
    if getattr(stated, "version", None) is not None:
        return ("driver", "version")
    return ("driver", "branch")


@rule(34, "rke2.driver-without-gpu", each=["pools"])
def the_driver_knows_the_gpus(config: Rke2Config) -> Iterable[Wrong]:
    for number, pool, version in pools_with_drivers(config):
        branch = rke2_matrix.branch(branch_of(version))
        generation = architecture(pool)
        if branch is not None and generation.is_before(branch.oldest):
            last = rke2_matrix.last_branch_for(generation)
            yield Wrong(
                _place(config, number, pool),
                f"does not know the {generation} GPUs of pool {pool.name}: the last that does is {last}; "
                "later ones leave them out with a line in dmesg",
                f"write driver.branch: {last}; {_apart(config)}",
                show(version),
            )


def _apart(config: Rke2Config) -> str:
    if isinstance(config.driver, HostDriver):
        return "or give that pool its own, with pools[].driver.branch"
    return "for another driver in another pool write driver.source: host"


@rule(34, "rke2.driver-too-old", each=["pools"])
def the_driver_is_new_enough(config: Rke2Config) -> Iterable[Wrong]:
    for number, pool, version in pools_with_drivers(config):
        product = pool.gpu.product if pool.gpu is not None else ""
        least = gpu_products.product(product).minimum_driver
        if least is None:
            continue
        if isinstance(config.driver, PrecompiledDriver):
            too_old = branch_of(version) < branch_of(least)
        else:
            too_old = release(version) < release(least)
        if too_old:
            yield Wrong(
                _place(config, number, pool),
                f"is older than {least}, the first driver for {product}",
                f"write {least} or newer",
                show(version),
            )


@rule(34, "rke2.driver-branch-differs", each=["pools"])
def version_and_branch_agree(config: Rke2Config) -> Iterable[Wrong]:
    stated = config.driver
    places: list[tuple[Path, str | None, int | None]] = []
    if not isinstance(stated, PrecompiledDriver):
        places.append((("driver", "version"), stated.version, stated.branch))
    for number, pool in enumerate(config.pools):
        if pool.driver is not None:
            path: Path = ("pools", number, "driver", "version")
            places.append((path, pool.driver.version, pool.driver.branch))
    for path, version, branch in places:
        if version is not None and branch is not None and branch_of(version) != branch:
            yield Wrong(
                path,
                f"is not of branch {branch}, which is stated beside it",
                "write one of them, or make them agree",
                show(version),
            )


@rule(34, "rke2.driver-branch-unknown", each=["pools"])
def the_branch_is_known(config: Rke2Config) -> Iterable[Wrong]:
    stated: list[tuple[Path, int | None]] = [(("driver", "branch"), config.driver.branch)]
    if not isinstance(config.driver, PrecompiledDriver) and config.driver.version is not None:
        stated.append((("driver", "version"), branch_of(config.driver.version)))
    for number, pool in enumerate(config.pools):
        if pool.driver is not None:
            path: Path = ("pools", number, "driver")
            stated.append(((*path, "branch"), pool.driver.branch))
            if pool.driver.version is not None:
                stated.append(((*path, "version"), branch_of(pool.driver.version)))
    for place, branch in stated:
        if branch is not None:
            yield from rke2_checks.known_branch(place, branch, branch)


@rule(34, "rke2.driver-version-unknown", each=["pools"], level=Level.WARN)
def the_version_is_known(config: Rke2Config) -> Iterable[Wrong]:
    said: set[str] = set()
    for number, pool, version in pools_with_drivers(config):
        if version not in said:
            said.add(version)
            yield from rke2_checks.known_version(_place(config, number, pool), version)


@rule(34, "rke2.driver-branch-ended", each=["pools"], level=Level.WARN)
def the_branch_still_gets_fixes(config: Rke2Config) -> Iterable[Wrong]:
    said: set[int] = set()
    for number, pool, version in pools_with_drivers(config):
        if branch_of(version) not in said:
            said.add(branch_of(version))
            yield from rke2_checks.fixed_branch(_place(config, number, pool), version)


@rule(34, "rke2.operator-driver-missing")
def the_operator_has_the_driver(config: Rke2Config) -> Iterable[Wrong]:
    known = rke2_matrix.major(config.operator.version)
    stated = config.driver
    if known is None or not isinstance(stated, OperatorDriver):
        return
    branches = sorted({branch_of(one) for one in known.drivers})
    if stated.branch is not None and stated.branch not in branches:
        yield Wrong(
            "driver.branch",
            f"has no driver in the component matrix of GPU Operator {config.operator.version}",
            f"write one of {', '.join(map(str, branches))}",
        )


@rule(34, "rke2.operator-driver-untested", level=Level.WARN)
def the_operator_was_tested_with_the_driver(config: Rke2Config) -> Iterable[Wrong]:
    known = rke2_matrix.major(config.operator.version)
    stated = config.driver
    if known is None or not isinstance(stated, OperatorDriver) or stated.version is None:
        return
    if stated.version not in known.drivers:
        yield Wrong(
            "driver.version",
            f"is not in the component matrix of GPU Operator {config.operator.version}",
            f"write one of {', '.join(known.drivers)}",
        )


@rule(34, "rke2.precompiled-driver-missing", each=["pools"])
def precompiled_drivers_exist(config: Rke2Config) -> Iterable[Wrong | Finding]:
    known = rke2_matrix.major(config.operator.version)
    if known is None or not isinstance(config.driver, PrecompiledDriver):
        return
    if config.driver.repository is not None:
        return  # somebody builds them
    for _, pool, _ in pools_with_drivers(config):
        runs = system(config, pool)
        if runs is None:
            yield Wrong(
                "driver.source",
                f"needs to know what the machines of pool {pool.name} run",
                "write operating-system: precompiled drivers are made for a kernel",
            )
        elif config.driver.branch not in known.precompiled.get(runs, ()):
            there = ", ".join(map(str, known.precompiled.get(runs, ()))) or "none"
            yield Wrong(
                "driver.branch",
                f"is not precompiled for {runs.value} of pool {pool.name} in GPU Operator "
                f"{operator_of(config)}, which has {there}",
                "write a branch that is, another driver.source, or driver.repository of your own containers",
            )


def operator_of(config: Rke2Config) -> str:
    """The major release of the operator."""
    return rke2_matrix.operator_major(config.operator.version)


@rule(34, "rke2.pool-driver-differs", each=["pools"])
def pools_differ_only_on_hosts(config: Rke2Config) -> Iterable[Wrong]:
    if isinstance(config.driver, HostDriver):
        return
    for number, pool in enumerate(config.pools):
        if pool.driver is not None:
            yield Wrong(
                ("pools", number, "driver"),
                f"cannot differ with driver.source: {config.driver.source}, one driver for all nodes",
                "write driver.source: host, or one driver that all GPUs have",
                "a driver of its own",
            )


@rule(34, "rke2.systems-differ", each=["pools"])
def driver_containers_have_one_operating_system(config: Rke2Config) -> Iterable[Wrong]:
    if isinstance(config.driver, HostDriver):
        return
    found = {
        one
        for _, pool, _ in pools_with_drivers(config)
        if (one := system(config, pool)) is not None
    }
    if len(found) > 1:
        names = ", ".join(sorted(one.value for one in found))
        yield Wrong(
            "driver.source",
            f"installs one driver container on all nodes, and they run {names}",
            "write driver.source: host",
        )


@rule(34, "rke2.driver-without-gpus", each=["pools"])
def pools_without_gpus_have_no_driver(config: Rke2Config) -> Iterable[Wrong]:
    for number, pool in enumerate(config.pools):
        for key, value in (("driver", pool.driver), ("mig", pool.mig)):
            if pool.gpu is None and value is not None:
                yield Wrong(
                    ("pools", number, key),
                    "is stated for a pool without GPUs",
                    "remove it, or write gpu: {product: …, count: …}",
                    show(value) if isinstance(value, str) else "a driver of its own",
                )


@rule(35, "rke2.kernel-modules", each=["pools"])
def gpus_take_the_kernel_modules(config: Rke2Config) -> Iterable[Wrong]:
    if isinstance(config.driver, PrecompiledDriver):
        return
    for number, pool, version in pools_with_drivers(config):
        chosen = modules(config, pool)
        problem = rke2_matrix.module_problem(chosen, branch_of(version), architecture(pool))
        own = pool.driver is not None and pool.driver.modules is not None
        if problem is not None and pool.gpu is not None:
            other = (
                ModulesPolicy.PROPRIETARY if chosen is ModulesPolicy.OPEN else ModulesPolicy.OPEN
            )
            yield Wrong(
                ("pools", number, "driver", "modules") if own else ("driver", "modules"),
                f"do not fit {pool.gpu.product} of pool {pool.name}: its GPUs {problem}",
                f"write auto, or {other.value}",
                show(chosen.value),
            )


@rule(35, "rke2.kernel-modules-unstated", each=["pools"])
def old_drivers_are_told_their_modules(config: Rke2Config) -> Iterable[Wrong]:
    if not isinstance(config.driver, OperatorDriver):
        return
    if config.driver.modules is not ModulesPolicy.AUTO:
        return
    version = driver_version(config)
    each = {modules(config, pool) for _, pool, _ in pools_with_drivers(config)}
    if not understands_auto(version) and len(each) > 1:
        yield Wrong(
            "driver.modules",
            f"is auto, which the container of {version} does not understand, and the pools differ",
            f"write a driver from {rke2_matrix.matrix().kernel_modules.auto_from} on, or driver.source: host",
        )


@rule(36, "rke2.secure-boot", each=["pools"])
def secure_boot_takes_the_modules(config: Rke2Config) -> Iterable[Wrong]:
    if not config.secure_boot:
        return
    match config.driver:
        case OperatorDriver():
            yield Wrong(
                "driver.source",
                "builds modules on the nodes, which nobody signs: Secure Boot refuses them, "
                '"Key was rejected by service"',
                "write driver.source: host with driver.packages: distribution, or signed containers",
            )
        case PrecompiledDriver() if not config.driver.secure_boot_signed:
            yield Wrong(
                "driver.secure-boot-signed",
                "is false while secure-boot is true: the modules would be refused",
                "write true if they are signed with a key that the firmware knows, as SUSE's are",
            )
        case HostDriver() if config.driver.packages is PackageSource.NVIDIA:
            yield Wrong(
                "driver.packages",
                "are built on the hosts by DKMS, without a signature that Secure Boot knows",
                "write distribution, whose modules are prebuilt and signed",
            )


@rule(36, "rke2.distribution-driver-missing", each=["pools"])
def the_distribution_has_the_driver(config: Rke2Config) -> Iterable[Wrong]:
    if not isinstance(config.driver, HostDriver):
        return
    if config.driver.packages is not PackageSource.DISTRIBUTION:
        return
    for _, pool, _ in pools_with_drivers(config):
        runs = system(config, pool)
        if runs is not None and runs.family in ("rhel", "rocky"):
            yield Wrong(
                "driver.packages",
                f"are not there: {runs.value} of pool {pool.name} has no driver of its own",
                "write nvidia, and set up NVIDIA's repository on the hosts",
            )


@rule(35, "rke2.direct-storage-modules", each=["pools"])
def direct_storage_has_open_modules(config: Rke2Config) -> Iterable[Wrong]:
    for key in ("gds.enabled", "gdrcopy.enabled"):
        if at(config.operator.values, key) is not True:
            continue
        path: Path = ("operator", "values", *key.split("."))
        if not isinstance(config.driver, OperatorDriver):
            yield Wrong(
                path,
                "is on, and is built in the driver's container, which driver.source "
                f"{config.driver.source} does not have",
                "write driver.source: operator, or install it on the hosts and remove this",
            )
            continue
        for _, pool, _ in pools_with_drivers(config):
            if modules(config, pool) is ModulesPolicy.PROPRIETARY and key.startswith("gds"):
                yield Wrong(
                    path,
                    f"is on, and needs open modules, which pool {pool.name} does not have",
                    "remove it, or leave that pool to another cluster",
                )
