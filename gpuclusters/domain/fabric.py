"""NVSwitch partitions of HGX boards: what each board is known to offer.

A partition is the unit of allocation: one VM gets all GPUs of one active partition. The tables are
for planning and validation only. What a board really offers is asked of its fabric manager at run
time, and a difference is an error, never a guess: tables belong to a baseboard and a release of the
fabric manager, and NVIDIA has changed them before (the pairs of H100, history of guide v1.3).
Source: NVIDIA Fabric Manager User Guide; HGX Shared NVSwitch passthrough guide WP-12736-002.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuclusters.domain.fabric_layout import LayoutChange, plan_change, plan_layout
from gpuclusters.domain.fabric_table import (
    Baseboard,
    LayoutError,
    Partition,
    PartitionTable,
    table_of,
)
from gpuclusters.domain.module_map import MapSource

__all__ = [
    "BOARDS",
    "TABLES",
    "Baseboard",
    "BoardFacts",
    "LayoutChange",
    "LayoutError",
    "Partition",
    "PartitionTable",
    "plan_change",
    "plan_layout",
    "table_for",
    "table_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardFacts:
    """What is known of one baseboard, when, and from where."""

    as_of: str
    """Date on which the source was read."""
    source: str
    links_per_gpu: int
    """NVLinks of one GPU."""
    table: PartitionTable | None
    """None where no readable source has the numbers: the machine's own table has to be given."""
    names_modules: bool
    """Whether a GPU says without a driver in which module it sits."""
    shape: str = "1 of 8, 2 of 4, 4 of 2, 8 of 1"
    """Partitions by size, which is known of every board."""

    @property
    def module_map(self) -> MapSource:
        """Whether its GPUs are asked where they sit, or the configuration is believed."""
        return MapSource.READ if self.names_modules else MapSource.STATED


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

BOARDS: Mapping[Baseboard, BoardFacts] = {
    Baseboard.HGX_A100: BoardFacts(
        as_of="2026-11-20",
        source="Fabric Manager User Guide (shape, links); the numbers are in no source",
        links_per_gpu=12,
        table=None,
        names_modules=False,
    ),
    Baseboard.HGX_H100: BoardFacts(
        as_of="2026-11-20",
        source="`fmpm -l` of HGX H100; WP-12736-002",
        links_per_gpu=18,
        table=_table(Baseboard.HGX_H100, 0, _HOPPER_PAIRS),
        names_modules=True,
    ),
    Baseboard.HGX_H200: BoardFacts(
        as_of="2026-11-20",
        source="the baseboard of HGX H100; WP-12736-002",
        links_per_gpu=18,
        table=_table(Baseboard.HGX_H200, 0, _HOPPER_PAIRS),
        names_modules=True,
    ),
    Baseboard.HGX_B200: BoardFacts(
        as_of="2026-11-20",
        source="ubicloud's partition rows of HGX B200",
        links_per_gpu=18,
        table=_table(Baseboard.HGX_B200, 1, _BLACKWELL_PAIRS),
        names_modules=True,
    ),
}

TABLES: Mapping[Baseboard, PartitionTable] = {
    board: facts.table for board, facts in BOARDS.items() if facts.table is not None
}
"""The boards whose table is known."""


def table_for(
    baseboard: Baseboard, own: Mapping[int, Sequence[int]] | None = None
) -> PartitionTable:
    """The table to plan with.

    Args:
        baseboard: the board.
        own: the machine's own table, where it was given: module numbers by partition number.

    Raises:
        LayoutError: no table is known and none was given, or the given one is none.
    """
    if own:
        return table_of(baseboard, own)
    known = TABLES.get(baseboard)
    if known is None:
        raise LayoutError(
            f"no source has the partition numbers of {baseboard}; give the board's own table, as "
            "`fmpm -l` prints it on the machine"
        )
    return known
