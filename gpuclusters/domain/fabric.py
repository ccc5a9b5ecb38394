"""NVSwitch partitions of an HGX board: the table, a layout, and which partitions must be active.

A partition is the unit of allocation: one VM gets all GPUs of one active partition.
The tables below are for planning and validation only. What a board really offers is asked of its
fabric manager at run time, and a difference is an error, never a guess.
Source: NVIDIA Fabric Manager User Guide; HGX Shared NVSwitch passthrough guide WP-12736-002.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Baseboard(StrEnum):
    """An NVSwitch baseboard with eight GPUs."""

    HGX_H100 = "hgx-h100"
    HGX_H200 = "hgx-h200"
    HGX_B200 = "hgx-b200"


@dataclass(frozen=True, slots=True)
class Partition:
    """A set of GPUs that the fabric manager can connect, named by its number in the table.

    `modules` are physical ids: the GPU's module number on the baseboard, 1 to 8. This is not the
    order on the PCI bus.
    """

    id: int
    modules: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many GPUs the partition has."""
        return len(self.modules)


class LayoutError(ValueError):
    """A layout that the partition table cannot give."""


@dataclass(frozen=True, slots=True)
class PartitionTable:
    """All partitions that a baseboard offers."""

    baseboard: Baseboard
    partitions: tuple[Partition, ...]

    def partition(self, partition_id: int) -> Partition:
        """The partition with this number; `LayoutError` if the table has none."""
        for partition in self.partitions:
            if partition.id == partition_id:
                return partition
        ids = [p.id for p in self.partitions]
        raise LayoutError(
            f"{self.baseboard} has no partition {partition_id}; "
            f"its ids are {min(ids)} to {max(ids)}"
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes on offer, smallest first."""
        return tuple(sorted({p.size for p in self.partitions}))


def _table(baseboard: Baseboard, first_id: int, pairs: Sequence[tuple[int, int]]) -> PartitionTable:
    groups: list[tuple[int, ...]] = [tuple(range(1, 9)), (1, 2, 3, 4), (5, 6, 7, 8)]
    groups += pairs
    groups += [(module,) for module in range(1, 9)]
    return PartitionTable(
        baseboard, tuple(Partition(first_id + n, modules) for n, modules in enumerate(groups))
    )


# Pairs differ: on Hopper 1 goes with 3, on Blackwell 1 goes with 2. So do the numbers.
_HOPPER_PAIRS = ((1, 3), (2, 4), (5, 7), (6, 8))
_BLACKWELL_PAIRS = ((1, 2), (3, 4), (5, 6), (7, 8))

TABLES: Mapping[Baseboard, PartitionTable] = {
    Baseboard.HGX_H100: _table(Baseboard.HGX_H100, 0, _HOPPER_PAIRS),
    Baseboard.HGX_H200: _table(Baseboard.HGX_H200, 0, _HOPPER_PAIRS),
    Baseboard.HGX_B200: _table(Baseboard.HGX_B200, 1, _BLACKWELL_PAIRS),
}


def plan_layout(table: PartitionTable, layout: Sequence[int]) -> tuple[Partition, ...]:
    """The partitions that cut a board into pieces of these sizes, each GPU in exactly one.

    Larger pieces are placed first, each on the lowest modules still free, so that the same
    layout always gives the same partitions.

    Raises:
        LayoutError: a size is not on offer, or the sizes do not use each GPU exactly once.
    """
    unknown = sorted({size for size in layout if size not in table.sizes})
    if unknown:
        raise LayoutError(
            f"{table.baseboard} has no partitions of {', '.join(map(str, unknown))} GPUs; "
            f"its sizes are {', '.join(map(str, table.sizes))}"
        )
    total = max(table.sizes)
    if sum(layout) != total:
        raise LayoutError(f"the sizes must add up to {total} GPUs (they add up to {sum(layout)})")
    free = set(range(1, total + 1))
    chosen: list[Partition] = []
    for size in sorted(layout, reverse=True):
        fitting = [p for p in table.partitions if p.size == size and free.issuperset(p.modules)]
        if not fitting:
            raise LayoutError(
                f"no partition of {size} GPUs is left on {table.baseboard} beside "
                f"{', '.join(str(p.id) for p in chosen)}"
            )
        partition = min(fitting, key=lambda p: (p.modules, p.id))
        chosen.append(partition)
        free -= set(partition.modules)
    return tuple(sorted(chosen, key=lambda p: p.id))
