"""The API server as the API uses it: a bounded number of calls at once, each with an end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any, TypeVar

from caas.api.problems import Problem, ProblemError, retry_after
from caas.cluster import Cluster, ClusterError
from gpuclusters.domain.ports import ObjectKind

AT_ONCE = 64
SECONDS = 10.0
_SERVER_ERROR = 500
_OVERLOADED = 429

T = TypeVar("T")


class Kube:
    """Calls that raise `ClusterError`, also when they take too long."""

    def __init__(self, cluster: Cluster, *, seconds: float = SECONDS) -> None:
        self._cluster = cluster
        self._seconds = seconds
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def get(self, kind: ObjectKind, name: str, namespace: str = "") -> dict[str, Any] | None:
        """The object or None."""
        return await self._bounded(self._cluster.get(kind, name, namespace))

    async def list(self, kind: ObjectKind, namespace: str, fields: str) -> list[dict[str, Any]]:
        """Objects of a namespace."""
        return await self._bounded(self._cluster.list(kind, namespace, fields=fields))

    async def create(self, kind: ObjectKind, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create it."""
        return await self._bounded(self._cluster.create(kind, body))

    async def delete(self, kind: ObjectKind, name: str, namespace: str, uid: str) -> None:
        """Begin the deletion of this very object."""
        await self._bounded(self._cluster.delete(kind, name, namespace, uid=uid))

    async def _bounded(self, call: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._seconds), self._slots:
                return await call
        except TimeoutError:
            raise ClusterError(
                f"the API server did not answer within {self._seconds:g} s", reason="Timeout"
            ) from None
        finally:
            if asyncio.iscoroutine(call):
                call.close()


def away(error: ClusterError) -> bool:
    """Whether the server did not decide, so that the same may go well later."""
    return error.status in (0, _OVERLOADED) or error.status >= _SERVER_ERROR


def cluster_away() -> ProblemError:
    """The problem of a cluster that does not answer; what it is called is nobody's business."""
    return retry_after(Problem.CLUSTER_AWAY, "the cluster does not answer; try again", 2)
