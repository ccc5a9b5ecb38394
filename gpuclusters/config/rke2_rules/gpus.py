"""Rules of rke2: GPUs are cut and shared as they can be, and what is to be proven can be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpuclusters.compat import rke2_matrix
from gpuclusters.compat.gpu_products import Architecture
from gpuclusters.compat.rke2_matrix import OperatingSystem, branch_of, operator_major
from gpuclusters.compat.versions import release
from gpuclusters.config.fault import show
from gpuclusters.config.hosts import LabHosts
from gpuclusters.config.rke2_cluster import (
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
from gpuclusters.core.finding import Level
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
        yield Wrong("mig", f"is stated with sharing.kind: {config.sharing.kind}")


@rule("rke2.layout-unknown", each=["pools"])
def layouts_exist(config: Rke2Config) -> Wrongs:
    for number, _, gpu, name in _cut_pools(config):
        path = ("pools", number, "mig")
        if mig_layout.family(gpu.product) is None:
            if name != mig_layout.DISABLED:
                yield Wrong(path, f"cannot be had: {gpu.product} has no MIG", "remove it")
        elif name not in _own(config) and mig_layout.named(gpu.product, name) is None:
            wrong = f"is neither under sharing.layouts nor a layout of {gpu.product}"
            remedy = f"write one of {', '.join((*_own(config), *mig_layout.names(gpu.product)))}"
            yield Wrong(path, wrong, remedy)


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
                yield Wrong(
                    ("sharing", "layouts", name, position, "profiles"),
                    f"cannot be had on the GPUs of pool {pool.name}: {problem}",
                    got=show(", ".join(f"{profile}: {n}" for profile, n in entry.profiles.items())),
                )


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
            f"names GPUs that the machines of pool {pool.name} do not have": {*named}
            - {*range(count)},
            "names GPUs twice": {i for i in named if named.count(i) > 1},
            f"says nothing of GPUs of pool {pool.name}": {*range(count)} - {*named},
        }
        remedy = f"name each of 0 to {count - 1} once; leave devices out for all"
        for what, indexes in wrong.items():
            if indexes:
                yield Wrong(("sharing", "layouts", name), what, remedy, show(sorted(indexes)))


@rule("rke2.layout-name-reserved")
def layouts_have_names_of_their_own(config: Rke2Config) -> Wrongs:
    for name in _own(config):
        if name.startswith("all-"):
            wrong = "has a name of the MIG manager's own"
            yield Wrong(("sharing", "layouts", name), wrong, got=show(name))


@rule("rke2.layout-ambiguous", each=["pools"])
def names_of_the_manager_mean_one_thing(config: Rke2Config) -> Wrongs:
    meant: dict[str, tuple[str, object]] = {}
    for number, _, gpu, name in _cut_pools(config) if _own(config) else ():
        slices = mig_layout.named(gpu.product, name)
        if name in _own(config) or not slices:
            continue
        product, others = meant.setdefault(name, (gpu.product, slices))
        if others != slices:
            wrong = f"is another cut than on {product}, and all nodes share one configuration"
            yield Wrong(("pools", number, "mig"), wrong)


@rule("rke2.mig-profiles-mixed", each=["pools"])
def strategy_single_has_one_profile(config: Rke2Config) -> Wrongs:
    if not isinstance(config.sharing, Mig) or config.sharing.strategy is not MigStrategy.SINGLE:
        return
    for pool in gpu_pools(config):
        if needs_mixed(config, pool):
            wrong = f"cannot name pool {pool.name}'s GPUs: {pool.mig} has several profiles, or whole GPUs"
            yield Wrong("sharing.strategy", wrong)


@rule("rke2.layout-unused", each=["pools"], level=Level.WARN)
def layouts_are_used(config: Rke2Config) -> Wrongs:
    if not isinstance(config.sharing, Mig):
        return
    used = {pool.mig for pool in config.pools}
    for name in config.sharing.layouts:
        if name not in used:
            path, remedy = (
                ("sharing", "layouts", name),
                "write it as the mig of a pool, or remove it",
            )
            yield Wrong(path, "is named by no pool", remedy, show(name))
    if used == {None}:
        wrong = "is mig, and no pool names a layout"
        yield Wrong("sharing.kind", wrong, "write pools[].mig, or sharing: {kind: none}")


@rule("rke2.mig-manager-system", each=["pools"])
def the_mig_manager_runs(config: Rke2Config) -> Wrongs:
    old = operator_major(config.operator.version) == "25.3"
    if old or not isinstance(config.sharing, Mig) or not isinstance(config.driver, HostDriver):
        return
    for number, pool in enumerate(config.pools):
        if layout_name(config, pool) is not None and system(config, pool) is OperatingSystem.RHEL_8:
            own = ("pools", number) if pool.operating_system is not None else ()
            wrong = f"has a GLIBC too old for the MIG manager with the host's driver, in pool {pool.name}"
            yield Wrong((*own, "operating-system"), wrong)


@rule("rke2.mig-mixed-driver", "pools")
def mixed_pods_are_scheduled(config: Rke2Config, pool: Pool) -> Wrongs:
    if isinstance(config.driver, PrecompiledDriver):
        return
    fault = rke2_matrix.matrix().known_faults["mixed-mig-pending"]
    version = driver_version(config, pool.driver)
    mixed = len({cut is None for cut in cuts(config, pool)}) > 1
    if mixed and release(fault.first) <= release(version) <= release(fault.last):
        wrong = f"has whole GPUs beside slices, and with driver {version} {fault.what}"
        remedy = f"choose a driver outside of {fault.first} to {fault.last}, or cut all GPUs"
        yield Wrong("mig", wrong, remedy)


@rule("rke2.shared-pool", each=["pools"])
def shared_pools_have_gpus(config: Rke2Config) -> Wrongs:
    sharing = config.sharing
    if not isinstance(sharing, TimeSlicing | Mps):
        return
    names = [pool.name for pool in gpu_pools(config)]
    for number, name in enumerate(sharing.pools or ()):
        if name not in names:
            remedy = f"write one of {', '.join(names) or 'those with GPUs'}"
            yield Wrong(("sharing", "pools", number), "is no pool with GPUs", remedy)
    if sharing.pools == ():
        yield Wrong("sharing.pools", "is empty", "name pools, or remove it for all")


@rule("rke2.mps-gpu-too-old", "pools")
def mps_needs_volta(config: Rke2Config, pool: Pool) -> Wrongs:
    if not isinstance(config.sharing, Mps) or not is_shared(config, pool):
        return
    generation = architecture(pool)
    if generation.is_before(Architecture.VOLTA):
        wrong = f"is of {generation}, which cannot keep MPS clients within their share of memory"
        yield Wrong("gpu.product", wrong)


@rule("rke2.sharing-isolates-nothing", "sharing", kind=Mps, level=Level.WARN)
def sharing_isolates_nothing(_config: Rke2Config, _sharing: Mps) -> Wrongs:
    wrong = "is experimental in the device plugin, and a fault of one client ends all of that GPU"
    yield Wrong("kind", wrong)


@rule("rke2.shares-not-in-metrics", level=Level.WARN)
def shares_are_not_seen_in_metrics(config: Rke2Config) -> Wrongs:
    if isinstance(config.sharing, TimeSlicing | Mps) and config.metrics.kind != "none":
        wrong = "cannot say which pod uses a GPU while several share it: pod and namespace are empty then"
        yield Wrong("metrics.kind", wrong)


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
                wrong = f"is newer than driver {version} of pool {pool.name} runs, which is CUDA {newest}"
                remedy = f"use an image with CUDA {newest}; older images run on newer drivers"
                yield Wrong(path, wrong, remedy)
            elif stated is not None and architecture(pool).is_before(stated.oldest):
                wrong = f"has no code for the {architecture(pool)} GPUs of pool {pool.name}"
                yield Wrong(path, wrong, f"use an image with CUDA {major - 1}")


@rule("rke2.proof-without-metrics")
def the_load_is_seen_by_somebody(config: Rke2Config) -> Wrongs:
    if not isinstance(config.proof, ProofL0 | ProofL1) and isinstance(config.metrics, NoMetrics):
        wrong = f"is none, and proof.level {config.proof.level} asks Prometheus for the load"
        yield Wrong("metrics.kind", wrong)


@rule("rke2.proof-without-exchange")
def there_is_something_to_exchange(config: Rke2Config) -> Wrongs:
    several = any(pool.gpu is not None and pool.gpu.count > 1 for pool in config.pools)
    if isinstance(config.proof, ProofL4) and not several:
        wrong = "measures what GPUs of a node exchange, and every node has one"
        yield Wrong("proof.level", wrong)


@rule("rke2.proof-of-shared-gpus", level=Level.WARN)
def shared_gpus_are_not_judged(config: Rke2Config) -> Wrongs:
    if not isinstance(config.proof, ProofL0) and isinstance(config.sharing, TimeSlicing | Mps):
        wrong = f"judges no rate where GPUs are shared by {config.sharing.kind}"
        yield Wrong("proof.level", wrong)


@rule("rke2.timeout-too-short")
def there_is_time_enough(config: Rke2Config) -> Wrongs:
    ready = config.timeouts.ready_seconds
    if isinstance(config.driver, OperatorDriver) and ready < _DRIVER_BUILD_SECONDS:
        wrong = "is less than a driver container takes to build, up to 20 minutes"
        yield Wrong("timeouts.ready-seconds", wrong, f"write {_DRIVER_BUILD_SECONDS} or more")
    if isinstance(config.sharing, Mig) and ready < (cutting := config.timeouts.mig_seconds):
        wrong = f"is less than mig-seconds, which is {cutting}: nothing is ready before the GPUs are cut"
        yield Wrong("timeouts.ready-seconds", wrong, f"write {cutting} or more")


@rule("rke2.not-in-lab")
def the_lab_can_do_it(config: Rke2Config) -> Wrongs:
    if not isinstance(config.hosts, LabHosts):
        return
    if isinstance(config.metrics, RancherMonitoring):
        remedy = "write kube-prometheus-stack or none"
        yield Wrong("metrics.kind", "has no chart in the lab", remedy)
    if not isinstance(config.proof, ProofL0 | ProofL1):
        wrong = "needs GPUs, and those of the lab are simulated"
        yield Wrong("proof.level", wrong, "write L1 or L0")
