"""Whose turn it is when there are more requests than GPUs.

Turns: the tenant that holds the fewest GPUs is next, and its oldest request; equal tenants by the age
of that request. Every grant counts at once, so that tenants converge to equal shares (dominant
resource fairness with GPUs as the one resource that is scarce).

Small requests may overtake a large one that does not fit yet (backfill), but not for ever: once a
request has waited `PATIENCE_SECONDS`, the partition of its size that is nearest to being free is kept
for it, and nothing else is placed there until it has drained. A tenant has at most one such
reservation, so that a flood of large requests cannot drain the cluster. How long containers run
is unknown; a reservation therefore never promises a time.

Why every request starts at some time, if containers end and it can fit at all: as its tenant's
containers end, the tenant is among those that hold the fewest, where age decides. From then on nothing
is added to the partition kept for it, so the busy GPUs of the best candidate never become more, and become
fewer with every container on it that ends.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuclusters.domain.placement import BoardView, Placement, place

PATIENCE_SECONDS = 300.0
"""How long a request lets others overtake it before GPUs are kept for it."""


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
    """What to do now: grants in this order, and what is being kept for whom."""

    grants: tuple[Grant, ...]
    reserved: tuple[Grant, ...]


def order(waiting: Sequence[Waiting], holding: Mapping[str, int]) -> list[Waiting]:
    """The requests in the order of their turns, if each could be granted.

    Args:
        waiting: the queue, in any order.
        holding: GPUs that each tenant holds now; a tenant that is missing holds none.
    """
    turns = _Turns(waiting, holding)
    ordered: list[Waiting] = []
    while (request := turns.next()) is not None:
        ordered.append(request)
        turns.granted(request)
    return ordered


def schedule(
    waiting: Sequence[Waiting],
    holding: Mapping[str, int],
    boards: Sequence[BoardView],
    *,
    now: float,
    patience_seconds: float = PATIENCE_SECONDS,
) -> Schedule:
    """All that can be granted now: turns, backfill and reservations together.

    Args:
        waiting: the queue, in any order.
        holding: GPUs that each tenant holds now.
        boards: every host's board, each host once.
        now: by the clock of `Waiting.since`.
        patience_seconds: how long a request is overtaken before GPUs are kept for it.
    """
    views = {board.host: board for board in boards}
    turns = _Turns(waiting, holding)
    grants: list[Grant] = []
    reserved: dict[str, Grant] = {}
    full: set[int] = set()
    while (request := turns.next()) is not None:
        # Within one call GPUs only become fewer: what did not fit once does not fit later.
        found = None if request.size in full else place(request.size, list(views.values()))
        if found is not None:
            grants.append(Grant(request, found))
            turns.granted(request)
        else:
            full.add(request.size)
            if now - request.since < patience_seconds or request.tenant in reserved:
                continue
            kept = [grant.placement for grant in reserved.values()]
            found = _nearest(request.size, list(views.values()), kept)
            if found is None:
                continue
            reserved[request.tenant] = Grant(request, found)
        views[found.host] = views[found.host].without(found.partition.modules)
    return Schedule(tuple(grants), tuple(reserved.values()))


def _nearest(size: int, boards: Sequence[BoardView], kept: Sequence[Placement]) -> Placement | None:
    """The partition of this size with the fewest busy GPUs that is not kept for somebody yet."""
    best: tuple[tuple[int, str, int], Placement] | None = None
    for board in boards:
        closed = board.lost.union(*(k.partition.modules for k in kept if k.host == board.host))
        for partition in board.offered:
            if partition.size != size or not closed.isdisjoint(partition.modules):
                continue
            busy = len(set(partition.modules) - board.free)
            key = (busy, board.host, partition.id)
            if best is None or key < best[0]:
                best = key, Placement(board.host, partition)
    return None if best is None else best[1]


class _Turns:
    """The tenants' queues, and whose turn is next."""

    def __init__(self, waiting: Sequence[Waiting], holding: Mapping[str, int]) -> None:
        self._held = dict(holding)
        self._queues: dict[str, deque[Waiting]] = {}
        for request in sorted(waiting, key=lambda w: (w.since, w.uid)):
            self._queues.setdefault(request.tenant, deque()).append(request)
        self._next: list[tuple[int, float, str, str]] = []
        for tenant in self._queues:
            self._enqueue(tenant)
        self._taken: str | None = None

    def next(self) -> Waiting | None:
        """Take the request whose turn it is out of the queue; None when nothing waits."""
        if self._taken is not None:
            self._enqueue(self._taken)
            self._taken = None
        if not self._next:
            return None
        *_, self._taken = heapq.heappop(self._next)
        return self._queues[self._taken].popleft()

    def granted(self, request: Waiting) -> None:
        """Count the request that was taken last as held by its tenant."""
        self._held[request.tenant] = self._held.get(request.tenant, 0) + request.size

    def _enqueue(self, tenant: str) -> None:
        queue = self._queues[tenant]
        if queue:
            head = queue[0]
            entry = (self._held.get(tenant, 0), head.since, head.uid, tenant)
            heapq.heappush(self._next, entry)
