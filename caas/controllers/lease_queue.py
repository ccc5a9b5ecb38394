"""The queue: pods that wait for GPUs, in fair order, placed on hosts whose leases are free."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from caas import metrics
from caas.controllers.events import Recorder
from caas.controllers.lease_host import HostLeases
from caas.controllers.lease_pods import gpus_of, is_gated
from gpuclusters.container_api.container import CONTAINER_LABEL
from gpuclusters.lease.model import HELD, Holder
from gpuclusters.lease.placement import BoardView, Grant, Waiting, partition_states, schedule
from gpuclusters.tenancy.isolation import TENANT_LABEL

LOOK_AGAIN_SECONDS = 5.0
"""How soon the queue is looked at again when nothing happens: patience runs out by time alone."""
LONGEST_REST_SECONDS = 1.0
REST = 3.0
"""How long to rest after a look, in times of what it took: what happens meanwhile is one look's work.

A look goes over all GPUs, and each GPU changes about ten times for each tenant.
"""
_LOG = logging.getLogger(__name__)

Object = Mapping[str, Any]
Tenancy = Callable[[str], Object | None]
"""The Tenancy of a tenant, as last seen."""
Serves = Callable[[str], bool]
"""Whether the scheduler may place pods on a node."""


class LeaseQueue:
    """Pods behind the gate of the leases."""

    def __init__(
        self,
        hosts: Mapping[str, HostLeases],
        tenancy: Tenancy,
        recorder: Recorder,
        gpu_resource: str,
        serves: Serves = lambda _node: True,
    ) -> None:
        self._hosts, self._tenancy, self._serves = hosts, tenancy, serves
        self._recorder, self._resource = recorder, gpu_resource
        self._pods: dict[str, Object] = {}
        self._refused: dict[str, str] = {}
        self._granting: dict[str, Grant] = {}
        """By pod: what is not stored yet, and is nobody else's any more."""
        self._tenants: set[str] = set()
        self._news = asyncio.Event()

    def observe(self, body: Object) -> None:
        """A pod as the API server has it."""
        uid = body["metadata"]["uid"]
        if is_gated(body) and not body["metadata"].get("deletionTimestamp"):
            self._pods[uid] = body
            self._news.set()
        else:
            self.forget(uid)

    def forget(self, uid: str) -> None:
        """The pod does not wait any more."""
        if self._pods.pop(uid, None) is not None:
            self._refused.pop(uid, None)
            self._news.set()

    def look(self) -> None:
        """GPUs or tenancies have changed."""
        self._news.set()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._news.clear()
                began = time.monotonic()
                for grant in self.turns():
                    uid = grant.request.uid
                    self._granting[uid] = grant
                    group.create_task(self._grant(grant, self._pods[uid]))
                rest = REST * (time.monotonic() - began)
                await asyncio.sleep(min(rest, LONGEST_REST_SECONDS))
                try:
                    async with asyncio.timeout(LOOK_AGAIN_SECONDS if self._pods else None):
                        await self._news.wait()
                except TimeoutError:
                    pass

    def turns(self) -> tuple[Grant, ...]:
        """Whose turn it is now."""
        holding: Counter[str] = Counter()
        having: set[str] = set()
        for host in self._hosts.values():
            for lease in host.leases.values():
                if lease.holder is not None:
                    having.add(lease.holder.pod_uid)
                    if lease.phase in HELD:
                        holding[lease.holder.tenant] += 1
        for uid, grant in self._granting.items():
            if uid not in having:
                holding[grant.request.tenant] += grant.request.size
        waiting = [
            request
            for uid, body in self._pods.items()
            if uid not in having and uid not in self._granting
            if (request := self._request(uid, body)) is not None
        ]
        boards = self._boards()
        self._count(waiting, boards)
        if not waiting:
            return ()
        # On a node that is out of service a pod would get its GPUs and then never be placed.
        serving = [board for board in boards if self._serves(board.host)]
        return schedule(waiting, holding, serving, now=time.time()).grants

    def _boards(self) -> list[BoardView]:
        """The boards as they will be once what is being granted is stored."""
        # Until then those GPUs look free, and who places by that cuts a board in pieces.
        given: dict[str, set[int]] = {}
        for grant in self._granting.values():
            placed = grant.placement
            given.setdefault(placed.host, set()).update(placed.partition.modules)
        return [
            host.view().without(frozenset(given.get(name, ())))
            for name, host in self._hosts.items()
        ]

    def _request(self, uid: str, body: Object) -> Waiting | None:
        metadata = body["metadata"]
        tenant = (metadata.get("labels") or {}).get(TENANT_LABEL, "")
        size = gpus_of(body, self._resource)
        if why := self._why_not(metadata["namespace"], tenant, size):
            if self._refused.get(uid) != why:
                self._refused[uid] = why
                self._recorder.note(
                    body, reason="NotQueued", action="Queue", note=why, kind="Warning"
                )
            return None
        self._refused.pop(uid, None)
        return Waiting(uid, tenant, size, _created(body))

    def _why_not(self, namespace: str, tenant: str, size: int) -> str:
        tenancy = self._tenancy(tenant) if tenant else None
        if tenancy is None or tenancy["spec"]["namespace"] != namespace:
            return "the namespace is not that of the tenant whom the pod names"
        if not is_ready(tenancy):
            return f"the isolation of tenant {tenant} is not enforced yet"
        if size < 1:
            return f"the pod does not ask for a whole number of {self._resource}"
        return ""

    async def _grant(self, grant: Grant, body: Object) -> None:
        partition = grant.placement.partition
        metadata = body["metadata"]
        holder = Holder(
            tenant=grant.request.tenant,
            namespace=metadata["namespace"],
            pod=metadata["name"],
            pod_uid=metadata["uid"],
            container=(metadata.get("labels") or {}).get(CONTAINER_LABEL, "")[:63],
            partition=partition.id,
            gpus=partition.modules,
        )
        try:
            stored = await self._hosts[grant.placement.host].grant(holder, body)
            if stored:
                note = f"{partition.size} GPU{'s' if partition.size > 1 else ''} reserved"
                self._recorder.note(body, reason="Reserved", action="Reserve", note=note)
        except asyncio.CancelledError:
            # Of the host's task, when that begins anew: the pod waits on. Of this one: it ends.
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
        finally:
            self._granting.pop(grant.request.uid, None)
            self._news.set()

    def _count(self, waiting: list[Waiting], boards: list[BoardView]) -> None:
        for (size, state), count in partition_states(boards, self._serves).items():
            metrics.CAPACITY_PARTITIONS.labels(str(size), state).set(count)
        counts = Counter(request.tenant for request in waiting)
        for tenant in self._tenants - set(counts):
            metrics.QUEUE_PODS.labels(tenant).set(0)
        for tenant, count in counts.items():
            metrics.QUEUE_PODS.labels(tenant).set(count)
        self._tenants |= set(counts)
        oldest = min((request.since for request in waiting), default=None)
        metrics.QUEUE_WAIT_SECONDS.set(0 if oldest is None else max(0, time.time() - oldest))


def is_ready(tenancy: Object) -> bool:
    """Whether all of the tenancy's isolation is enforced, as it stands now."""
    if tenancy["metadata"].get("deletionTimestamp"):
        return False
    generation = tenancy["metadata"].get("generation")
    return any(
        condition["type"] == "Ready"
        and condition["status"] == "True"
        and condition.get("observedGeneration", generation) == generation
        for condition in (tenancy.get("status") or {}).get("conditions") or ()
    )


def _created(body: Object) -> float:
    return datetime.fromisoformat(body["metadata"]["creationTimestamp"]).timestamp()
