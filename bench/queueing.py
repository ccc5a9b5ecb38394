"""A queue of requests under fair share, simulated: who waits how long, with and without reservations."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean

from bench.placing import GPUS, TABLE, Request
from gpuclusters.lease.placement import BoardView, Waiting, schedule

TENANTS = 4


@dataclass(frozen=True, slots=True)
class Waits:
    """Hours in the queue, and the share of all GPU hours that were used until the last arrival."""

    mean: float
    mean_of_8: float
    longest_of_8: float
    used: float


def run(requests: Sequence[Request], boards: int, patience_hours: float) -> Waits:
    """Serve all requests; each is of one of some tenants and runs as long as the load says."""
    views = {
        f"hgx-{n:02}": BoardView(f"hgx-{n:02}", TABLE.partitions, frozenset(range(1, GPUS + 1)))
        for n in range(boards)
    }
    arrivals = {f"r{n}": request for n, request in enumerate(requests)}
    waits: dict[str, float] = {}
    queue: list[Waiting] = []
    holding = Counter[str]()
    events = [(request.start, uid) for uid, request in arrivals.items()]
    heapq.heapify(events)
    ends: dict[str, tuple[str, str, tuple[int, ...]]] = {}
    used, last = 0.0, requests[-1].start
    while events:
        now, uid = heapq.heappop(events)
        if uid in ends:
            tenant, host, modules = ends.pop(uid)
            holding[tenant] -= len(modules)
            views[host] = replace(views[host], free=views[host].free | set(modules))
        else:
            size = arrivals[uid].size
            queue.append(Waiting(uid, f"t{int(uid[1:]) % TENANTS}", size, now))
        found = schedule(
            queue, holding, list(views.values()), now=now, patience_seconds=patience_hours
        )
        for grant in found.grants:
            request, placement = grant.request, grant.placement
            modules = placement.partition.modules
            views[placement.host] = views[placement.host].without(modules)
            holding[request.tenant] += len(modules)
            waits[request.uid] = now - request.since
            end = now + arrivals[request.uid].end - arrivals[request.uid].start
            used += len(modules) * max(0.0, min(end, last) - min(now, last))
            ends[request.uid] = (request.tenant, placement.host, modules)
            heapq.heappush(events, (end, request.uid))
        served = {grant.request.uid for grant in found.grants}
        queue = [waiting for waiting in queue if waiting.uid not in served]
    large = [wait for uid, wait in waits.items() if arrivals[uid].size == GPUS]
    assert len(waits) == len(requests)
    return Waits(mean(waits.values()), mean(large), max(large), used / (last * boards * GPUS))
