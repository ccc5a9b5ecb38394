"""What a partition table is: numbered sets of GPUs that a fabric manager can connect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

# Limits of the fabric manager's API (nv_fm_types.h).
MOST_PARTITIONS = 64
MOST_MODULES = 16


class Baseboard(StrEnum):
    """An NVSwitch baseboard with eight GPUs."""

    HGX_A100 = "hgx-a100"
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

    @property
    def modules(self) -> tuple[int, ...]:
        """Every GPU that is in some partition, in order."""
        return tuple(sorted({m for p in self.partitions for m in p.modules}))


def table_of(baseboard: Baseboard, partitions: Mapping[int, Sequence[int]]) -> PartitionTable:
    """A board's own table, from its `fmpm -l` or its SHARED_PARTITION_DEFINITION_FILE.

    Args:
        baseboard: whose table it is.
        partitions: module numbers by partition number.

    Raises:
        LayoutError: a table that no fabric manager has.
    """
    if not partitions:
        raise LayoutError("the table has no partitions")
    if len(partitions) > MOST_PARTITIONS:
        raise LayoutError(f"the table has more than {MOST_PARTITIONS} partitions")
    seen: dict[tuple[int, ...], int] = {}
    for number, modules in sorted(partitions.items()):
        own = tuple(sorted(modules))
        if not 0 <= number < MOST_PARTITIONS:
            raise LayoutError(f"partition {number}: numbers are 0 to {MOST_PARTITIONS - 1}")
        if not own:
            raise LayoutError(f"partition {number} has no GPU")
        if len(set(own)) != len(own):
            raise LayoutError(f"partition {number} has a GPU twice")
        if not 1 <= own[0] <= own[-1] <= MOST_MODULES:
            raise LayoutError(f"partition {number}: modules are 1 to {MOST_MODULES}")
        if own in seen:
            raise LayoutError(f"partitions {seen[own]} and {number} have the same GPUs")
        seen[own] = number
    table = tuple(Partition(n, tuple(sorted(m))) for n, m in sorted(partitions.items()))
    return PartitionTable(baseboard, table)
