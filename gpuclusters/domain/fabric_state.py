"""Partitions as they are and as they must be: codes, comparison with the table, the plan of steps."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from gpuclusters.domain.connection import HostConnection
from gpuclusters.domain.fabric import TABLES, Baseboard, LayoutError, PartitionTable
from gpuclusters.domain.ports import LivePartition
from gpuclusters.domain.text import matches

# fmReturn codes: meaning and what to do. Source: nv_fm_types.h and the Fabric Manager User Guide.
_CODES: Mapping[int, tuple[str, str]] = {
    -1: ("bad parameter", "check that fmpm and the fabric manager have the same version"),
    -2: ("generic error", "read the fabric manager's log in the service VM"),
    -3: ("not supported", "set FABRIC_MODE=1 (shared NVSwitch) and restart the fabric manager"),
    -4: ("not initialised", "restart the fabric manager and read its log"),
    -5: ("timeout", "read the fabric manager's log in the service VM"),
    -6: ("version mismatch", "install the fmpm that belongs to the fabric manager's version"),
    -7: ("partition in use", "stop the VM that holds one of its GPUs"),
    -8: ("not configured", "wait until the fabric manager has initialised; else read its log"),
    -9: ("no connection", "start the service VM, and let FM_CMD_BIND_INTERFACE be reachable"),
    -10: ("NVLink error", "quarantine the GPUs of this partition and reset them"),
    -11: ("bad resource", "list unsupported partitions with `fmpm --list-unsupported-partitions`"),
    -12: ("resource in use", "stop the VM that holds one of its GPUs"),
    -13: ("resource not in use", "refresh and try again"),
    -14: ("resource exhausted", "wait for other partition changes to finish"),
    -15: ("not ready", "wait until the fabric manager has initialised"),
    -16: ("partition exists", "refresh and try again"),
    -17: ("partition id in use", "refresh and try again"),
    -18: ("partition id not in use", "refresh and try again"),
    -19: ("partition name in use", "refresh and try again"),
    -20: ("partition name not in use", "refresh and try again"),
    -21: ("partition id and name do not match", "refresh and try again"),
    -22: ("not ready", "wait until the fabric manager has initialised"),
    -23: ("resource used in this partition", "refresh and try again"),
    -24: ("resource used in another partition", "deactivate the partition that has its GPUs"),
    -25: ("miswired trunk links", "check the cabling between the baseboards"),
    -26: ("too few trunk links", "check the cabling between the baseboards"),
    -27: ("NVSwitches are missing", "pass every NVSwitch of the board to the service VM"),
    -28: ("network configuration error", "read the fabric manager's log in the service VM"),
    -29: ("route programming error", "reset the NVSwitches while no partition is active"),
}
ALREADY_ACTIVE = -17
ALREADY_INACTIVE = -18
NOT_CONFIGURED = -8
NO_CONNECTION = -9
# The fabric manager says "later" in these ways; -9 is what clients see while it restarts.
PASSING_CODES = frozenset({-5, NOT_CONFIGURED, -14, -15, NO_CONNECTION})


class FabricError(Exception):
    """A fabric manager call failed.

    Attributes:
        place: host and board.
        action: what was asked of it, like "activate partition 3".
        code: fmReturn, negative.
        output: the last words of the client.
    """

    def __init__(self, place: str, action: str, code: int, output: str) -> None:
        super().__init__(place, action, code, output)
        self.place = place
        self.action = action
        self.code = code
        self.output = output

    def __str__(self) -> str:
        meaning, remedy = _CODES.get(self.code, ("unknown code", "read the fabric manager's log"))
        said = f" ({self.output})" if self.output else ""
        return (
            f"{self.place}: could not {self.action}: fabric manager answered {self.code}, "
            f"{meaning}{said}; {remedy}"
        )


def code_of_exit(status: int) -> int:
    """The fmReturn code behind fmpm's exit status, which is its lowest byte."""
    return status - 256 if status > 127 else -status


_PCI_ADDRESS = matches(
    r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]",
    "write domain:bus:device.function in lower case, like '0000:86:00.0'",
)
_MODULE = matches(r"[1-8]", "GPUs are named by their module number on the board, '1' to '8'")


class FabricInputs(BaseModel):
    """Inputs: which partitions of one board must be active, all others inactive."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    connection: HostConnection
    board: Annotated[
        str,
        matches(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", "name the board with letters, digits and '-'"),
    ]
    baseboard: Baseboard
    partitions: tuple[int, ...]
    gpus: Annotated[
        Mapping[Annotated[str, _MODULE], Annotated[str, _PCI_ADDRESS]],
        Field(default_factory=dict),
    ]
    fabric_manager_host: Annotated[
        str,
        matches(r"[A-Za-z0-9_.:-]{1,253}", "write an IP address or a DNS name"),
    ] = "127.0.0.1"

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
        check_active_set(TABLES[self.baseboard], self.partitions)
        return self

    @property
    def natural_id(self) -> str:
        """`host/board`."""
        return f"{self.connection.host}/{self.board}"

    @property
    def wanted(self) -> tuple[int, ...]:
        """The ids that must be active, in order."""
        return tuple(sorted(self.partitions))


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


def table_differences(table: PartitionTable, live: Mapping[int, LivePartition]) -> Iterator[str]:
    """Each difference between the planned table and the board's own, with both sides."""
    planned = {p.id: p.modules for p in table.partitions}
    for partition_id in sorted(planned.keys() | live.keys()):
        ours = planned.get(partition_id)
        theirs = live[partition_id].modules if partition_id in live else None
        if ours != theirs:
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
