"""The GPUs of an `rke2` cluster as its nodes offer them: whole, cut, or to several pods at a time. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from gpuclusters.config.rke2_cluster import Rke2Config
from gpuclusters.config.rke2_cluster_machines import gpu_pools
from gpuclusters.config.rke2_cluster_pools import Pool
from gpuclusters.config.rke2_cluster_sharing import Mig, MigStrategy, Mps, TimeSlicing
from gpuclusters.gpu_operator import mig_layout
from gpuclusters.gpu_operator.mig_layout import DISABLED, ENABLED, Slices

GPU = "nvidia.com/gpu"
SHARED = "nvidia.com/gpu.shared"
SHARED_KEY = "shared"
WHOLE_KEY = "whole"
"""Keys of the device plugin's configuration: which one a node uses is its label."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MigPlan:
    """The layout of one node."""

    layout: str
    expected: Mapping[str, int]
    """By resource, what the node offers then."""


def layout_name(config: Rke2Config, pool: Pool) -> str | None:
    """The MIG layout of a pool; None if its GPUs cannot be cut, or nobody cuts any.

    A pool that could be cut and names no layout is not cut, also if it once was.
    """
    if not isinstance(config.sharing, Mig) or pool.gpu is None:
        return None
    if pool.mig is not None:
        return pool.mig
    return None if mig_layout.family(pool.gpu.product) is None else DISABLED


def cuts(config: Rke2Config, pool: Pool) -> tuple[Slices | None, ...]:
    """How each GPU of a machine of the pool is cut, by index; None is a GPU that is not.

    A layout that does not exist, or a GPU that it leaves out, counts as not cut; the rules say so.
    """
    if pool.gpu is None:
        return ()
    name = layout_name(config, pool)
    whole: tuple[Slices | None, ...] = (None,) * pool.gpu.count
    if name is None or name == DISABLED or not isinstance(config.sharing, Mig):
        return whole
    own = config.sharing.layouts.get(name)
    if own is None:
        slices = mig_layout.named(pool.gpu.product, name)
        return whole if slices is None else (slices,) * pool.gpu.count
    found = list(whole)
    for entry in own:
        for index in range(pool.gpu.count) if entry.devices is None else entry.devices:
            if index < len(found):
                found[index] = entry.profiles or None
    return tuple(found)


def needs_mixed(config: Rke2Config, pool: Pool) -> bool:
    """Whether strategy single cannot name this pool's GPUs: several profiles, or some cut and some not."""
    kinds = {None if cut is None else frozenset(cut) for cut in cuts(config, pool)}
    return len(kinds) > 1 or any(len(kind) > 1 for kind in kinds if kind is not None)


def mig_strategy(config: Rke2Config) -> MigStrategy:
    """How slices are named, in the whole cluster."""
    if not isinstance(config.sharing, Mig):
        return MigStrategy.SINGLE
    if config.sharing.strategy is not None:
        return config.sharing.strategy
    mixed = any(needs_mixed(config, pool) for pool in gpu_pools(config))
    return MigStrategy.MIXED if mixed else MigStrategy.SINGLE


def resource(profile: str) -> str:
    """What the device plugin calls slices of a profile with strategy mixed."""
    return f"nvidia.com/mig-{profile.replace('+', '.')}"


def pool_resources(config: Rke2Config, pool: Pool) -> Mapping[str, int]:
    """What every node of a pool has to offer, by resource; empty without GPUs."""
    if pool.gpu is None:
        return {}
    sharing = config.sharing
    if isinstance(sharing, TimeSlicing | Mps):
        if not is_shared(config, pool):
            return {GPU: pool.gpu.count}
        return {SHARED if sharing.rename else GPU: pool.gpu.count * sharing.replicas}
    found: Counter[str] = Counter({GPU: 0})
    mixed = mig_strategy(config) is MigStrategy.MIXED
    for cut in cuts(config, pool):
        if cut is None:
            found[GPU] += 1
            continue
        for profile, count in cut.items():
            found[resource(profile) if mixed else GPU] += count
    # A node whose GPUs are all cut offers no whole one, and that is worth waiting for too.
    return dict(found) if mixed else {GPU: found[GPU]}


def expected(config: Rke2Config) -> Mapping[str, Mapping[str, int]]:
    """What every node with GPUs has to offer, by node and resource."""
    return {name: pool_resources(config, pool) for pool in gpu_pools(config) for name in pool.nodes}


def mig_nodes(config: Rke2Config) -> Mapping[str, MigPlan]:
    """The layout of every node that can be cut; none if nobody cuts any."""
    return {
        name: MigPlan(layout=layout, expected=pool_resources(config, pool))
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
        "resources": [{"name": GPU, "replicas": sharing.replicas}],
    }
    if isinstance(sharing, TimeSlicing):
        shared["failRequestsGreaterThanOne"] = sharing.refuse_more_than_one
    kind = "timeSlicing" if isinstance(sharing, TimeSlicing) else "mps"
    return {
        SHARED_KEY: yaml.safe_dump({"version": "v1", "sharing": {kind: shared}}),
        WHOLE_KEY: yaml.safe_dump({"version": "v1"}),
    }


def mig_config(config: Rke2Config) -> str | None:
    """The MIG manager's configuration; None if its own has every layout that is used.

    A configuration of ours replaces that which the manager makes from what each node's driver says, so it
    has to hold every layout that any node is given, the manager's own names too.
    """
    if not isinstance(config.sharing, Mig) or not config.sharing.layouts:
        return None
    layouts: dict[str, Any] = {
        DISABLED: [{"devices": "all", "mig-enabled": False}],
        ENABLED: [{"devices": "all", "mig-enabled": True, "mig-devices": {}}],
    }
    for pool in gpu_pools(config):
        name = layout_name(config, pool)
        slices = (
            None if name is None or pool.gpu is None else mig_layout.named(pool.gpu.product, name)
        )
        if name is not None and slices:
            layouts[name] = [_entry(None, slices)]
    for name, entries in config.sharing.layouts.items():
        layouts[name] = [_entry(entry.devices, entry.profiles) for entry in entries]
    return yaml.safe_dump({"version": "v1", "mig-configs": layouts}, sort_keys=False)


def _entry(devices: tuple[int, ...] | None, profiles: Slices) -> dict[str, Any]:
    where: Any = "all" if devices is None else list(devices)
    if not profiles:
        return {"devices": where, "mig-enabled": False}
    return {"devices": where, "mig-enabled": True, "mig-devices": dict(profiles)}
