"""Row 41: GPUs are given to several pods at a time as they may be."""

from __future__ import annotations

from collections.abc import Iterable

from gpuclusters.config.fault import Flaw, show
from gpuclusters.config.rke2_cluster import Rke2Config
from gpuclusters.config.rke2_cluster_gpus import is_shared
from gpuclusters.config.rke2_cluster_sharing import Mps, TimeSlicing
from gpuclusters.config.rules.rule import Severity, rule
from gpuclusters.domain import gpu_products


@rule(41, needs=["sharing"], each=["pools"])
def shared_pools_have_gpus(config: Rke2Config) -> Iterable[Flaw]:
    """The pools that are shared are there, with GPUs."""
    sharing = config.sharing
    if not isinstance(sharing, TimeSlicing | Mps):
        return
    pools = {pool.name: pool for pool in config.pools}
    for number, name in enumerate(sharing.pools or ()):
        if name not in pools or pools[name].gpu is None:
            yield Flaw(
                ("sharing", "pools", number),
                "is no pool with GPUs",
                show(name),
                f"write one of {', '.join(n for n, pool in pools.items() if pool.gpu) or 'those with GPUs'}",
            )
    if sharing.pools == ():
        yield Flaw(("sharing", "pools"), "is empty", "[]", "name pools, or remove it for all")


@rule(41, needs=["sharing"], each=["pools"])
def mps_needs_volta(config: Rke2Config) -> Iterable[Flaw]:
    """The MPS of the device plugin sets limits that GPUs have from Volta on."""
    if not isinstance(config.sharing, Mps):
        return
    for number, pool in enumerate(config.pools):
        if pool.gpu is None or not is_shared(config, pool):
            continue
        generation = gpu_products.product(pool.gpu.product).architecture
        if generation.is_before(gpu_products.Architecture.VOLTA):
            yield Flaw(
                ("pools", number, "gpu", "product"),
                f"is of {generation}, which cannot keep MPS clients within their share of memory",
                show(pool.gpu.product),
                "leave this pool out of sharing.pools, or write kind: time-slicing",
            )


@rule(41, needs=["sharing"], severity=Severity.WARNING)
def sharing_isolates_nothing(config: Rke2Config) -> Iterable[Flaw]:
    """MPS is experimental, and more than ten shares of a GPU are more than its memory is good for."""
    if isinstance(config.sharing, Mps):
        yield Flaw(
            ("sharing", "kind"),
            "is experimental in the device plugin, and a fault of one client ends all of that GPU",
            '"mps"',
            "write mig where tenants must not harm each other",
        )


@rule(41, needs=["sharing", "metrics"], severity=Severity.WARNING)
def shares_are_not_seen_in_metrics(config: Rke2Config) -> Iterable[Flaw]:
    """The exporter cannot say which pod uses a GPU that several share."""
    if isinstance(config.sharing, TimeSlicing | Mps) and config.metrics.kind != "none":
        yield Flaw(
            ("metrics", "kind"),
            "cannot say which pod uses a GPU while several share it: pod and namespace are empty then",
            show(config.metrics.kind),
            "watch the GPU alone, or use MIG, whose slices are seen apart",
        )


RULES = (
    shared_pools_have_gpus,
    mps_needs_volta,
    sharing_isolates_nothing,
    shares_are_not_seen_in_metrics,
)
