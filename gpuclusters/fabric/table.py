"""NVSwitch boards: their PCI functions, partitions (`data/fabric_boards.yaml`), cuts into sizes. Pure.

One VM gets all GPUs of one active partition. The tables are for planning: what a board offers is asked of
its fabric manager, and a difference is an error, since tables change with baseboard and release (the pairs
of H100 did, history of guide v1.3).
Source: NVIDIA Fabric Manager User Guide; HGX Shared NVSwitch passthrough guide WP-12736-002.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import TypeVar

from gpuclusters.compat.dated_table import Row, Table

T = TypeVar("T", int, str)
# Limits of the fabric manager's API (nv_fm_types.h).
MOST_PARTITIONS = 64
MOST_MODULES = 16


def repeated(values: Iterable[T]) -> tuple[T, ...]:
    return tuple(value for value, n in Counter(values).items() if n > 1)


@dataclass(frozen=True, slots=True)
class Board:
    """Which functions of a machine go to tenants' VMs and which to the service VM."""

    gpus: Mapping[int, str]
    """PCI address by module number."""
    switches: tuple[str, ...]
    extra_functions: tuple[str, ...]

    @property
    def service_vm(self) -> tuple[str, ...]:
        """The functions of the VM in which the fabric manager runs."""
        return self.switches + self.extra_functions


class Baseboard(StrEnum):
    """An NVSwitch baseboard with eight GPUs."""

    HGX_A100 = "hgx-a100"
    HGX_H100 = "hgx-h100"
    HGX_H200 = "hgx-h200"
    HGX_B200 = "hgx-b200"


class MapSource(StrEnum):
    """Where it is known from which GPU sits in which module."""

    READ = "read"
    """From the GPUs; the configuration has to agree."""
    STATED = "stated"
    """From the configuration alone: for GPUs that cannot be asked without a driver (A100)."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A set of GPUs that the fabric manager can connect."""

    id: int
    modules: tuple[int, ...]
    """Physical ids: module numbers on the baseboard, 1 to 8, not the order on the PCI bus."""

    @property
    def size(self) -> int:
        return len(self.modules)


class LayoutError(ValueError):
    """A layout that the partition table cannot give."""


@dataclass(frozen=True, slots=True)
class PartitionTable:
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


class BoardFacts(Row):
    """What is known of one baseboard."""

    partitions: Mapping[int, tuple[int, ...]] = {}
    """Modules by number; empty where no readable source has them: the machine's own table has to be given."""
    module_map: MapSource = MapSource.READ


class _Boards(Table):
    boards: Mapping[Baseboard, BoardFacts]


def table_of(baseboard: Baseboard, partitions: Mapping[int, Sequence[int]]) -> PartitionTable:
    """A board's own table, module numbers by partition number."""
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
    return PartitionTable(baseboard, tuple(Partition(n, own) for own, n in seen.items()))


BOARDS = _Boards.packaged("fabric_boards").boards
TABLES = {
    board: table_of(board, facts.partitions) for board, facts in BOARDS.items() if facts.partitions
}


def table_for(
    baseboard: Baseboard, own: Mapping[int, Sequence[int]] | None = None
) -> PartitionTable:
    """The table to plan with: the machine's own, module numbers by partition number, or the known one."""
    if own:
        return table_of(baseboard, own)
    known = TABLES.get(baseboard)
    if known is None:
        raise LayoutError(
            f"no source has the partition numbers of {baseboard}; give the board's own table, as "
            "`fmpm -l` prints it on the machine"
        )
    return known


def plan_layout(
    table: PartitionTable,
    layout: Sequence[int],
    *,
    active: Collection[int] = (),
    in_use: Collection[int] = (),
) -> tuple[Partition, ...]:
    """The partitions that cut a board into pieces of these sizes, each GPU in one; else `LayoutError`.

    A change of layout needs `active + wanted - 2 * kept` switches, so the cut that keeps most active
    partitions needs fewest; those `in_use` are kept. Among equals the one on the lowest modules is taken,
    larger partitions first: the same question always has the same answer.
    """
    unknown = sorted({size for size in layout if size not in table.sizes})
    if unknown:
        raise LayoutError(
            f"{table.baseboard} has no partitions of {listed(unknown)} GPUs; "
            f"its sizes are {listed(table.sizes)}"
        )
    total = len(table.modules)
    if sum(layout) != total:
        raise LayoutError(f"the sizes must add up to {total} GPUs (they add up to {sum(layout)})")
    held = [table.partition(i) for i in sorted(set(in_use))]
    chosen = _best(table, layout, frozenset(active), held)
    if chosen is None:
        sizes = listed(sorted(layout, reverse=True))
        if held:
            named = "; ".join(f"{p.id} (GPUs {listed(p.modules)})" for p in held)
            raise LayoutError(
                f"no cut of {table.baseboard} into {sizes} keeps the partitions that are in use: {named}"
            )
        raise LayoutError(
            f"no partitions of {table.baseboard} with {sizes} GPUs use each GPU exactly once"
        )
    return chosen


_Rank = tuple[tuple[int, tuple[int, ...], int], ...]


def _best(
    table: PartitionTable, layout: Sequence[int], active: frozenset[int], held: Sequence[Partition]
) -> tuple[Partition, ...] | None:
    """The cut that keeps most, by dynamic programming over the GPUs that are left.

    The lowest GPU that is left has to be in some partition, so trying all of its partitions misses
    no cut. A cut is ranked by the number of active partitions it keeps, then by its sorted (size, modules):
    both orders stay the same when one more partition is added to two cuts, so the best of the parts is part
    of the best.
    """
    left, sizes = set(table.modules), list(layout)
    for partition in held:
        if not left.issuperset(partition.modules) or partition.size not in sizes:
            return None
        left -= set(partition.modules)
        sizes.remove(partition.size)

    @cache
    def solve(free: frozenset[int], todo: tuple[int, ...]) -> tuple[int, _Rank] | None:
        if not free:
            return (0, ())
        best: tuple[int, _Rank] | None = None
        for partition in table.partitions:
            if min(free) not in partition.modules or partition.size not in todo:
                continue
            if not free.issuperset(partition.modules):
                continue
            at = todo.index(partition.size)
            rest = solve(free - set(partition.modules), todo[:at] + todo[at + 1 :])
            if rest is None:
                continue
            mine = (-partition.size, partition.modules, partition.id)
            found = (rest[0] - (partition.id in active), tuple(sorted((*rest[1], mine))))
            best = found if best is None else min(best, found)
        return best

    solved = solve(frozenset(left), tuple(sorted(sizes)))
    if solved is None:
        return None
    chosen = [table.partition(number) for _, _, number in solved[1]]
    return tuple(sorted([*chosen, *held], key=lambda p: p.id))


def listed(values: Iterable[int]) -> str:
    """Numbers as errors show them."""
    return ", ".join(map(str, values))
