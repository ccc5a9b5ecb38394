"""What the decisions need from the outside world, by role. The adapters fill these in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from gpuclusters.domain.fabric_codes import FabricError
    from gpuclusters.domain.module_map import ModuleReading
    from gpuclusters.host.model import PciFunction


class PciDevices(Protocol):
    """PCI functions of one host."""

    def inspect(self, addresses: Sequence[str]) -> Mapping[str, PciFunction]:
        """What the kernel says now about each address."""


class ModuleMap(Protocol):
    """Which GPU sits in which module, as one host's GPUs say themselves."""

    @property
    def place(self) -> str:
        """The host as errors name it."""

    def read(self, addresses: Sequence[str]) -> ModuleReading:
        """In which module the GPU at each address sits."""


class FabricManager(Protocol):
    """One NVSwitch board's fabric manager. Calls raise `FabricError` with the fmReturn code."""

    @property
    def place(self) -> str:
        """Host and board as errors name them."""

    def partitions(self) -> Mapping[int, LivePartition]:
        """The table as the fabric manager has it, with what is active."""

    def unsupported(self) -> Mapping[int, tuple[int, ...]]:
        """Partitions that it left out because one of their GPUs or links failed: modules by number."""

    def change(self, steps: Sequence[FabricStep]) -> FabricChange:
        """Do these steps in order, up to the first that cannot be done.

        Without steps it is a look at the table and the marks of leases at one moment: what leases have
        taken down has its mark then.
        """

    def set_activated(self, partition_ids: Sequence[int]) -> None:
        """Tell a restarted fabric manager which partitions were active."""


@dataclass(frozen=True, slots=True)
class LivePartition:
    """A partition as the fabric manager lists it; `modules` are physical ids, sorted.

    `links` are the NVLinks of each GPU: how many trained, and how many there are at most.
    """

    id: int
    modules: tuple[int, ...]
    active: bool
    links: Mapping[int, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FabricStep:
    """One partition to bring up or take down.

    `addresses` are its GPUs: a partition that a process uses at that moment is not taken down, and
    one whose GPU the leases withhold is not brought up.
    """

    verb: Literal["activate", "deactivate"]
    partition: int
    modules: tuple[int, ...] = ()
    addresses: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """As errors say it."""
        gpus = f" (GPUs {', '.join(map(str, self.modules))})" if self.modules else ""
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
    live: Mapping[int, LivePartition] | None = None
    """The table afterwards; None unless all steps are done."""
    marks: LeaseMarks = LeaseMarks()
    """What leases have marked, as of the same moment as the table."""


class ClusterObjects(Protocol):
    """Objects of one Kubernetes cluster, as plain mappings. Absence is None."""

    @property
    def place(self) -> str:
        """The API server as errors name it."""

    def get(self, kind: ObjectKind, name: str, namespace: str = "") -> dict[str, Any] | None:
        """The object, or None if it or its kind does not exist."""

    def list(self, kind: ObjectKind, namespace: str = "") -> Sequence[dict[str, Any]]:
        """All objects of the kind; none if the kind does not exist."""

    def apply(self, kind: ObjectKind, body: Mapping[str, Any]) -> dict[str, Any]:
        """Server-side apply of a cluster-scoped object; takes no field from another manager."""

    def delete(self, kind: ObjectKind, name: str, namespace: str = "") -> None:
        """Delete an object and wait until it is gone; absent is fine."""

    def try_pod(self, namespace: str, body: Mapping[str, Any]) -> str | None:
        """Dry-run creation: None if the server would accept the pod, else why it refused."""


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """Where a kind lives in the Kubernetes API."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """As in manifests."""
        return f"{self.group}/{self.version}" if self.group else self.version
