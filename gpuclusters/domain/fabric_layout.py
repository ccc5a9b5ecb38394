"""Which partitions cut a board into given sizes, with as few changes as there can be.

Every GPU is in exactly one partition of a cut. A change of layout takes down what is not in the new
cut and brings up what is not active yet, so the number of switches is
`active + wanted - 2 * kept`: the cut that keeps most active partitions needs fewest. Among equals
the one on the lowest modules is taken, larger partitions first, so that the same question always
has the same answer.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache

from gpuclusters.domain.fabric_table import LayoutError, Partition, PartitionTable

_Rank = tuple[tuple[int, tuple[int, ...], int], ...]


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """A cut, and what leads to it."""

    partitions: tuple[Partition, ...]
    deactivate: tuple[int, ...]
    activate: tuple[int, ...]

    @property
    def switches(self) -> int:
        """How many partitions are taken down or brought up."""
        return len(self.deactivate) + len(self.activate)


def plan_layout(
    table: PartitionTable,
    layout: Sequence[int],
    *,
    active: Collection[int] = (),
    in_use: Collection[int] = (),
) -> tuple[Partition, ...]:
    """The partitions that cut a board into pieces of these sizes, each GPU in exactly one.

    Args:
        table: what the board offers.
        layout: sizes, in any order.
        active: numbers of the partitions that are active now.
        in_use: of these, the ones that a VM runs on; they are part of the answer.

    Raises:
        LayoutError: a size is not on offer, the sizes do not use each GPU exactly once, or no cut
            into these sizes keeps what is in use.
    """
    return plan_change(table, layout, active=active, in_use=in_use).partitions


def plan_change(
    table: PartitionTable,
    layout: Sequence[int],
    *,
    active: Collection[int] = (),
    in_use: Collection[int] = (),
) -> LayoutChange:
    """The cut of `plan_layout`, and the fewest switches that lead to it.

    Raises:
        LayoutError: as `plan_layout`.
    """
    _require_sizes(table, layout)
    held = [table.partition(i) for i in sorted(set(in_use))]
    chosen = _best(table, layout, frozenset(active), held)
    if chosen is None and held:
        named = "; ".join(f"{p.id} (GPUs {_list(p.modules)})" for p in held)
        raise LayoutError(
            f"no cut of {table.baseboard} into {_list(sorted(layout, reverse=True))} keeps the "
            f"partitions that are in use: {named}"
        )
    if chosen is None:
        raise LayoutError(
            f"no partitions of {table.baseboard} with {_list(sorted(layout, reverse=True))} GPUs "
            "use each GPU exactly once"
        )
    wanted = {p.id for p in chosen}
    return LayoutChange(
        partitions=chosen,
        deactivate=tuple(sorted(set(active) - wanted)),
        activate=tuple(sorted(wanted - set(active))),
    )


def _require_sizes(table: PartitionTable, layout: Sequence[int]) -> None:
    unknown = sorted({size for size in layout if size not in table.sizes})
    if unknown:
        raise LayoutError(
            f"{table.baseboard} has no partitions of {_list(unknown)} GPUs; "
            f"its sizes are {_list(table.sizes)}"
        )
    total = len(table.modules)
    if sum(layout) != total:
        raise LayoutError(f"the sizes must add up to {total} GPUs (they add up to {sum(layout)})")


def _best(
    table: PartitionTable, layout: Sequence[int], active: frozenset[int], held: Sequence[Partition]
) -> tuple[Partition, ...] | None:
    """The cut that keeps most, by dynamic programming over the GPUs that are left.

    The lowest GPU that is left has to be in some partition, so trying all of its partitions misses
    no cut; what is best for the rest depends on the rest alone. A cut is ranked by the number of
    active partitions it keeps, then by its sorted (size, modules): both orders stay the same when
    one more partition is added to two cuts, which makes the best of the parts part of the best.
    """
    left = set(table.modules)
    sizes = list(layout)
    for partition in held:
        if not left.issuperset(partition.modules) or partition.size not in sizes:
            return None
        left -= set(partition.modules)
        sizes.remove(partition.size)

    @cache
    def solve(free: frozenset[int], todo: tuple[int, ...]) -> tuple[int, _Rank] | None:
        if not free:
            return (0, ())
        first = min(free)
        best: tuple[int, _Rank] | None = None
        for partition in table.partitions:
            if first not in partition.modules or partition.size not in todo:
                continue
            if not free.issuperset(partition.modules):
                continue
            at = todo.index(partition.size)
            rest = solve(free - set(partition.modules), todo[:at] + todo[at + 1 :])
            if rest is None:
                continue
            mine = (-partition.size, partition.modules, partition.id)
            found = (
                rest[0] - (partition.id in active),
                tuple(sorted((*rest[1], mine))),
            )
            if best is None or found < best:
                best = found
        return best

    solved = solve(frozenset(left), tuple(sorted(sizes)))
    if solved is None:
        return None
    chosen = [table.partition(number) for _, _, number in solved[1]]
    return tuple(sorted([*chosen, *held], key=lambda p: p.id))


def _list(values: Collection[int]) -> str:
    return ", ".join(map(str, values))
