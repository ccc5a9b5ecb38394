"""Partitions as they are and as they must be: inputs, comparison with the table, the plan of steps."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from gpuclusters.domain.connection import HostConnection
from gpuclusters.domain.fabric import (
    Baseboard,
    LayoutError,
    PartitionTable,
    plan_layout,
    table_for,
)
from gpuclusters.domain.fabric_codes import (
    ALREADY_ACTIVE,
    ALREADY_INACTIVE,
    NO_CONNECTION,
    NOT_CONFIGURED,
    PASSING_CODES,
    FabricError,
    code_of_exit,
)
from gpuclusters.domain.module_map import MapSource
from gpuclusters.domain.ports import LivePartition
from gpuclusters.domain.text import matches

__all__ = [
    "ALREADY_ACTIVE",
    "ALREADY_INACTIVE",
    "NOT_CONFIGURED",
    "NO_CONNECTION",
    "PASSING_CODES",
    "FabricError",
    "FabricInputs",
    "FabricPlan",
    "check_active_set",
    "code_of_exit",
    "must_restore",
    "plan_steps",
    "table_differences",
]

_PCI_ADDRESS = matches(
    r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]",
    "write domain:bus:device.function in lower case, like '0000:86:00.0'",
)
_MODULE = matches(r"[1-8]", "GPUs are named by their module number on the board, '1' to '8'")
_NUMBER = matches(r"[0-9]{1,2}", "partitions are numbered, '0' to '63'")
_VERSION = matches(r"[0-9]+(\.[0-9]+){1,3}", "write all of its numbers, like '595.58.03'")


class FabricInputs(BaseModel):
    """Inputs: which partitions of one board must be active, all others inactive.

    Either `partitions`, their numbers, or `layout`, sizes that are cut where it needs the fewest
    changes on the board as it is.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    connection: HostConnection
    board: Annotated[
        str,
        matches(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", "name the board with letters, digits and '-'"),
    ]
    baseboard: Baseboard
    partitions: tuple[int, ...] | None = None
    layout: tuple[int, ...] | None = None
    table: Mapping[Annotated[str, _NUMBER], tuple[int, ...]] | None = None
    """The board's own table, where the baseboard's is not known: modules by partition number."""
    gpus: Annotated[
        Mapping[Annotated[str, _MODULE], Annotated[str, _PCI_ADDRESS]],
        Field(default_factory=dict),
    ]
    module_map: MapSource = MapSource.READ
    fabric_manager_host: Annotated[
        str,
        matches(r"[A-Za-z0-9_.:-]{1,253}", "write an IP address or a DNS name"),
    ] = "127.0.0.1"
    fabric_manager_version: Annotated[str, _VERSION] | None = None
    """What runs in the service VM, as read there."""
    guest_driver: Annotated[str, _VERSION] | None = None
    """The driver in the guests' image; the fabric manager has to be of exactly this version."""
    fabric_manager_run: str | None = None
    """Tells one run of the service VM from the next: after a restart it is told anew what is active."""
    adopt: bool = False

    @field_validator("gpus")
    @classmethod
    def _one_gpu_per_module(cls, gpus: Mapping[str, str]) -> Mapping[str, str]:
        addresses = list(gpus.values())
        twice = sorted({a for a in addresses if addresses.count(a) > 1})
        if twice:
            raise ValueError(f"{', '.join(twice)} stands for two modules; each GPU is one module")
        return gpus

    @model_validator(mode="after")
    def _partitions_fit(self) -> FabricInputs:
        try:
            known = self.partition_table
        except LayoutError as error:
            raise ValueError(f"table: {error}") from error
        if (self.partitions is None) == (self.layout is None):
            raise ValueError("partitions: give either partitions or layout")
        if self.layout is not None:
            try:
                plan_layout(known, self.layout)
            except LayoutError as error:
                raise ValueError(f"layout: {error}") from error
        check_active_set(known, self.partitions or ())
        return self

    @model_validator(mode="after")
    def _versions_are_equal(self) -> FabricInputs:
        manager, driver = self.fabric_manager_version, self.guest_driver
        if manager is not None and driver is not None and manager != driver:
            raise ValueError(
                f"fabric_manager_version: the fabric manager in the service VM of "
                f"{self.connection.host} is {manager} and the guests' driver {driver}; they have to "
                "be exactly equal, else guests lose NVLink or CUDA does not start (802): install "
                f"nvidia-fabricmanager {driver} in the service VM"
            )
        return self

    @property
    def natural_id(self) -> str:
        """`host/board`."""
        return f"{self.connection.host}/{self.board}"

    @property
    def wanted(self) -> tuple[int, ...]:
        """The numbers that must be active, in order; of a layout, on a board with nothing active."""
        if self.partitions is not None:
            return tuple(sorted(self.partitions))
        return tuple(p.id for p in plan_layout(self.partition_table, self.layout or ()))

    @property
    def partition_table(self) -> PartitionTable:
        """The table to plan with.

        Raises:
            LayoutError: none is known and none was given.
        """
        own = {int(n): modules for n, modules in self.table.items()} if self.table else None
        return table_for(self.baseboard, own)

    @property
    def configured_map(self) -> dict[int, str]:
        """PCI address by module."""
        return {int(module): address for module, address in self.gpus.items()}


def check_active_set(table: PartitionTable, ids: Collection[int]) -> None:
    """Check that these partitions exist and can be active together.

    Raises:
        ValueError: an id twice, not in the table, or two partitions with the same GPU.
    """
    holder: dict[int, int] = {}
    for partition_id in ids:
        try:
            partition = table.partition(partition_id)
        except LayoutError as error:
            raise ValueError(f"partitions: {error}; take ids from that table") from error
        for module in partition.modules:
            if module in holder:
                what = (
                    f"partition {partition_id} is given twice"
                    if holder[module] == partition_id
                    else f"partitions {holder[module]} and {partition_id} both have GPU {module}"
                )
                raise ValueError(f"partitions: {what}; a GPU is in one active partition at most")
            holder[module] = partition_id


def table_differences(
    table: PartitionTable,
    live: Mapping[int, LivePartition],
    unsupported: Mapping[int, Sequence[int]] | None = None,
) -> Iterator[str]:
    """Each difference between the planned table and the board's own, with both sides.

    A partition that the board leaves out because it cannot support it now is none, if it is the
    same one.
    """
    left_out = {i: tuple(sorted(m)) for i, m in (unsupported or {}).items()}
    planned = {p.id: p.modules for p in table.partitions}
    for partition_id in sorted(planned.keys() | live.keys()):
        ours = planned.get(partition_id)
        theirs = live[partition_id].modules if partition_id in live else None
        if ours != (theirs or left_out.get(partition_id)):
            yield (
                f"partition {partition_id} is {_gpus(ours)} in the table of {table.baseboard} "
                f"and {_gpus(theirs)} on the board"
            )


def _gpus(modules: Sequence[int] | None) -> str:
    return f"GPUs {', '.join(map(str, modules))}" if modules else "absent"


@dataclass(frozen=True, slots=True)
class FabricPlan:
    """Steps, in order: first all deactivations, then all activations.

    In this order the active set is pairwise disjoint after every step, because what stays and
    what comes are both part of the wanted set.
    """

    deactivate: tuple[int, ...]
    activate: tuple[int, ...]


def plan_steps(active: Collection[int], wanted: Collection[int]) -> FabricPlan:
    """What leads from the active set to the wanted one; partitions in both are not touched."""
    return FabricPlan(
        deactivate=tuple(sorted(set(active) - set(wanted))),
        activate=tuple(sorted(set(wanted) - set(active))),
    )


def must_restore(active: Collection[int], applied: Collection[int]) -> bool:
    """Whether the fabric manager lost its memory: we had partitions active, it knows of none."""
    return bool(applied) and not active
