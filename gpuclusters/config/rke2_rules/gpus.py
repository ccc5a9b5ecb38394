"""Rules of rke2: GPUs are cut and shared as they can be, and what is to be proven can be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpuclusters.compat import gpu_products, rke2_matrix
from gpuclusters.compat.gpu_products import Architecture
from gpuclusters.compat.rke2_matrix import OperatingSystem, branch_of, operator_major
from gpuclusters.compat.versions import release
from gpuclusters.config.fault import NOTHING, show
from gpuclusters.config.hosts import LabHosts
from gpuclusters.config.rke2_cluster import (
    OWN_MODULES,
    HostDriver,
    Mig,
    MigDevices,
    MigStrategy,
    Mps,
    NoMetrics,
    OperatorDriver,
    Pool,
    PoolGpu,
    PrecompiledDriver,
    PreinstalledDriver,
    RancherMonitoring,
    Rke2Config,
    TimeSlicing,
)
from gpuclusters.config.rke2_machines import (
    architecture,
    cuts,
    driver_version,
    gpu_pools,
    is_shared,
    layout_name,
    needs_mixed,
    system,
)
from gpuclusters.config.rke2_proof import ProofL0, ProofL1, ProofL4
from gpuclusters.config.rules.rule import Wrong, Wrongs, rule
from gpuclusters.core.finding import Level, Path
from gpuclusters.gpu_operator import mig_layout


def _cut_pools(config: Rke2Config) -> Iterator[tuple[int, Pool, PoolGpu, str]]:
    """Pools that name a layout: the number, the pool, its GPUs, its layout."""
    for number, pool in enumerate(config.pools):
        if pool.gpu is not None and pool.mig is not None and isinstance(config.sharing, Mig):
            yield number, pool, pool.gpu, pool.mig


def _own(config: Rke2Config) -> Mapping[str, tuple[MigDevices, ...]]:
    return config.sharing.layouts if isinstance(config.sharing, Mig) else {}


@rule("rke2.layout-without-mig", "pools")
def layouts_are_for_mig(config: Rke2Config, pool: Pool) -> Wrongs:
    if pool.mig is not None and not isinstance(config.sharing, Mig):
        yield Wrong("mig", kind=config.sharing.kind)


@rule("rke2.layout-unknown", each=["pools"])
def layouts_exist(config: Rke2Config) -> Wrongs:
    for number, _, gpu, name in _cut_pools(config):
        path = ("pools", number, "mig")
        if mig_layout.family(gpu.product) is None:
            if name != mig_layout.DISABLED:
                case = "no-mig" if gpu.product in gpu_products.names() else "no-table"
                yield Wrong(path, case, product=gpu.product)
        elif name not in (known := (*_own(config), *mig_layout.layouts(gpu.product))):
            yield Wrong(path, "no-layout", product=gpu.product, known=known)


@rule("rke2.product-not-in-table", each=["pools"])
def what_the_table_does_not_say_is_stated(config: Rke2Config) -> Wrongs:
    """A driver that knows them, NVSwitches, a floor for their rate."""
    names = gpu_products.names()
    for number, pool in enumerate(config.pools):
        if pool.gpu is None or (product := pool.gpu.product) in names:
            continue
        drivers = () if isinstance(config.driver, OWN_MODULES) else (config.driver, pool.driver)
        if drivers and not any(one and (one.branch or one.version) for one in drivers):
            yield Wrong("driver.version", "driver", got=NOTHING, product=product)
        many = pool.gpu.count in gpu_products.NVSWITCH_COUNTS
        if many and pool.gpu.nvswitch is None and isinstance(config.driver, HostDriver):
            path, gpus = ("pools", number, "gpu", "nvswitch"), f"{pool.gpu.count} of {product}"
            yield Wrong(path, "nvswitch", got=NOTHING, gpus=gpus)
        matmul = getattr(config.proof, "matmul", None)
        if matmul is not None and matmul.floor_tflops is None and not is_shared(config, pool):
            yield Wrong("proof.matmul.floor-tflops", "rate", got=NOTHING, product=product)


@rule("rke2.layout-does-not-fit", each=["pools"])
def slices_fit_on_a_gpu(config: Rke2Config) -> Wrongs:
    said: set[tuple[str, int, str]] = set()
    for _, pool, gpu, name in _cut_pools(config):
        for position, entry in enumerate(_own(config).get(name, ())):
            one = (name, position, gpu.product)
            if not entry.profiles or mig_layout.family(gpu.product) is None or one in said:
                continue
            said.add(one)
            if problem := mig_layout.problem(gpu.product, entry.profiles):
                got = show(", ".join(f"{profile}: {n}" for profile, n in entry.profiles.items()))
                path = ("sharing", "layouts", name, position, "profiles")
                yield Wrong(path, got=got, name=pool.name, why=problem)


@rule("rke2.layout-gpu-twice", each=["pools"])
def layouts_name_every_gpu_once(config: Rke2Config) -> Wrongs:
    said: set[tuple[str, int]] = set()
    for _, pool, gpu, name in _cut_pools(config):
        own, count = _own(config).get(name), gpu.count
        if own is None or (name, count) in said:
            continue
        said.add((name, count))
        named = [i for one in own for i in (range(count) if one.devices is None else one.devices)]
        wrong = {
            "no-such": {*named} - {*range(count)},
            "twice": {i for i in named if named.count(i) > 1},
            "left-out": {*range(count)} - {*named},
        }
        path: Path = ("sharing", "layouts", name)
        for case, indexes in wrong.items():
            if indexes:
                got = show(sorted(indexes))
                yield Wrong(path, case, got=got, name=pool.name, last=count - 1)


@rule("rke2.layout-name-reserved")
def layouts_have_names_of_their_own(config: Rke2Config) -> Wrongs:
    for name in _own(config):
        if name.startswith("all-"):
            yield Wrong(("sharing", "layouts", name), got=show(name))


@rule("rke2.layout-ambiguous", each=["pools"])
def names_of_the_manager_mean_one_thing(config: Rke2Config) -> Wrongs:
    meant: dict[str, tuple[str, object]] = {}
    for number, _, gpu, name in _cut_pools(config) if _own(config) else ():
        slices = mig_layout.layouts(gpu.product).get(name)
        if name in _own(config) or not slices:
            continue
        product, others = meant.setdefault(name, (gpu.product, slices))
        if others != slices:
            yield Wrong(("pools", number, "mig"), product=product)


@rule("rke2.mig-profiles-mixed", each=["pools"])
def strategy_single_has_one_profile(config: Rke2Config) -> Wrongs:
    if not isinstance(config.sharing, Mig) or config.sharing.strategy is not MigStrategy.SINGLE:
        return
    for pool in gpu_pools(config):
        if needs_mixed(config, pool):
            yield Wrong("sharing.strategy", name=pool.name, mig=pool.mig)


@rule("rke2.layout-unused", each=["pools"], level=Level.WARN)
def layouts_are_used(config: Rke2Config) -> Wrongs:
    if not isinstance(config.sharing, Mig):
        return
    used = {pool.mig for pool in config.pools}
    for name in config.sharing.layouts:
        if name not in used:
            yield Wrong(("sharing", "layouts", name), "layout", got=show(name))
    if used == {None}:
        yield Wrong("sharing.kind", "mig")


@rule("rke2.mig-manager-system", each=["pools"])
def the_mig_manager_runs(config: Rke2Config) -> Wrongs:
    old = operator_major(config.operator.version) == "25.3"
    on_host = isinstance(config.driver, HostDriver | PreinstalledDriver)
    if old or not isinstance(config.sharing, Mig) or not on_host:
        return
    for number, pool in enumerate(config.pools):
        if layout_name(config, pool) is not None and system(config, pool) is OperatingSystem.RHEL_8:
            own = ("pools", number) if pool.operating_system is not None else ()
            yield Wrong((*own, "operating-system"), name=pool.name)


@rule("rke2.mig-mixed-driver", "pools")
def mixed_pods_are_scheduled(config: Rke2Config, pool: Pool) -> Wrongs:
    if isinstance(config.driver, PrecompiledDriver):
        return
    fault = rke2_matrix.matrix().known_faults["mixed-mig-pending"]
    version = driver_version(config, pool.driver)
    mixed = len({cut is None for cut in cuts(config, pool)}) > 1
    if mixed and release(fault.first) <= release(version) <= release(fault.last):
        yield Wrong("mig", version=version, what=fault.what, first=fault.first, last=fault.last)


@rule("rke2.shared-pool", each=["pools"])
def shared_pools_have_gpus(config: Rke2Config) -> Wrongs:
    sharing = config.sharing
    if not isinstance(sharing, TimeSlicing | Mps):
        return
    names = [pool.name for pool in gpu_pools(config)]
    for number, name in enumerate(sharing.pools or ()):
        if name not in names:
            known = names or "those with GPUs"
            yield Wrong(("sharing", "pools", number), "unknown", known=known)
    if sharing.pools == ():
        yield Wrong("sharing.pools", "empty")


@rule("rke2.mps-gpu-too-old", "pools")
def mps_needs_volta(config: Rke2Config, pool: Pool) -> Wrongs:
    if not isinstance(config.sharing, Mps) or not is_shared(config, pool):
        return
    generation = architecture(pool)
    if generation.is_before(Architecture.VOLTA):
        yield Wrong("gpu.product", generation=generation)


@rule("rke2.sharing-isolates-nothing", "sharing", kind=Mps, level=Level.WARN)
def sharing_isolates_nothing(_config: Rke2Config, _sharing: Mps) -> Wrongs:
    yield Wrong("kind")


@rule("rke2.shares-not-in-metrics", level=Level.WARN)
def shares_are_not_seen_in_metrics(config: Rke2Config) -> Wrongs:
    if isinstance(config.sharing, TimeSlicing | Mps) and config.metrics.kind != "none":
        yield Wrong("metrics.kind")


_DRIVER_BUILD_SECONDS = 1800


@rule("rke2.proof-cuda")
def the_proofs_cuda_runs_on_the_driver(config: Rke2Config) -> Wrongs:
    for test in ("matmul", "load"):
        part = getattr(config.proof, test, None)
        if part is None:
            continue
        path, major = ("proof", test, "cuda-major"), part.cuda_major
        stated = rke2_matrix.matrix().cuda.get(major)
        for pool in gpu_pools(config):
            version = driver_version(config, pool.driver)
            newest = rke2_matrix.newest_cuda(branch_of(version))
            if newest is not None and major > newest:
                yield Wrong(path, "driver", version=version, name=pool.name, newest=newest)
            elif stated is not None and architecture(pool).is_before(stated.oldest):
                said = {"generation": architecture(pool), "name": pool.name, "older": major - 1}
                yield Wrong(path, "generation", **said)


@rule("rke2.proof-without-metrics")
def the_load_is_seen_by_somebody(config: Rke2Config) -> Wrongs:
    if not isinstance(config.proof, ProofL0 | ProofL1) and isinstance(config.metrics, NoMetrics):
        yield Wrong("metrics.kind", level=config.proof.level)


@rule("rke2.proof-without-exchange")
def there_is_something_to_exchange(config: Rke2Config) -> Wrongs:
    several = any(pool.gpu is not None and pool.gpu.count > 1 for pool in config.pools)
    if isinstance(config.proof, ProofL4) and not several:
        yield Wrong("proof.level")


@rule("rke2.proof-of-shared-gpus", level=Level.WARN)
def shared_gpus_are_not_judged(config: Rke2Config) -> Wrongs:
    if not isinstance(config.proof, ProofL0) and isinstance(config.sharing, TimeSlicing | Mps):
        yield Wrong("proof.level", kind=config.sharing.kind)


@rule("rke2.timeout-too-short")
def there_is_time_enough(config: Rke2Config) -> Wrongs:
    ready = config.timeouts.ready_seconds
    if isinstance(config.driver, OperatorDriver) and ready < _DRIVER_BUILD_SECONDS:
        yield Wrong("timeouts.ready-seconds", "driver", least=_DRIVER_BUILD_SECONDS)
    if isinstance(config.sharing, Mig) and ready < (cutting := config.timeouts.mig_seconds):
        yield Wrong("timeouts.ready-seconds", "mig", cutting=cutting)


@rule("rke2.not-in-lab")
def the_lab_can_do_it(config: Rke2Config) -> Wrongs:
    if not isinstance(config.hosts, LabHosts):
        return
    if isinstance(config.metrics, RancherMonitoring):
        yield Wrong("metrics.kind", "chart")
    if not isinstance(config.proof, ProofL0 | ProofL1):
        yield Wrong("proof.level", "gpus")
