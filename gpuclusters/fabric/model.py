"""Inputs of a board's partitions, and what the fabric manager and the machine answer about them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, Protocol

from pydantic import Field, field_validator, model_validator

from gpuclusters.core.facts import Facts
from gpuclusters.core.model import Strict, matches
from gpuclusters.core.section import PciAddress
from gpuclusters.fabric.answers import FabricError
from gpuclusters.fabric.table import (
    Baseboard,
    LayoutError,
    MapSource,
    PartitionTable,
    listed,
    plan_layout,
    repeated,
    table_for,
)
from gpuclusters.host.model import HostConnection

_MODULE = matches(r"[1-8]", "GPUs are named by their module number on the board, '1' to '8'")
_NUMBER = matches(r"[0-9]{1,2}", "partitions are numbered, '0' to '63'")
_VERSION = matches(r"[0-9]+(\.[0-9]+){1,3}", "write all of its numbers, like '595.58.03'")


class FabricInputs(Strict):
    """Inputs: which partitions of one board must be active, all others inactive.

    Either `partitions`, their numbers, or `layout`, sizes that are cut where it needs the fewest
    changes on the board as it is.
    """

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
    gpus: Mapping[Annotated[str, _MODULE], PciAddress] = Field(default_factory=dict)
    """PCI address by module number; needed to know whether a partition is in use."""
    module_map: MapSource = MapSource.READ
    fabric_manager_host: Annotated[
        str, matches(r"[A-Za-z0-9_.:-]{1,253}", "write an IP address or a DNS name")
    ] = "127.0.0.1"
    """As seen from the host."""
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
        if twice := repeated(list(gpus.values())):
            raise ValueError(f"{', '.join(twice)} stands for two modules; each GPU is one module")
        return gpus

    @model_validator(mode="after")
    def _partitions_fit(self) -> FabricInputs:
        if (self.partitions is None) == (self.layout is None):
            raise ValueError("partitions: give either partitions or layout")
        where = "table"
        try:
            known = self.partition_table
            where = "partitions" if self.layout is None else "layout"
            if self.layout is not None:
                plan_layout(known, self.layout)
            modules = [m for i in self.partitions or () for m in known.partition(i).modules]
        except LayoutError as error:
            raise ValueError(f"{where}: {error}") from error
        if twice := repeated(modules):
            what = f"GPUs {listed(twice)} are in two of them"
            raise ValueError(f"partitions: {what}; a GPU is in one active partition at most")
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
        return f"{self.connection.host}/{self.board}"

    @property
    def wanted(self) -> tuple[int, ...]:
        """The numbers that must be active, in order; of a layout, on a board with nothing active."""
        if self.partitions is not None:
            return tuple(sorted(self.partitions))
        return tuple(p.id for p in plan_layout(self.partition_table, self.layout or ()))

    @property
    def partition_table(self) -> PartitionTable:
        own = {int(n): modules for n, modules in self.table.items()} if self.table else None
        return table_for(self.baseboard, own)

    def addresses(self, modules: Collection[int]) -> tuple[str, ...]:
        """PCI addresses of these modules, as far as they are known."""
        return tuple(self.gpus[str(m)] for m in modules if str(m) in self.gpus)


@dataclass(frozen=True, slots=True)
class LivePartition:
    """A partition as the fabric manager lists it; `modules` are physical ids, sorted."""

    id: int
    modules: tuple[int, ...]
    active: bool
    links: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """NVLinks of each GPU: how many trained, and how many there are at most."""


LiveTable = Mapping[int, LivePartition]


@dataclass(frozen=True, slots=True)
class FabricStep:
    verb: Literal["activate", "deactivate"]
    partition: int
    modules: tuple[int, ...] = ()
    addresses: tuple[str, ...] = ()
    """Its GPUs: it is not taken down while a process uses one, nor brought up while leases withhold one."""

    @property
    def words(self) -> str:
        gpus = f" (GPUs {listed(self.modules)})" if self.modules else ""
        return f"{self.verb} partition {self.partition}{gpus}"


@dataclass(frozen=True, slots=True)
class LeaseMarks:
    """PCI addresses of GPUs whose partitions the leases of the machine keep down for now."""

    withheld: frozenset[str] = frozenset()
    quarantined: frozenset[str] = frozenset()
    """Of these, the ones in quarantine: until somebody acts."""


@dataclass(frozen=True, slots=True)
class FabricChange:
    """How far a change came: at most one of `failed` and `held` says why it ended."""

    done: int
    """How many of the steps are done, or left."""
    left: tuple[int, ...] = ()
    """Partitions that were not activated because the leases keep them down."""
    failed: FabricError | None = None
    held: str = ""
    """A step that deactivates, and who holds one of its GPUs: "deactivate partition 8: process 4242"."""
    live: LiveTable | None = None
    """The table afterwards; None unless all steps are done."""
    marks: LeaseMarks = LeaseMarks()
    """What leases have marked, as of the same moment as the table."""


class FabricManager(Protocol):
    """One NVSwitch board's fabric manager. Calls raise `FabricError` with the fmReturn code."""

    @property
    def target(self) -> str:
        """Host and board as errors name them."""

    def partitions(self) -> LiveTable:
        """The table as the fabric manager has it, with what is active."""

    def unsupported(self) -> Mapping[int, tuple[int, ...]]:
        """Modules by number, of partitions left out because one of their GPUs or links failed."""

    def change(self, steps: Sequence[FabricStep]) -> FabricChange:
        """Do these steps in order, up to the first that cannot be done.

        Without steps: the table and the marks of leases at one moment.
        """

    def set_activated(self, partition_ids: Sequence[int]) -> None:
        """Tell a restarted fabric manager which partitions were active."""


class ModuleReading(Facts):
    """What a machine answered about some PCI addresses: what `gpu_modules.sh` prints."""

    modules: Mapping[str, int] = {}
    """Module by address, of those that are known."""
    held: Mapping[str, str] = {}
    """Process ids by address, of those that were not asked because a process has them."""
    silent: tuple[str, ...] = ()
    said: tuple[str, ...] = ()


class ModuleMap(Protocol):
    """Which GPU sits in which module, as one host's GPUs say themselves."""

    @property
    def target(self) -> str:
        """The host as errors name it."""

    def read(self, addresses: Sequence[str]) -> ModuleReading:
        """In which module the GPU at each address sits."""
