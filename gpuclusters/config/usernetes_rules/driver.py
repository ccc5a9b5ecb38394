"""Row 48: the driver knows the GPUs, with kernel modules that they take and that the hosts boot."""

from __future__ import annotations

from collections.abc import Iterable

from gpuclusters.compat import gpu_products, rke2_matrix
from gpuclusters.compat.gpu_products import Architecture
from gpuclusters.compat.rke2_matrix import ModulesPolicy, branch_of, release
from gpuclusters.config.fault import finding, show
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.config.rules.rule import rule
from gpuclusters.config.usernetes import PackagedDriver, UsernetesConfig
from gpuclusters.config.usernetes_plan import driver_version, modules
from gpuclusters.core.finding import Finding, Level, Path
from gpuclusters.driver.model import PackageSource

_VERSION: Path = ("driver", "version")


def architecture(config: UsernetesConfig) -> Architecture:
    """The generation of the GPUs."""
    return gpu_products.product(config.gpus.product).architecture


@rule(48, "usernetes.driver-branch-unknown")
def the_hosts_branch_is_known(config: UsernetesConfig) -> Iterable[Finding]:
    version = driver_version(config)
    if rke2_matrix.branch(branch_of(version)) is None:
        known = ", ".join(map(str, rke2_matrix.matrix().drivers))
        yield finding(
            _VERSION,
            f"is of a branch that was not read about here, as of {rke2_matrix.matrix().as_of}",
            show(version),
            f"write one of {known}",
        )


@rule(48, "usernetes.driver-without-gpu")
def the_hosts_driver_knows_the_gpus(config: UsernetesConfig) -> Iterable[Finding]:
    version = driver_version(config)
    branch = rke2_matrix.branch(branch_of(version))
    generation = architecture(config)
    if branch is not None and generation.is_before(branch.oldest):
        last = max(
            number
            for number, one in rke2_matrix.matrix().drivers.items()
            if not generation.is_before(one.oldest)
        )
        yield finding(
            _VERSION,
            f"does not know {config.gpus.product}, which is {generation}: the last that does is {last};"
            " with a later one the driver is installed and shows no device",
            show(version),
            f"write {rke2_matrix.newest_driver(last)}, or remove it",
        )


@rule(48, "usernetes.driver-too-old")
def the_hosts_driver_is_new_enough(config: UsernetesConfig) -> Iterable[Finding]:
    least = gpu_products.product(config.gpus.product).minimum_driver
    version = driver_version(config)
    if least is not None and release(version) < release(least):
        yield finding(
            _VERSION,
            f"is older than {least}, the first driver for {config.gpus.product}",
            show(version),
            f"write {least} or newer",
        )


@rule(48, "usernetes.driver-branch-ended", level=Level.WARN)
def the_hosts_branch_still_gets_fixes(config: UsernetesConfig) -> Iterable[Finding]:
    table = rke2_matrix.matrix()
    version = driver_version(config)
    branch = rke2_matrix.branch(branch_of(version))
    if branch is not None and branch.is_over(table.as_of):
        end = "" if branch.end == rke2_matrix.ENDED else f" since {branch.end}"
        good = [
            str(number) for number, one in table.drivers.items() if not one.is_over(table.as_of)
        ]
        yield finding(
            _VERSION,
            f"is of branch {branch_of(version)}, which gets no fixes{end}",
            show(version),
            f"write a branch that does: {', '.join(good)}",
        )


@rule(48, "usernetes.kernel-modules")
def gpus_take_the_hosts_modules(config: UsernetesConfig) -> Iterable[Finding]:
    if not isinstance(config.driver, PackagedDriver):
        return
    chosen = modules(config)
    version = driver_version(config)
    problem = rke2_matrix.module_problem(chosen, branch_of(version), architecture(config))
    if problem is not None:
        open_ones = chosen is ModulesPolicy.OPEN
        other = ModulesPolicy.PROPRIETARY if open_ones else ModulesPolicy.OPEN
        yield finding(
            ("driver", "modules"),
            f"do not fit {config.gpus.product}: its GPUs {problem}",
            show(chosen.value),
            f"write auto, or {other.value}",
        )


@rule(48, "usernetes.secure-boot")
def secure_boot_takes_the_hosts_modules(config: UsernetesConfig) -> Iterable[Finding]:
    if not config.secure_boot:
        return
    if isinstance(config.hosts, GcpHosts):
        yield finding(
            ("secure-boot",),
            "is true, and machines with GPUs are made without it on Google Cloud",
            "true",
            "write false",
        )
    elif (
        isinstance(config.driver, PackagedDriver) and config.driver.packages is PackageSource.NVIDIA
    ):
        yield finding(
            ("driver", "packages"),
            "builds modules on the hosts, which nobody signs: Secure Boot refuses them,"
            ' "Key was rejected by service"',
            '"nvidia"',
            "write distribution: Ubuntu's prebuilt modules are signed",
        )
