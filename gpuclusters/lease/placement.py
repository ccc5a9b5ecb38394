"""Which partition a request gets, and whose turn it is when there are more requests than GPUs.

A request gets one partition of exactly its size, or nothing: the one whose loss breaks the fewest larger
partitions, on the fullest board (best fit). The tenant that holds the fewest GPUs is next, and its oldest
request; what does not fit is overtaken, but not for ever. `docs/placement.md` has the rules..
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gpuclusters.core.ports import condition, holds
from gpuclusters.fabric.table import Partition
from gpuclusters.lease.model import Phase


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

    @classmethod
    def of(
        cls, host: str, offered: tuple[Partition, ...], phases: Mapping[int, str | None]
    ) -> BoardView:
        """As the phases of its leases are; a GPU without a lease is neither free nor lost."""

        def within(wanted: Phase) -> frozenset[int]:
            return frozenset(module for module, phase in phases.items() if phase == wanted)

        return cls(host, offered, within(Phase.FREE), within(Phase.QUARANTINED))

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
    free = [p for p in board.offered if board.has_free(p)]
    whole = sorted((p for p in free if p.size > size), key=lambda p: -p.size)
    costs = (
        ((_broken(p, whole), len(board.free), board.host, p.id), Placement(board.host, p))
        for p in free
        if p.size == size
    )
    return min(costs, key=lambda found: found[0], default=None)


def cheapest(found: Iterable[tuple[Cost, Placement] | None]) -> Placement | None:
    """The best of what the boards have; None if none has anything."""
    best = min(filter(None, found), key=lambda one: one[0], default=None)
    return None if best is None else best[1]


def partition_states(
    boards: Sequence[BoardView], serves: Callable[[str], bool] = lambda _host: True
) -> Mapping[tuple[int, PartitionState], int]:
    """How many partitions there are by size and state: every state of each size on offer, 0 included."""
    found: Counter[tuple[int, PartitionState]] = Counter()
    for board in boards:
        free = PartitionState.FREE if serves(board.host) else PartitionState.UNSCHEDULABLE
        for partition in board.offered:
            state = board.state(partition)
            found[partition.size, free if state is PartitionState.FREE else state] += 1
    sizes = sorted({size for size, _ in found})
    return {(size, state): found[size, state] for size in sizes for state in PartitionState}


def _broken(partition: Partition, whole: Sequence[Partition]) -> tuple[int, ...]:
    """The sizes of the whole partitions that using this one breaks, largest first: an 8 is worse than a 4."""
    modules = set(partition.modules)
    return tuple(p.size for p in whole if not modules.isdisjoint(p.modules))


PATIENCE_SECONDS = 3600.0
"""How long a request is overtaken before its age counts; `docs/placement.md` has the numbers."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request in the queue. `size` in GPUs, `since` in seconds of any clock."""

    uid: str
    tenant: str
    size: int
    since: float


@dataclass(frozen=True, slots=True)
class Grant:
    """A request whose turn it is, and what it gets."""

    request: Waiting
    placement: Placement


@dataclass(frozen=True, slots=True)
class Schedule:
    """What to do now: grants in this order, and what is being kept for whom, if anything is."""

    grants: tuple[Grant, ...]
    reserved: Grant | None


def schedule(
    waiting: Sequence[Waiting],
    holding: Mapping[str, int],
    boards: Sequence[BoardView],
    *,
    now: float,
    patience_seconds: float = PATIENCE_SECONDS,
) -> Schedule:
    """All that can be granted now, by GPUs that tenants hold and the clock of `Waiting.since`."""
    round_ = _Round(holding, boards)
    share = _equal_share(waiting, holding, boards)
    reserved: Grant | None = None
    patient = [request for request in waiting if now - request.since < patience_seconds]
    for request in sorted(set(waiting).difference(patient), key=_age):
        # Held is read anew each time: what was granted before may have filled the tenant's share.
        if reserved is not None or round_.held.get(request.tenant, 0) >= share:
            patient.append(request)
        elif not round_.grant(request):
            reserved = round_.reserve(request)
    queues: dict[str, deque[Waiting]] = {}
    for request in sorted(patient, key=_age):
        queues.setdefault(request.tenant, deque()).append(request)

    def turn(tenant: str) -> tuple[int, float, str, str]:
        return round_.held.get(tenant, 0), *_age(queues[tenant][0]), tenant

    turns = sorted(map(turn, queues))
    while turns:
        *_, tenant = heapq.heappop(turns)
        round_.grant(queues[tenant].popleft())
        if queues[tenant]:
            heapq.heappush(turns, turn(tenant))
    return Schedule(tuple(round_.grants), reserved)


class _Round:
    """What has been granted so far, and what is left."""

    def __init__(self, holding: Mapping[str, int], boards: Sequence[BoardView]) -> None:
        self.held = dict(holding)
        self.grants: list[Grant] = []
        self._views = {board.host: board for board in boards}
        self._full: set[int] = set()
        self._best: dict[int, dict[str, tuple[Cost, Placement] | None]] = {}
        """By size and host; a thousand requests must not look at every board a thousand times."""

    def grant(self, request: Waiting) -> bool:
        """Place a request if it fits."""
        # Within one round GPUs only become fewer: what did not fit once does not fit later.
        if request.size in self._full:
            return False
        found = self._place(request.size)
        if found is None:
            self._full.add(request.size)
            return False
        self.grants.append(Grant(request, found))
        self.held[request.tenant] = self.held.get(request.tenant, 0) + request.size
        self._close(found)
        return True

    def reserve(self, request: Waiting) -> Grant | None:
        """Keep the partition that is nearest to being free; None if no board can ever have it."""
        found = _nearest(request.size, list(self._views.values()))
        if found is None:
            return None
        self._close(found)
        return Grant(request, found)

    def _place(self, size: int) -> Placement | None:
        best = self._best.setdefault(size, {})
        for host, view in self._views.items():
            if host not in best:
                best[host] = best_of(size, view)
        return cheapest(best.values())

    def _close(self, taken: Placement) -> None:
        view = self._views[taken.host]
        self._views[taken.host] = view.without(taken.partition.modules)
        for best in self._best.values():
            best.pop(taken.host, None)


def _equal_share(
    waiting: Sequence[Waiting], holding: Mapping[str, int], boards: Sequence[BoardView]
) -> float:
    """GPUs that each tenant would have if all that hold or wait had the same."""
    tenants = {request.tenant for request in waiting}
    tenants |= {tenant for tenant, gpus in holding.items() if gpus}
    usable = (
        {module for partition in board.offered for module in partition.modules} - board.lost
        for board in boards
    )
    return sum(map(len, usable)) / max(1, len(tenants))


def _age(request: Waiting) -> tuple[float, str]:
    return request.since, request.uid


def _nearest(size: int, boards: Sequence[BoardView]) -> Placement | None:
    """The partition of this size with the fewest busy GPUs, none of them lost."""
    return cheapest(
        (
            ((len(set(partition.modules) - board.free),), 0, board.host, partition.id),
            Placement(board.host, partition),
        )
        for board in boards
        for partition in board.offered
        if partition.size == size and board.lost.isdisjoint(partition.modules)
    )


class Why(StrEnum):
    """Why nothing new is placed on a node; the words of the API's answer."""

    CORDONED = "Cordoned"
    """Somebody took it out of service."""
    NOT_READY = "NotReady"
    """Its kubelet says so, or says nothing any more."""
    GONE = "Gone"
    """The cluster has no such node."""


UNREACHABLE = "node.kubernetes.io/unreachable"
NOT_READY = "node.kubernetes.io/not-ready"
_TAINTS = (UNREACHABLE, NOT_READY)
"""Of the node controller: they come a moment after the condition, and go a moment after it."""


@dataclass(frozen=True, slots=True)
class Outage:
    why: Why
    message: str
    """One sentence with the node's name, for operators."""

    @property
    def lost(self) -> bool:
        """Whether nobody can be expected to answer there."""
        return self.why is not Why.CORDONED


def outage_of(name: str, node: Mapping[str, Any] | None) -> Outage | None:
    """Why nothing new is placed on a node; None if something may be."""
    if node is None:
        return Outage(Why.GONE, f"the cluster has no node {name}")
    if not holds(node, "Ready"):
        since = condition(node, "Ready").get("lastTransitionTime")
        return Outage(Why.NOT_READY, f"{name} is NotReady" + (f" since {since}" if since else ""))
    spec = node.get("spec") or {}
    if taint := next((t["key"] for t in spec.get("taints") or () if t["key"] in _TAINTS), None):
        return Outage(Why.NOT_READY, f"{name} has the taint {taint}")
    if spec.get("unschedulable"):
        return Outage(Why.CORDONED, f"{name} is cordoned")
    return None


def outages(names: Iterable[str], nodes: Mapping[str, Mapping[str, Any]]) -> dict[str, Outage]:
    """Those of these nodes on which nothing new is placed."""
    found = ((name, outage_of(name, nodes.get(name))) for name in names)
    return {name: outage for name, outage in found if outage is not None}
