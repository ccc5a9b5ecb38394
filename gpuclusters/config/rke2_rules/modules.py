"""Rows 35 and 36: the driver has kernel modules that its GPUs take, and that the hosts boot."""

from __future__ import annotations

from collections.abc import Iterable

from gpuclusters.compat import rke2_matrix
from gpuclusters.compat.rke2_matrix import ModulesPolicy, branch_of
from gpuclusters.config.fault import finding, show
from gpuclusters.config.rke2_cluster import (
    HostDriver,
    OperatorDriver,
    PrecompiledDriver,
    Rke2Config,
)
from gpuclusters.config.rke2_machines import (
    architecture,
    driver_version,
    modules,
    system,
)
from gpuclusters.config.rke2_rules.driver import pools_with_drivers
from gpuclusters.config.rules.rule import rule
from gpuclusters.core.finding import Finding, Path
from gpuclusters.driver.model import PackageSource
from gpuclusters.gpu_operator.keys import at
from gpuclusters.gpu_operator.values import understands_auto


@rule(35, "rke2.kernel-modules", each=["pools"])
def gpus_take_the_kernel_modules(config: Rke2Config) -> Iterable[Finding]:
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
            yield finding(
                ("pools", number, "driver", "modules") if own else ("driver", "modules"),
                f"do not fit {pool.gpu.product} of pool {pool.name}: its GPUs {problem}",
                show(chosen.value),
                f"write auto, or {other.value}",
            )


@rule(35, "rke2.kernel-modules-unstated", each=["pools"])
def old_drivers_are_told_their_modules(config: Rke2Config) -> Iterable[Finding]:
    if not isinstance(config.driver, OperatorDriver):
        return
    if config.driver.modules is not ModulesPolicy.AUTO:
        return
    version = driver_version(config)
    each = {modules(config, pool) for _, pool, _ in pools_with_drivers(config)}
    if not understands_auto(version) and len(each) > 1:
        yield finding(
            ("driver", "modules"),
            f"is auto, which the container of {version} does not understand, and the pools differ",
            '"auto"',
            f"write a driver from {rke2_matrix.matrix().kernel_modules.auto_from} on, or driver.source: host",
        )


@rule(36, "rke2.secure-boot", each=["pools"])
def secure_boot_takes_the_modules(config: Rke2Config) -> Iterable[Finding]:
    if not config.secure_boot:
        return
    match config.driver:
        case OperatorDriver():
            yield finding(
                ("driver", "source"),
                "builds modules on the nodes, which nobody signs: Secure Boot refuses them, "
                '"Key was rejected by service"',
                '"operator"',
                "write driver.source: host with driver.packages: distribution, or signed containers",
            )
        case PrecompiledDriver() if not config.driver.secure_boot_signed:
            yield finding(
                ("driver", "secure-boot-signed"),
                "is false while secure-boot is true: the modules would be refused",
                "false",
                "write true if they are signed with a key that the firmware knows, as SUSE's are",
            )
        case HostDriver() if config.driver.packages is PackageSource.NVIDIA:
            yield finding(
                ("driver", "packages"),
                "are built on the hosts by DKMS, without a signature that Secure Boot knows",
                '"nvidia"',
                "write distribution, whose modules are prebuilt and signed",
            )


@rule(36, "rke2.distribution-driver-missing", each=["pools"])
def the_distribution_has_the_driver(config: Rke2Config) -> Iterable[Finding]:
    if not isinstance(config.driver, HostDriver):
        return
    if config.driver.packages is not PackageSource.DISTRIBUTION:
        return
    for _, pool, _ in pools_with_drivers(config):
        runs = system(config, pool)
        if runs is not None and runs.family in ("rhel", "rocky"):
            yield finding(
                ("driver", "packages"),
                f"are not there: {runs.value} of pool {pool.name} has no driver of its own",
                '"distribution"',
                "write nvidia, and set up NVIDIA's repository on the hosts",
            )


@rule(35, "rke2.direct-storage-modules", each=["pools"])
def direct_storage_has_open_modules(config: Rke2Config) -> Iterable[Finding]:
    for key in ("gds.enabled", "gdrcopy.enabled"):
        if at(config.operator.values, key) is not True:
            continue
        path: Path = ("operator", "values", *key.split("."))
        if not isinstance(config.driver, OperatorDriver):
            yield finding(
                path,
                "is on, and is built in the driver's container, which driver.source "
                f"{config.driver.source} does not have",
                "true",
                "write driver.source: operator, or install it on the hosts and remove this",
            )
            continue
        for _, pool, _ in pools_with_drivers(config):
            if modules(config, pool) is ModulesPolicy.PROPRIETARY and key.startswith("gds"):
                yield finding(
                    path,
                    f"is on, and needs open modules, which pool {pool.name} does not have",
                    "true",
                    "remove it, or leave that pool to another cluster",
                )
