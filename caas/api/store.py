"""The cluster as the API uses it: what is read often from watches, calls that are bounded and end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from caas.cluster import Cluster, ClusterError
from caas.mirror import Mirror, Object
from gpuclusters.container_api.container import CONTAINER_LABEL
from gpuclusters.lease.model import GPU_LEASE
from gpuclusters.lease.placement import Outage, outages
from gpuclusters.tenancy.isolation import TENANT_LABEL
from gpuclusters.tenancy.model import CLAIM, TENANCY
from gpuclusters.tenancy.objects import NODE, POD, RESOURCE_QUOTA

AT_ONCE = 64
SECONDS = 10.0
"""How long one call may take."""
_log = logging.getLogger(__name__)
T = TypeVar("T")


class Store:
    """The kinds that the API reads: containers, tenancies, their quotas and volumes, leases, nodes."""

    def __init__(self, cluster: Cluster, *, seconds: float = SECONDS) -> None:
        self._cluster = cluster
        self._seconds = seconds
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._mirrors = (
            Mirror(POD, labels=CONTAINER_LABEL),
            Mirror(TENANCY),
            Mirror(RESOURCE_QUOTA),
            Mirror(GPU_LEASE, group=_holding_pod),
            Mirror(CLAIM, labels=TENANT_LABEL),
            Mirror(NODE),
        )
        self.pods, self.tenancies, self.quotas, self.leases, self.claims, self.nodes = self._mirrors
        self._tasks: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch as long as the context lasts."""
        self._tasks = [asyncio.create_task(self._follow(mirror)) for mirror in self._mirrors]
        try:
            yield
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def alive(self) -> bool:
        """Whether every watch goes on."""
        return bool(self._tasks) and not any(task.done() for task in self._tasks)

    @property
    def synced(self) -> bool:
        """Whether everything has been seen once."""
        return all(mirror.synced.is_set() for mirror in self._mirrors)

    def outages(self, machines: Iterable[str]) -> dict[str, Outage]:
        """Those of these machines on which nothing new is placed, and why."""
        return outages(machines, self.nodes.within())

    def leases_of(self, pod: Object) -> list[Object]:
        """The leases that are held for a pod."""
        return list(self.leases.within(str(pod["metadata"].get("uid", ""))).values())

    async def bounded(self, call: Awaitable[T]) -> T:
        """A call to the cluster, of which only some are made at once; it is over when it takes too long."""
        try:
            async with asyncio.timeout(self._seconds), self._slots:
                return await call
        except TimeoutError:
            late = f"the API server did not answer within {self._seconds:g} s"
            raise ClusterError(late, reason="Timeout") from None
        finally:
            if asyncio.iscoroutine(call):
                call.close()

    async def _follow(self, mirror: Mirror) -> None:
        try:
            await mirror.follow(self._cluster)
        except Exception:
            # Seen by `alive`: a program that no longer learns what happens must be started again.
            _log.exception("the watch of %s ended", mirror.kind.plural)
            raise


def _holding_pod(lease: dict[str, Any]) -> str | None:
    holder = (lease.get("status") or {}).get("holder")
    return str(holder["podUid"]) if holder else None
