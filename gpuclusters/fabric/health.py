"""What a board cannot do at the moment: partitions it left out, GPUs with fewer NVLinks. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from gpuclusters.domain.fabric import PartitionTable
from gpuclusters.domain.ports import LivePartition

# `fmpm --get-nvlink-failed-devices` is not asked: on HGX H100 it is always empty, and after a
# restart it is not supported. The links in the list of partitions say more.


def degraded_links(live: Mapping[int, LivePartition]) -> dict[int, tuple[int, int]]:
    """GPUs that have fewer NVLinks than there are: trained and most, by module.

    Partitions of one GPU have none, whatever trained.
    """
    every = [link for partition in live.values() for link in partition.links.items()]
    return dict(sorted((module, link) for module, link in every if link[0] < link[1]))


def without_links(live: Mapping[int, LivePartition], wanted: Collection[int]) -> Iterator[str]:
    """Wanted partitions of several GPUs of which one has no NVLink at all: they could not talk."""
    for partition_id in sorted(wanted):
        partition = live.get(partition_id)
        if partition is None or len(partition.modules) < 2:
            continue
        cut_off = [
            m for m, (available, most) in sorted(partition.links.items()) if most > available == 0
        ]
        if cut_off:
            yield f"partition {partition_id}: GPUs {', '.join(map(str, cut_off))} have no NVLink"


def failed_modules(table: PartitionTable, unsupported: Collection[int]) -> tuple[int, ...]:
    """Modules that explain why partitions are left out: those whose own partition is."""
    singles = {p.id: p.modules[0] for p in table.partitions if p.size == 1}
    return tuple(sorted(singles[i] for i in unsupported if i in singles))


def warnings(
    table: PartitionTable,
    live: Mapping[int, LivePartition],
    unsupported: Mapping[int, tuple[int, ...]],
) -> list[str]:
    """What an operator should know although the step can go on."""
    found: list[str] = []
    if unsupported:
        failed = failed_modules(table, unsupported)
        why = f" because GPUs {', '.join(map(str, failed))} failed" if failed else ""
        found.append(
            f"partitions {', '.join(map(str, sorted(unsupported)))} are not supported at the moment"
            f"{why}; no VM can have them"
        )
    found += [
        f"GPU {module} has {available} of {most} NVLinks: its partitions are slower"
        for module, (available, most) in degraded_links(live).items()
    ]
    return found
