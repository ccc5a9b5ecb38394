"""The machines of an `rke2` cluster: what each is, which driver its GPUs get, what its node offers. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from gpuclusters.compat import gpu_products, rke2_matrix
from gpuclusters.compat.gpu_products import Architecture, Product
from gpuclusters.compat.rke2_matrix import ModulesPolicy, OperatingSystem
from gpuclusters.config.rke2_cluster import (
    OWN_MODULES,
    HostDriver,
    MadeCluster,
    Mig,
    MigStrategy,
    Mps,
    OperatorDriver,
    Pool,
    PoolDriver,
    PrecompiledDriver,
    PreinstalledDriver,
    Rke2Config,
    TimeSlicing,
    machine_names,
)
from gpuclusters.driver.model import Modules, WantedDriver
from gpuclusters.gpu_operator import mig_layout
from gpuclusters.gpu_operator.mig_layout import DISABLED, ENABLED, MigNode, Slices
from gpuclusters.gpu_operator.values import ContainerDriver, understands_auto
from gpuclusters.proof.model import WHOLE
from gpuclusters.rke2.releases import Role

POOL_LABEL = "gpu-clusters.dev/pool"


@dataclass(frozen=True, kw_only=True, slots=True)
class MachinePlan:
    name: str
    role: Role
    pool: str
    """Its name; empty for a server without GPUs."""
    gpus: int
    """How many it must show."""
    labels: Mapping[str, str]
    taints: Sequence[str]
    driver: WantedDriver | None
    """None if it has no GPUs, or the operator brings the driver."""


def gpu_pools(config: Rke2Config) -> tuple[Pool, ...]:
    return tuple(pool for pool in config.pools if pool.gpu is not None)


def _product(pool: Pool) -> Product:
    if pool.gpu is None:
        raise ValueError(f"pool {pool.name} has no GPUs")
    return gpu_products.product(pool.gpu.product)


def architecture(pool: Pool) -> Architecture:
    """The generation of a pool's GPUs; ValueError if it has none."""
    return _product(pool).architecture


def system(config: Rke2Config, pool: Pool | None) -> OperatingSystem | None:
    """What the machines of a pool run; None if nobody said."""
    own = pool.operating_system if pool is not None else None
    return own or config.operating_system


def pool_of(config: Rke2Config) -> Mapping[str, Pool]:
    return {name: pool for pool in config.pools for name in pool.nodes}


def machines(config: Rke2Config) -> tuple[MachinePlan, ...]:
    """All machines: servers first, in their order."""
    pools = pool_of(config)
    return tuple(_machine(config, name, pools.get(name)) for name in machine_names(config))


def _machine(config: Rke2Config, name: str, pool: Pool | None) -> MachinePlan:
    role = Role.SERVER if name in config.own_servers else Role.AGENT
    made = isinstance(config, MadeCluster)  # nodes that were there keep their labels
    return MachinePlan(
        name=name,
        role=role,
        pool=pool.name if pool is not None else "",
        gpus=pool.gpu.count if pool is not None and pool.gpu is not None else 0,
        labels={POOL_LABEL: pool.name, **pool.labels} if made and pool is not None else {},
        taints=pool.taints if pool is not None else (),
        driver=_host_driver(config, pool) if pool is not None else None,
    )


def driver_version(config: Rke2Config, override: PoolDriver | None = None) -> str:
    """What is installed: the version stated, else the newest known of the branch; precompiled, the branch.

    Without a branch it is that of the newest one with long support that all GPUs have.
    """
    stated = config.driver
    if isinstance(stated, PrecompiledDriver):
        return str(stated.branch)
    if isinstance(stated, PreinstalledDriver):
        return stated.version
    own = override if override is not None and (override.version or override.branch) else stated
    if own.version is not None:
        return own.version
    operator = config.operator.version if isinstance(stated, OperatorDriver) else None
    number = own.branch if own.branch is not None else _default_branch(config)
    if rke2_matrix.branch(number) is None:
        return f"{number}.0"  # refused by the rules: nobody has read about it
    return rke2_matrix.newest_driver(number, operator)


def _default_branch(config: Rke2Config) -> int:
    """The newest with long support that the GPUs have of every pool which states none."""
    products = [
        _product(pool)
        for pool in gpu_pools(config)
        if pool.driver is None or not (pool.driver.version or pool.driver.branch)
    ]
    order = list(Architecture)
    oldest = min((one.architecture for one in products), key=order.index, default=order[-1])
    least = [rke2_matrix.branch_of(one.minimum_driver) for one in products if one.minimum_driver]
    return rke2_matrix.newest_branch_for(oldest, max(least, default=0))


def modules(config: Rke2Config, pool: Pool) -> ModulesPolicy:
    """The kernel modules of a pool: stated, else open wherever its GPUs can."""
    chosen = pool.driver.modules if pool.driver is not None else None
    if chosen is None and not isinstance(config.driver, OWN_MODULES):
        chosen = config.driver.modules
    if chosen is None or chosen is ModulesPolicy.AUTO:
        return rke2_matrix.modules_for(architecture(pool))
    return chosen


def _host_driver(config: Rke2Config, pool: Pool) -> WantedDriver | None:
    """The driver of a pool's machines; None without GPUs, or where the operator brings it."""
    gpu, stated = pool.gpu, config.driver
    if gpu is None or not isinstance(stated, HostDriver):
        return None
    usual = gpu_products.has_nvswitch(gpu.product, gpu.count)
    return WantedDriver(
        version=driver_version(config, pool.driver),
        modules=Modules(modules(config, pool).value),
        packages=stated.packages,
        nvswitch=usual if gpu.nvswitch is None else gpu.nvswitch,
        reboot=stated.reboot,
        reboot_timeout_seconds=config.timeouts.driver_seconds,
    )


def container_driver(config: Rke2Config) -> ContainerDriver | None:
    """The driver that the operator installs; None if the hosts have one."""
    stated = config.driver
    match stated:
        case HostDriver() | PreinstalledDriver():
            return None
        case PrecompiledDriver():
            return ContainerDriver(
                version=str(stated.branch), precompiled=True, repository=stated.repository
            )
    version, chosen = driver_version(config), stated.modules
    if chosen is ModulesPolicy.AUTO and not understands_auto(version):
        each = {modules(config, pool) for pool in gpu_pools(config)}
        chosen = each.pop() if len(each) == 1 else chosen
    return ContainerDriver(version=version, modules=chosen, package_mirror=stated.package_mirror)


SHARED = "nvidia.com/gpu.shared"
SHARED_KEY = "shared"
WHOLE_KEY = "whole"
"""Keys of the device plugin's configuration: which one a node uses is its label."""


def layout_name(config: Rke2Config, pool: Pool) -> str | None:
    """The MIG layout of a pool, by default disabled; None if its GPUs cannot be cut, or nobody cuts any."""
    if not isinstance(config.sharing, Mig) or pool.gpu is None:
        return None
    return pool.mig or (DISABLED if mig_layout.family(pool.gpu.product) is not None else None)


def cuts(config: Rke2Config, pool: Pool) -> tuple[Slices | None, ...]:
    """How each GPU of a machine of the pool is cut, by index; None is a GPU that is not."""
    count = pool.gpu.count if pool.gpu is not None else 0
    found: list[Slices | None] = [None] * count
    name = layout_name(config, pool)
    if pool.gpu is None or name in (None, DISABLED) or not isinstance(config.sharing, Mig):
        return tuple(found)
    own = config.sharing.layouts.get(name)
    if own is None:
        return (mig_layout.layouts(pool.gpu.product).get(name),) * count
    for entry in own:
        for index in range(count) if entry.devices is None else entry.devices:
            if index < count:
                found[index] = entry.profiles or None
    return tuple(found)


def needs_mixed(config: Rke2Config, pool: Pool) -> bool:
    """Whether strategy single cannot name this pool's GPUs: several profiles, or some cut and some not."""
    kinds = {frozenset(cut or ()) for cut in cuts(config, pool)}
    return len(kinds) > 1 or any(len(kind) > 1 for kind in kinds)


def mig_strategy(config: Rke2Config) -> MigStrategy:
    """How slices are named, in the whole cluster."""
    if not isinstance(config.sharing, Mig):
        return MigStrategy.SINGLE
    mixed = any(needs_mixed(config, pool) for pool in gpu_pools(config))
    return config.sharing.strategy or (MigStrategy.MIXED if mixed else MigStrategy.SINGLE)


def pool_resources(config: Rke2Config, pool: Pool) -> Mapping[str, int]:
    """What every node of a pool with GPUs has to offer, by resource."""
    sharing, count = config.sharing, pool.gpu.count if pool.gpu is not None else 0
    if isinstance(sharing, TimeSlicing | Mps):
        if not is_shared(config, pool):
            return {WHOLE: count}
        return {SHARED if sharing.rename else WHOLE: count * sharing.replicas}
    # A node whose GPUs are all cut offers no whole one, and that is worth waiting for too.
    found: Counter[str] = Counter({WHOLE: 0})
    mixed = mig_strategy(config) is MigStrategy.MIXED
    for cut in cuts(config, pool):
        for profile, number in ({"": 1} if cut is None else cut).items():
            slices = f"nvidia.com/mig-{profile.replace('+', '.')}"
            found[slices if profile and mixed else WHOLE] += number
    return dict(found)


def expected(config: Rke2Config) -> Mapping[str, Mapping[str, int]]:
    """What every node with GPUs has to offer, by node and resource."""
    return {name: pool_resources(config, pool) for pool in gpu_pools(config) for name in pool.nodes}


def mig_nodes(config: Rke2Config) -> Mapping[str, MigNode]:
    """The layout of every node that can be cut; none if nobody cuts any."""
    return {
        name: MigNode(layout=layout, expected=pool_resources(config, pool))
        for pool in gpu_pools(config)
        if (layout := layout_name(config, pool)) is not None
        for name in pool.nodes
    }


def is_shared(config: Rke2Config, pool: Pool) -> bool:
    """Whether several pods get one GPU of the pool."""
    sharing = config.sharing
    if not isinstance(sharing, TimeSlicing | Mps) or pool.gpu is None:
        return False
    return sharing.pools is None or pool.name in sharing.pools


def plugin_keys(config: Rke2Config) -> Mapping[str, str]:
    """Which key of the device plugin's configuration each node uses; none if nobody shares."""
    if not isinstance(config.sharing, TimeSlicing | Mps):
        return {}
    return {
        name: SHARED_KEY if is_shared(config, pool) else WHOLE_KEY
        for pool in gpu_pools(config)
        for name in pool.nodes
    }


def plugin_config(config: Rke2Config) -> Mapping[str, str]:
    """The device plugin's configuration, by key; none if nobody shares."""
    sharing = config.sharing
    if not isinstance(sharing, TimeSlicing | Mps):
        return {}
    shared: dict[str, Any] = {
        "renameByDefault": sharing.rename,
        "resources": [{"name": WHOLE, "replicas": sharing.replicas}],
    }
    kind = "mps"
    if isinstance(sharing, TimeSlicing):
        kind = "timeSlicing"
        shared["failRequestsGreaterThanOne"] = sharing.refuse_more_than_one
    return {
        SHARED_KEY: yaml.safe_dump({"version": "v1", "sharing": {kind: shared}}),
        WHOLE_KEY: yaml.safe_dump({"version": "v1"}),
    }


def mig_config(config: Rke2Config) -> str | None:
    """The MIG manager's configuration; None if its own has every layout that is used.

    One of ours replaces the manager's, so it has to hold every layout that any node is given.
    """
    if not isinstance(config.sharing, Mig) or not config.sharing.layouts:
        return None
    layouts: dict[str, Any] = {
        DISABLED: [{"devices": "all", "mig-enabled": False}],
        ENABLED: [{"devices": "all", "mig-enabled": True, "mig-devices": {}}],
    }
    for pool in gpu_pools(config):
        name = layout_name(config, pool)
        slices = mig_layout.layouts(pool.gpu.product).get(name) if pool.gpu and name else None
        if name is not None and slices:
            layouts[name] = [_entry(None, slices)]
    for name, entries in config.sharing.layouts.items():
        layouts[name] = [_entry(entry.devices, entry.profiles) for entry in entries]
    return yaml.safe_dump({"version": "v1", "mig-configs": layouts}, sort_keys=False)


def _entry(devices: tuple[int, ...] | None, profiles: Slices) -> dict[str, Any]:
    where: Any = "all" if devices is None else list(devices)
    cut = {"mig-devices": dict(profiles)} if profiles else {}
    return {"devices": where, "mig-enabled": bool(profiles), **cut}
