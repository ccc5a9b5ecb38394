"""Row 40: GPUs are cut as they can be, and the device plugin can name what is left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuclusters.compat import rke2_matrix
from gpuclusters.compat.rke2_matrix import OperatingSystem, operator_major, release
from gpuclusters.config.fault import finding, show
from gpuclusters.config.rke2_cluster import (
    HostDriver,
    Mig,
    MigDevices,
    MigStrategy,
    Pool,
    PrecompiledDriver,
    Rke2Config,
)
from gpuclusters.config.rke2_machines import cuts, driver_version, layout_name, needs_mixed, system
from gpuclusters.config.rules.rule import rule
from gpuclusters.core.finding import Finding, Level, Path
from gpuclusters.gpu_operator import mig_layout

Named = tuple[int, Pool, str, str]
"""Number of a pool, the pool, its product, its layout."""


def _cut_pools(config: Rke2Config) -> Iterator[Named]:
    for number, pool in enumerate(config.pools):
        if pool.gpu is not None and pool.mig is not None and isinstance(config.sharing, Mig):
            yield number, pool, pool.gpu.product, pool.mig


@rule(40, "rke2.layout-without-mig", each=["pools"])
def layouts_are_for_mig(config: Rke2Config) -> Iterable[Finding]:
    for number, pool in enumerate(config.pools):
        if pool.mig is not None and not isinstance(config.sharing, Mig):
            yield finding(
                ("pools", number, "mig"),
                f"is stated with sharing.kind: {config.sharing.kind}",
                show(pool.mig),
                "write sharing: {kind: mig}, or remove it: a GPU is cut, or shared whole, not both",
            )


@rule(40, "rke2.layout-unknown", each=["pools"])
def layouts_exist(config: Rke2Config) -> Iterable[Finding]:
    for number, pool, product, name in _cut_pools(config):
        path: Path = ("pools", number, "mig")
        if mig_layout.family(product) is None:
            if name != mig_layout.DISABLED:
                yield finding(
                    path,
                    f"cannot be had: {product} has no MIG",
                    show(pool.mig),
                    "remove it",
                )
        elif name not in _own(config) and mig_layout.named(product, name) is None:
            known = ", ".join((*_own(config), *mig_layout.names(product)))
            yield finding(
                path,
                f"is neither under sharing.layouts nor a layout of {product}",
                show(name),
                f"write one of {known}",
            )


def _own(config: Rke2Config) -> dict[str, tuple[MigDevices, ...]]:
    return config.sharing.layouts if isinstance(config.sharing, Mig) else {}


@rule(40, "rke2.layout-does-not-fit", each=["pools"])
def slices_fit_on_a_gpu(config: Rke2Config) -> Iterable[Finding]:
    said: set[tuple[str, int, str]] = set()
    for _, pool, product, name in _cut_pools(config):
        for position, entry in enumerate(_own(config).get(name, ())):
            if not entry.profiles or mig_layout.family(product) is None:
                continue
            problem = mig_layout.problem(product, entry.profiles)
            if problem is not None and (name, position, product) not in said:
                said.add((name, position, product))
                yield finding(
                    ("sharing", "layouts", name, position, "profiles"),
                    f"cannot be had on the GPUs of pool {pool.name}: {problem}",
                    show(", ".join(f"{profile}: {n}" for profile, n in entry.profiles.items())),
                    "write profiles and counts that fit; docs/rke2.md has those of each product",
                )


@rule(40, "rke2.layout-gpu-twice", each=["pools"])
def layouts_name_every_gpu_once(config: Rke2Config) -> Iterable[Finding]:
    said: set[tuple[str, int]] = set()
    for _, pool, _, name in _cut_pools(config):
        count = pool.gpu.count if pool.gpu is not None else 0
        own = _own(config).get(name)
        if own is None or (name, count) in said:
            continue
        said.add((name, count))
        named = [i for one in own for i in (range(count) if one.devices is None else one.devices)]
        path: Path = ("sharing", "layouts", name)
        wrong = {
            "names GPUs that the machines of pool {pool} do not have": [
                i for i in named if i >= count
            ],
            "names GPUs twice": [i for i in set(named) if named.count(i) > 1],
            "says nothing of GPUs of pool {pool}": [i for i in range(count) if i not in named],
        }
        for what, indexes in wrong.items():
            if indexes:
                yield finding(
                    path,
                    what.format(pool=pool.name),
                    show(sorted(set(indexes))),
                    f"name each of 0 to {count - 1} once; leave devices out for all",
                )


@rule(40, "rke2.layout-name-reserved")
def layouts_have_names_of_their_own(config: Rke2Config) -> Iterable[Finding]:
    for name in _own(config):
        if name.startswith("all-"):
            yield finding(
                ("sharing", "layouts", name),
                "has a name of the MIG manager's own",
                show(name),
                "write a name that does not begin with all-",
            )


@rule(40, "rke2.layout-ambiguous", each=["pools"])
def names_of_the_manager_mean_one_thing(config: Rke2Config) -> Iterable[Finding]:
    if not _own(config):
        return
    meant: dict[str, tuple[str, object]] = {}
    for number, _, product, name in _cut_pools(config):
        slices = mig_layout.named(product, name)
        if name in _own(config) or not slices:
            continue
        if name in meant and meant[name][1] != slices:
            yield finding(
                ("pools", number, "mig"),
                f"would be another cut on {product} than on {meant[name][0]}, and with sharing.layouts all "
                "nodes have one configuration",
                show(name),
                "write a layout of your own for one of these pools",
            )
        meant.setdefault(name, (product, slices))


@rule(40, "rke2.mig-profiles-mixed", each=["pools"])
def strategy_single_has_one_profile(config: Rke2Config) -> Iterable[Finding]:
    if not isinstance(config.sharing, Mig) or config.sharing.strategy is not MigStrategy.SINGLE:
        return
    for pool in config.pools:
        if pool.gpu is not None and needs_mixed(config, pool):
            yield finding(
                ("sharing", "strategy"),
                f"cannot name the GPUs of pool {pool.name}: its layout {pool.mig} has several profiles, or "
                "whole GPUs too",
                '"single"',
                "write mixed, or remove it; pods then ask for nvidia.com/mig-<profile>",
            )


@rule(40, "rke2.layout-unused", each=["pools"], level=Level.WARN)
def layouts_are_used(config: Rke2Config) -> Iterable[Finding]:
    if not isinstance(config.sharing, Mig):
        return
    used = {pool.mig for pool in config.pools}
    for name in config.sharing.layouts:
        if name not in used:
            yield finding(
                ("sharing", "layouts", name),
                "is named by no pool",
                show(name),
                "write it as the mig of a pool, or remove it",
            )
    if used == {None}:
        yield finding(
            ("sharing", "kind"),
            "is mig, and no pool names a layout",
            '"mig"',
            "write pools[].mig, or sharing: {kind: none}",
        )


@rule(40, "rke2.mig-manager-system", each=["pools"])
def the_mig_manager_runs(config: Rke2Config) -> Iterable[Finding]:
    if not isinstance(config.sharing, Mig) or not isinstance(config.driver, HostDriver):
        return
    if operator_major(config.operator.version) == "25.3":
        return
    for number, pool in enumerate(config.pools):
        if layout_name(config, pool) is not None and system(config, pool) is OperatingSystem.RHEL_8:
            own = pool.operating_system is not None
            yield finding(
                ("pools", number, "operating-system") if own else ("operating-system",),
                f"has a GLIBC too old for the MIG manager with the host's driver, in pool {pool.name}",
                '"rhel-8"',
                "write driver.source: operator, or use RHEL 9",
            )


@rule(40, "rke2.mig-mixed-driver", each=["pools"])
def mixed_pods_are_scheduled(config: Rke2Config) -> Iterable[Finding]:
    fault = rke2_matrix.matrix().known_faults["mixed-mig-pending"]
    if isinstance(config.driver, PrecompiledDriver):
        return
    for number, pool in enumerate(config.pools):
        if pool.gpu is None or not any(cut is not None for cut in cuts(config, pool)):
            continue
        version = driver_version(config, pool.driver)
        kinds = {cut is None for cut in cuts(config, pool)}
        if len(kinds) > 1 and release(fault.first) <= release(version) <= release(fault.last):
            yield finding(
                ("pools", number, "mig"),
                f"has whole GPUs beside slices, and with driver {version} {fault.what}",
                show(pool.mig),
                "choose a driver outside of "
                f"{fault.first} to {fault.last}, or cut all GPUs of the node",
            )
