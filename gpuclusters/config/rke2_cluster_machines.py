"""The machines of an `rke2` cluster: what each is, and which driver its GPUs get. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuclusters.boot.model import RebootPolicy
from gpuclusters.config.rke2_cluster import Rke2Config
from gpuclusters.config.rke2_cluster_driver import (
    HostDriver,
    OperatorDriver,
    Packages,
    PrecompiledDriver,
)
from gpuclusters.config.rke2_cluster_pools import Pool, PoolDriver
from gpuclusters.domain import gpu_products, rke2_matrix
from gpuclusters.domain.gpu_products import Architecture
from gpuclusters.domain.rke2 import Role
from gpuclusters.domain.rke2_matrix import ModulesPolicy, OperatingSystem
from gpuclusters.gpu_operator.values import ContainerDriver, understands_auto

POOL_LABEL = "gpu-clusters.dev/pool"


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverPlan:
    """The driver of one machine, as packages on it."""

    version: str
    """Exact."""
    modules: ModulesPolicy
    """open or proprietary, never auto."""
    packages: Packages
    nvswitch: bool
    """Whether the fabric manager has to run, in exactly the driver's version."""
    gpus: int
    """How many the machine must show."""
    reboot: RebootPolicy


@dataclass(frozen=True, kw_only=True, slots=True)
class MachinePlan:
    """One machine."""

    name: str
    role: Role
    pool: Pool | None
    labels: Mapping[str, str]
    taints: Sequence[str]
    driver: DriverPlan | None
    """None if it has no GPUs, or the operator brings the driver."""

    @property
    def gpus(self) -> int:
        """How many it must show."""
        return self.pool.gpu.count if self.pool is not None and self.pool.gpu is not None else 0


def gpu_pools(config: Rke2Config) -> tuple[Pool, ...]:
    """Pools with GPUs."""
    return tuple(pool for pool in config.pools if pool.gpu is not None)


def architecture(pool: Pool) -> Architecture:
    """The generation of a pool's GPUs.

    Raises:
        ValueError: the pool has none.
    """
    if pool.gpu is None:
        raise ValueError(f"pool {pool.name} has no GPUs")
    return gpu_products.product(pool.gpu.product).architecture


def system(config: Rke2Config, pool: Pool | None) -> OperatingSystem | None:
    """What the machines of a pool run; None if nobody said."""
    own = pool.operating_system if pool is not None else None
    return own or config.operating_system


def systems(config: Rke2Config, pools: Sequence[Pool]) -> tuple[OperatingSystem, ...]:
    """What these pools run, each once, as far as it is stated."""
    stated = [system(config, pool) for pool in pools]
    return tuple(dict.fromkeys(one for one in stated if one is not None))


def pool_of(config: Rke2Config) -> Mapping[str, Pool]:
    """The pool of each machine, by name."""
    return {name: pool for pool in config.pools for name in pool.nodes}


def agents(config: Rke2Config) -> tuple[str, ...]:
    """Machines that are no servers, in the order of the pools."""
    servers = set(config.servers)
    found = [name for pool in config.pools for name in pool.nodes if name not in servers]
    return tuple(dict.fromkeys(found))


def machines(config: Rke2Config) -> tuple[MachinePlan, ...]:
    """All machines: servers first, in their order."""
    pools = pool_of(config)
    names = [*dict.fromkeys(config.servers), *agents(config)]
    return tuple(_machine(config, name, pools.get(name)) for name in names)


def _machine(config: Rke2Config, name: str, pool: Pool | None) -> MachinePlan:
    return MachinePlan(
        name=name,
        role=Role.SERVER if name in config.servers else Role.AGENT,
        pool=pool,
        labels={POOL_LABEL: pool.name, **pool.labels} if pool is not None else {},
        taints=pool.taints if pool is not None else (),
        driver=host_driver(config, pool) if pool is not None else None,
    )


def driver_version(config: Rke2Config, override: PoolDriver | None = None) -> str:
    """The version that is installed: stated, else the newest that is known of the branch.

    Without a branch it is that of the newest one with long support that all GPUs have. A precompiled
    driver is its branch.
    """
    stated = config.driver
    if isinstance(stated, PrecompiledDriver):
        return str(stated.branch)
    version, branch = stated.version, stated.branch
    if override is not None and (override.version or override.branch):
        version, branch = override.version, override.branch
    if version is not None:
        return version
    operator = config.operator.version if isinstance(stated, OperatorDriver) else None
    number = branch if branch is not None else default_branch(config)
    if rke2_matrix.branch(number) is None:
        return f"{number}.0"  # refused by the rules: nobody has read about it
    return rke2_matrix.newest_driver(number, operator)


def default_branch(config: Rke2Config) -> int:
    """The branch where none is stated: the newest with long support that every pool's GPUs have."""
    pools = [
        pool
        for pool in gpu_pools(config)
        if pool.driver is None or not (pool.driver.version or pool.driver.branch)
    ]
    order = list(Architecture)
    oldest = min((architecture(pool) for pool in pools), key=order.index, default=order[-1])
    least = [
        rke2_matrix.branch_of(found)
        for pool in pools
        if pool.gpu is not None
        and (found := gpu_products.product(pool.gpu.product).minimum_driver) is not None
    ]
    return rke2_matrix.newest_branch_for(oldest, max(least, default=0))


def modules(config: Rke2Config, pool: Pool) -> ModulesPolicy:
    """The kernel modules of a pool: stated, else open wherever its GPUs can."""
    override = pool.driver.modules if pool.driver is not None else None
    if override is not None:
        chosen = override
    elif isinstance(config.driver, PrecompiledDriver):
        chosen = ModulesPolicy.AUTO
    else:
        chosen = config.driver.modules
    return rke2_matrix.modules_for(architecture(pool)) if chosen is ModulesPolicy.AUTO else chosen


def host_driver(config: Rke2Config, pool: Pool) -> DriverPlan | None:
    """The driver of a pool's machines; None without GPUs, or where the operator brings it."""
    if pool.gpu is None or not isinstance(config.driver, HostDriver):
        return None
    return DriverPlan(
        version=driver_version(config, pool.driver),
        modules=modules(config, pool),
        packages=config.driver.packages,
        nvswitch=has_nvswitch(pool),
        gpus=pool.gpu.count,
        reboot=config.driver.reboot,
    )


def has_nvswitch(pool: Pool) -> bool:
    """Whether a pool's GPUs are behind NVSwitches: stated, else as machines with so many of them are."""
    if pool.gpu is None:
        return False
    if pool.gpu.nvswitch is not None:
        return pool.gpu.nvswitch
    return gpu_products.has_nvswitch(pool.gpu.product, pool.gpu.count)


def container_driver(config: Rke2Config) -> ContainerDriver | None:
    """The driver that the operator installs; None if the hosts have one."""
    stated = config.driver
    match stated:
        case HostDriver():
            return None
        case PrecompiledDriver():
            return ContainerDriver(
                version=str(stated.branch), precompiled=True, repository=stated.repository
            )
    version = driver_version(config)
    chosen = stated.modules
    if chosen is ModulesPolicy.AUTO and not understands_auto(version):
        each = {modules(config, pool) for pool in gpu_pools(config)}
        chosen = each.pop() if len(each) == 1 else chosen
    return ContainerDriver(version=version, modules=chosen, package_mirror=stated.package_mirror)
