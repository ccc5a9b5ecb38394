"""Rows 40, 41 and 44: GPUs are cut and shared as they can be, and what is to be proven can be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuclusters.compat import gpu_products, rke2_matrix
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
    NotShared,
    Pool,
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
from gpuclusters.config.rules.rule import Wrong, rule
from gpuclusters.core.finding import Level, Path
from gpuclusters.gpu_operator import mig_layout

Named = tuple[int, Pool, str, str]
"""Number of a pool, the pool, its product, its layout."""


def _cut_pools(config: Rke2Config) -> Iterator[Named]:
    for number, pool in enumerate(config.pools):
        if pool.gpu is not None and pool.mig is not None and isinstance(config.sharing, Mig):
            yield number, pool, pool.gpu.product, pool.mig


@rule(40, "rke2.layout-without-mig", each=["pools"])
def layouts_are_for_mig(config: Rke2Config) -> Iterable[Wrong]:
    for number, pool in enumerate(config.pools):
        if pool.mig is not None and not isinstance(config.sharing, Mig):
            yield Wrong(
                ("pools", number, "mig"),
                f"is stated with sharing.kind: {config.sharing.kind}",
                "write sharing: {kind: mig}, or remove it: a GPU is cut, or shared whole, not both",
                show(pool.mig),
            )


@rule(40, "rke2.layout-unknown", each=["pools"])
def layouts_exist(config: Rke2Config) -> Iterable[Wrong]:
    for number, pool, product, name in _cut_pools(config):
        path: Path = ("pools", number, "mig")
        if mig_layout.family(product) is None:
            if name != mig_layout.DISABLED:
                yield Wrong(
                    path, f"cannot be had: {product} has no MIG", "remove it", show(pool.mig)
                )
        elif name not in _own(config) and mig_layout.named(product, name) is None:
            known = ", ".join((*_own(config), *mig_layout.names(product)))
            yield Wrong(
                path,
                f"is neither under sharing.layouts nor a layout of {product}",
                f"write one of {known}",
                show(name),
            )


def _own(config: Rke2Config) -> dict[str, tuple[MigDevices, ...]]:
    return config.sharing.layouts if isinstance(config.sharing, Mig) else {}


@rule(40, "rke2.layout-does-not-fit", each=["pools"])
def slices_fit_on_a_gpu(config: Rke2Config) -> Iterable[Wrong]:
    said: set[tuple[str, int, str]] = set()
    for _, pool, product, name in _cut_pools(config):
        for position, entry in enumerate(_own(config).get(name, ())):
            if not entry.profiles or mig_layout.family(product) is None:
                continue
            problem = mig_layout.problem(product, entry.profiles)
            if problem is not None and (name, position, product) not in said:
                said.add((name, position, product))
                yield Wrong(
                    ("sharing", "layouts", name, position, "profiles"),
                    f"cannot be had on the GPUs of pool {pool.name}: {problem}",
                    "write profiles and counts that fit; docs/rke2.md has those of each product",
                    show(", ".join(f"{profile}: {n}" for profile, n in entry.profiles.items())),
                )


@rule(40, "rke2.layout-gpu-twice", each=["pools"])
def layouts_name_every_gpu_once(config: Rke2Config) -> Iterable[Wrong]:
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
                yield Wrong(
                    path,
                    what.format(pool=pool.name),
                    f"name each of 0 to {count - 1} once; leave devices out for all",
                    show(sorted(set(indexes))),
                )


@rule(40, "rke2.layout-name-reserved")
def layouts_have_names_of_their_own(config: Rke2Config) -> Iterable[Wrong]:
    for name in _own(config):
        if name.startswith("all-"):
            yield Wrong(
                ("sharing", "layouts", name),
                "has a name of the MIG manager's own",
                "write a name that does not begin with all-",
                show(name),
            )


@rule(40, "rke2.layout-ambiguous", each=["pools"])
def names_of_the_manager_mean_one_thing(config: Rke2Config) -> Iterable[Wrong]:
    if not _own(config):
        return
    meant: dict[str, tuple[str, object]] = {}
    for number, _, product, name in _cut_pools(config):
        slices = mig_layout.named(product, name)
        if name in _own(config) or not slices:
            continue
        if name in meant and meant[name][1] != slices:
            yield Wrong(
                ("pools", number, "mig"),
                f"would be another cut on {product} than on {meant[name][0]}, and with sharing.layouts all "
                "nodes have one configuration",
                "write a layout of your own for one of these pools",
                show(name),
            )
        meant.setdefault(name, (product, slices))


@rule(40, "rke2.mig-profiles-mixed", each=["pools"])
def strategy_single_has_one_profile(config: Rke2Config) -> Iterable[Wrong]:
    if not isinstance(config.sharing, Mig) or config.sharing.strategy is not MigStrategy.SINGLE:
        return
    for pool in config.pools:
        if pool.gpu is not None and needs_mixed(config, pool):
            yield Wrong(
                "sharing.strategy",
                f"cannot name the GPUs of pool {pool.name}: its layout {pool.mig} has several profiles, or "
                "whole GPUs too",
                "write mixed, or remove it; pods then ask for nvidia.com/mig-<profile>",
            )


@rule(40, "rke2.layout-unused", each=["pools"], level=Level.WARN)
def layouts_are_used(config: Rke2Config) -> Iterable[Wrong]:
    if not isinstance(config.sharing, Mig):
        return
    used = {pool.mig for pool in config.pools}
    for name in config.sharing.layouts:
        if name not in used:
            yield Wrong(
                ("sharing", "layouts", name),
                "is named by no pool",
                "write it as the mig of a pool, or remove it",
                show(name),
            )
    if used == {None}:
        yield Wrong(
            "sharing.kind",
            "is mig, and no pool names a layout",
            "write pools[].mig, or sharing: {kind: none}",
        )


@rule(40, "rke2.mig-manager-system", each=["pools"])
def the_mig_manager_runs(config: Rke2Config) -> Iterable[Wrong]:
    if not isinstance(config.sharing, Mig) or not isinstance(config.driver, HostDriver):
        return
    if operator_major(config.operator.version) == "25.3":
        return
    for number, pool in enumerate(config.pools):
        if layout_name(config, pool) is not None and system(config, pool) is OperatingSystem.RHEL_8:
            own = pool.operating_system is not None
            yield Wrong(
                ("pools", number, "operating-system") if own else ("operating-system",),
                f"has a GLIBC too old for the MIG manager with the host's driver, in pool {pool.name}",
                "write driver.source: operator, or use RHEL 9",
            )


@rule(40, "rke2.mig-mixed-driver", each=["pools"])
def mixed_pods_are_scheduled(config: Rke2Config) -> Iterable[Wrong]:
    fault = rke2_matrix.matrix().known_faults["mixed-mig-pending"]
    if isinstance(config.driver, PrecompiledDriver):
        return
    for number, pool in enumerate(config.pools):
        if pool.gpu is None or not any(cut is not None for cut in cuts(config, pool)):
            continue
        version = driver_version(config, pool.driver)
        kinds = {cut is None for cut in cuts(config, pool)}
        if len(kinds) > 1 and release(fault.first) <= release(version) <= release(fault.last):
            yield Wrong(
                ("pools", number, "mig"),
                f"has whole GPUs beside slices, and with driver {version} {fault.what}",
                "choose a driver outside of "
                f"{fault.first} to {fault.last}, or cut all GPUs of the node",
                show(pool.mig),
            )


@rule(41, "rke2.shared-pool", each=["pools"])
def shared_pools_have_gpus(config: Rke2Config) -> Iterable[Wrong]:
    sharing = config.sharing
    if not isinstance(sharing, TimeSlicing | Mps):
        return
    pools = {pool.name: pool for pool in config.pools}
    for number, name in enumerate(sharing.pools or ()):
        if name not in pools or pools[name].gpu is None:
            yield Wrong(
                ("sharing", "pools", number),
                "is no pool with GPUs",
                f"write one of {', '.join(n for n, pool in pools.items() if pool.gpu) or 'those with GPUs'}",
                show(name),
            )
    if sharing.pools == ():
        yield Wrong("sharing.pools", "is empty", "name pools, or remove it for all")


@rule(41, "rke2.mps-gpu-too-old", each=["pools"])
def mps_needs_volta(config: Rke2Config) -> Iterable[Wrong]:
    if not isinstance(config.sharing, Mps):
        return
    for number, pool in enumerate(config.pools):
        if pool.gpu is None or not is_shared(config, pool):
            continue
        generation = gpu_products.product(pool.gpu.product).architecture
        if generation.is_before(gpu_products.Architecture.VOLTA):
            yield Wrong(
                ("pools", number, "gpu", "product"),
                f"is of {generation}, which cannot keep MPS clients within their share of memory",
                "leave this pool out of sharing.pools, or write kind: time-slicing",
                show(pool.gpu.product),
            )


@rule(41, "rke2.sharing-isolates-nothing", level=Level.WARN)
def sharing_isolates_nothing(config: Rke2Config) -> Iterable[Wrong]:
    if isinstance(config.sharing, Mps):
        yield Wrong(
            "sharing.kind",
            "is experimental in the device plugin, and a fault of one client ends all of that GPU",
            "write mig where tenants must not harm each other",
        )


@rule(41, "rke2.shares-not-in-metrics", level=Level.WARN)
def shares_are_not_seen_in_metrics(config: Rke2Config) -> Iterable[Wrong]:
    if isinstance(config.sharing, TimeSlicing | Mps) and config.metrics.kind != "none":
        yield Wrong(
            "metrics.kind",
            "cannot say which pod uses a GPU while several share it: pod and namespace are empty then",
            "watch the GPU alone, or use MIG, whose slices are seen apart",
        )


_DRIVER_BUILD_SECONDS = 1800


@rule(44, "rke2.proof-cuda")
def the_proofs_cuda_runs_on_the_driver(config: Rke2Config) -> Iterable[Wrong]:
    for test in ("matmul", "load"):
        part = getattr(config.proof, test, None)
        if part is None:
            continue
        path: Path = ("proof", test, "cuda-major")
        for pool in gpu_pools(config):
            version = driver_version(config, pool.driver)
            newest = rke2_matrix.newest_cuda(branch_of(version))
            stated = rke2_matrix.matrix().cuda.get(part.cuda_major)
            if newest is not None and part.cuda_major > newest:
                yield Wrong(
                    path,
                    f"is newer than driver {version} of pool {pool.name} runs, which is CUDA {newest}",
                    f"use an image with CUDA {newest}; older images run on newer drivers",
                    show(part.cuda_major),
                )
            elif stated is not None and architecture(pool).is_before(stated.oldest):
                yield Wrong(
                    path,
                    f"has no code for the {architecture(pool)} GPUs of pool {pool.name}",
                    f"use an image with CUDA {part.cuda_major - 1}",
                    show(part.cuda_major),
                )


@rule(44, "rke2.proof-without-metrics")
def the_load_is_seen_by_somebody(config: Rke2Config) -> Iterable[Wrong]:
    if not isinstance(config.proof, ProofL0 | ProofL1) and isinstance(config.metrics, NoMetrics):
        yield Wrong(
            "metrics.kind",
            f"is none, and proof.level {config.proof.level} asks Prometheus whether it saw the load",
            "write metrics: {kind: kube-prometheus-stack, …} or rancher, or proof.level: L1",
        )


@rule(44, "rke2.proof-without-exchange")
def there_is_something_to_exchange(config: Rke2Config) -> Iterable[Wrong]:
    if not isinstance(config.proof, ProofL4):
        return
    if not any(pool.gpu is not None and pool.gpu.count > 1 for pool in config.pools):
        yield Wrong(
            "proof.level",
            "measures what GPUs of a node exchange, and every node has one",
            "write L3",
            '"L4"',
        )


@rule(44, "rke2.proof-of-shared-gpus", level=Level.WARN)
def shared_gpus_are_not_judged(config: Rke2Config) -> Iterable[Wrong]:
    if not isinstance(config.proof, ProofL0) and config.sharing.kind in ("time-slicing", "mps"):
        yield Wrong(
            "proof.level",
            f"judges no rate where GPUs are shared by {config.sharing.kind}",
            "prove the GPUs before you share them, or write L0",
        )


@rule(44, "rke2.timeout-too-short")
def there_is_time_enough(config: Rke2Config) -> Iterable[Wrong]:
    ready = config.timeouts.ready_seconds
    builds = config.driver.source == "operator"
    if builds and ready < _DRIVER_BUILD_SECONDS:
        yield Wrong(
            "timeouts.ready-seconds",
            "is less than a driver container takes, which builds for up to 20 minutes on every node",
            f"write {_DRIVER_BUILD_SECONDS} or more",
        )
    slowest = 0 if isinstance(config.sharing, NotShared) else config.timeouts.mig_seconds
    if config.sharing.kind == "mig" and ready < slowest:
        yield Wrong(
            "timeouts.ready-seconds",
            f"is less than mig-seconds, which is {slowest}: nothing is ready before the GPUs are cut",
            f"write {slowest} or more",
        )


@rule(44, "rke2.not-in-lab")
def the_lab_can_do_it(config: Rke2Config) -> Iterable[Wrong]:
    if not isinstance(config.hosts, LabHosts):
        return
    if isinstance(config.metrics, RancherMonitoring):
        yield Wrong(
            "metrics.kind", "has no chart in the lab", "write kube-prometheus-stack or none"
        )
    if not isinstance(config.proof, ProofL0 | ProofL1):
        yield Wrong(
            "proof.level", "needs GPUs, and those of the lab are simulated", "write L1 or L0"
        )
