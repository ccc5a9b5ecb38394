"""What the cluster has to give, counted in partitions; nothing about who has the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from caas.settings import Host
from gpuclusters.lease.model import Phase, lease_name
from gpuclusters.lease.nodes import Outage
from gpuclusters.lease.placement import BoardView


@dataclass(frozen=True, slots=True)
class SizeCapacity:
    """Partitions of one size. Those of different sizes overlap, so sizes do not add up."""

    gpus: int
    total: int
    free: int
    """A request of this size that comes first gets one at once."""
    unschedulable: int
    """Would be free, but their machine is out of service, or away."""
    quarantined: int
    """At least one of their GPUs is out of service."""


@dataclass(frozen=True, slots=True)
class GpuCapacity:
    """GPUs by what can be had of them."""

    total: int
    free: int
    unschedulable: int
    """Would be free, but their machine is out of service, or away."""
    unschedulable_by: Mapping[str, int]
    """The same by what is the matter with the machine, as far as there are any."""
    recycling: int
    """Between two tenants: reset, cleared, verified."""
    quarantined: int


_RECYCLING = frozenset({Phase.RELEASING, Phase.RESETTING, Phase.SCRUBBING, Phase.VERIFYING})


def boards(hosts: Sequence[Host], phases: Mapping[str, str]) -> list[BoardView]:
    """The boards as they are; a GPU whose lease is not there yet is neither free nor lost."""
    views = []
    for host in hosts:
        of = {gpu.module: phases.get(lease_name(host.name, gpu.module)) for gpu in host.gpus}
        views.append(
            BoardView(
                host=host.name,
                offered=host.offered,
                free=frozenset(module for module, phase in of.items() if phase == Phase.FREE),
                lost=frozenset(
                    module for module, phase in of.items() if phase == Phase.QUARANTINED
                ),
            )
        )
    return views


def by_size(views: Iterable[BoardView], away: Container[str]) -> list[SizeCapacity]:
    """For each size on offer, smallest first.

    Args:
        views: the boards.
        away: machines on which nothing new is placed.
    """
    counts: dict[int, list[int]] = {}
    for view in views:
        for partition in view.offered:
            count = counts.setdefault(partition.size, [0, 0, 0, 0])
            count[0] += 1
            count[2 if view.host in away else 1] += view.has_free(partition)
            count[3] += not view.lost.isdisjoint(partition.modules)
    return [SizeCapacity(size, *counts[size]) for size in sorted(counts)]


def of_gpus(
    hosts: Sequence[Host], phases: Mapping[str, str], away: Mapping[str, Outage]
) -> GpuCapacity:
    """All GPUs of the cluster.

    Args:
        hosts: the machines.
        phases: by name of the lease.
        away: machines on which nothing new is placed, and why.
    """
    stated = [
        (away.get(host.name), phases.get(lease_name(host.name, gpu.module)))
        for host in hosts
        for gpu in host.gpus
    ]
    free = [outage for outage, phase in stated if phase == Phase.FREE]
    why = Counter(outage.why.value for outage in free if outage is not None)
    return GpuCapacity(
        total=len(stated),
        free=free.count(None),
        unschedulable=why.total(),
        unschedulable_by=dict(sorted(why.items())),
        recycling=sum(phase in _RECYCLING for _, phase in stated),
        quarantined=sum(phase == Phase.QUARANTINED for _, phase in stated),
    )


def phases_of(leases: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Phase by name of the lease; those that have none yet are left out."""
    stated = ((x["metadata"]["name"], (x.get("status") or {}).get("phase")) for x in leases)
    return {name: phase for name, phase in stated if phase}
