"""Row 41: GPUs are given to several pods at a time as they may be."""

from __future__ import annotations

from collections.abc import Iterable

from gpuclusters.compat import gpu_products
from gpuclusters.config.fault import finding, show
from gpuclusters.config.rke2_cluster import Mps, Rke2Config, TimeSlicing
from gpuclusters.config.rke2_machines import is_shared
from gpuclusters.config.rules.rule import rule
from gpuclusters.core.finding import Finding, Level


@rule(41, "rke2.shared-pool", each=["pools"])
def shared_pools_have_gpus(config: Rke2Config) -> Iterable[Finding]:
    sharing = config.sharing
    if not isinstance(sharing, TimeSlicing | Mps):
        return
    pools = {pool.name: pool for pool in config.pools}
    for number, name in enumerate(sharing.pools or ()):
        if name not in pools or pools[name].gpu is None:
            yield finding(
                ("sharing", "pools", number),
                "is no pool with GPUs",
                show(name),
                f"write one of {', '.join(n for n, pool in pools.items() if pool.gpu) or 'those with GPUs'}",
            )
    if sharing.pools == ():
        yield finding(("sharing", "pools"), "is empty", "[]", "name pools, or remove it for all")


@rule(41, "rke2.mps-gpu-too-old", each=["pools"])
def mps_needs_volta(config: Rke2Config) -> Iterable[Finding]:
    if not isinstance(config.sharing, Mps):
        return
    for number, pool in enumerate(config.pools):
        if pool.gpu is None or not is_shared(config, pool):
            continue
        generation = gpu_products.product(pool.gpu.product).architecture
        if generation.is_before(gpu_products.Architecture.VOLTA):
            yield finding(
                ("pools", number, "gpu", "product"),
                f"is of {generation}, which cannot keep MPS clients within their share of memory",
                show(pool.gpu.product),
                "leave this pool out of sharing.pools, or write kind: time-slicing",
            )


@rule(41, "rke2.sharing-isolates-nothing", level=Level.WARN)
def sharing_isolates_nothing(config: Rke2Config) -> Iterable[Finding]:
    if isinstance(config.sharing, Mps):
        yield finding(
            ("sharing", "kind"),
            "is experimental in the device plugin, and a fault of one client ends all of that GPU",
            '"mps"',
            "write mig where tenants must not harm each other",
        )


@rule(41, "rke2.shares-not-in-metrics", level=Level.WARN)
def shares_are_not_seen_in_metrics(config: Rke2Config) -> Iterable[Finding]:
    if isinstance(config.sharing, TimeSlicing | Mps) and config.metrics.kind != "none":
        yield finding(
            ("metrics", "kind"),
            "cannot say which pod uses a GPU while several share it: pod and namespace are empty then",
            show(config.metrics.kind),
            "watch the GPU alone, or use MIG, whose slices are seen apart",
        )
