"""Which host and which partition a request for GPUs gets.

A request names a size; it gets all GPUs of one partition of exactly that size, or nothing. What is
decided here is which of the free ones, so that what is left stays useful:

1. the partition whose loss breaks the fewest larger partitions that are still whole (all GPUs
   free), counting the largest size first: breaking a board of 8 is worse than breaking a pair;
2. among these the host with the fewest free GPUs (best fit), so that empty boards stay empty;
3. among these the first host by name, then the lowest partition number.

The same input always gives the same answer. Nothing is moved: a running container keeps its GPUs.
`docs/placement.md` has examples, and what this costs against the optimum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gpuclusters.domain.fabric import Partition


class PartitionState(StrEnum):
    """Whether a partition could be given to somebody; the words of the metric's label."""

    FREE = "free"
    """Every GPU is."""
    BUSY = "busy"
    """A GPU is leased or being recycled, in this partition or in another one that overlaps."""
    BROKEN = "broken"
    """A GPU is lost."""
    UNSCHEDULABLE = "unschedulable"
    """Every GPU is free, but the host is out of service, or away."""


@dataclass(frozen=True, slots=True)
class BoardView:
    """One host's board at a moment: what may be leased, and which GPUs are free.

    `offered` is a fixed layout (partitions that do not overlap) or the whole table (nested ones).
    `lost` are GPUs that will not become free by themselves, those in quarantine.
    """

    host: str
    offered: tuple[Partition, ...]
    free: frozenset[int]
    lost: frozenset[int] = frozenset()

    def has_free(self, partition: Partition) -> bool:
        """Whether every GPU of the partition is free."""
        return self.free.issuperset(partition.modules)

    def state(self, partition: Partition) -> PartitionState:
        """What can be said of the partition as a whole."""
        if not self.lost.isdisjoint(partition.modules):
            return PartitionState.BROKEN
        return PartitionState.FREE if self.has_free(partition) else PartitionState.BUSY

    def without(self, modules: Sequence[int] | frozenset[int]) -> BoardView:
        """The board when these GPUs are not free."""
        return BoardView(self.host, self.offered, self.free.difference(modules), self.lost)


@dataclass(frozen=True, slots=True)
class Placement:
    """The answer: one partition of one host."""

    host: str
    partition: Partition


def place(size: int, boards: Sequence[BoardView]) -> Placement | None:
    """The partition that a request for `size` GPUs gets now; None when no board has one free."""
    return cheapest(best_of(size, board) for board in boards)


Cost = tuple[tuple[int, ...], int, str, int]
"""What a placement takes from later requests; no two are the same."""


def best_of(size: int, board: BoardView) -> tuple[Cost, Placement] | None:
    """What one board has for the request."""
    whole = sorted(
        (p for p in board.offered if p.size > size and board.has_free(p)), key=lambda p: -p.size
    )
    return min(
        (
            (
                (_broken(partition, whole), len(board.free), board.host, partition.id),
                Placement(board.host, partition),
            )
            for partition in board.offered
            if partition.size == size and board.has_free(partition)
        ),
        key=lambda found: found[0],
        default=None,
    )


def cheapest(found: Iterable[tuple[Cost, Placement] | None]) -> Placement | None:
    """The best of what the boards have; None if none has anything."""
    best = min((one for one in found if one), key=lambda one: one[0], default=None)
    return None if best is None else best[1]


def partition_states(
    boards: Sequence[BoardView], serves: Callable[[str], bool] = lambda _host: True
) -> Mapping[tuple[int, PartitionState], int]:
    """How many partitions there are by size and state: every state of each size on offer, 0 included.

    Args:
        boards: all of them.
        serves: whether anything may be placed on a host.
    """
    found: Counter[tuple[int, PartitionState]] = Counter()
    for board in boards:
        free = PartitionState.FREE if serves(board.host) else PartitionState.UNSCHEDULABLE
        for partition in board.offered:
            state = board.state(partition)
            found[partition.size, free if state is PartitionState.FREE else state] += 1
    sizes = sorted({size for size, _ in found})
    return {(size, state): found[size, state] for size in sizes for state in PartitionState}


def _broken(partition: Partition, whole: Sequence[Partition]) -> tuple[int, ...]:
    """The sizes of the whole partitions that using this one breaks, largest first.

    Compared as they are: an 8 is worse than a 4, and a 4 with a 2 is worse than a 4 alone.
    """
    modules = set(partition.modules)
    return tuple(p.size for p in whole if not modules.isdisjoint(p.modules))
