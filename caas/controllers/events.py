"""Events (events.k8s.io/v1) about leases, pods and tenancies: what an operator reads first.

Best effort and never in the way: they are sent from a queue of their own, and what does not fit into it
or is refused is dropped with a line in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from caas.cluster import Cluster, ClusterError
from gpuclusters.core.ports import ObjectKind

EVENT = ObjectKind("events.k8s.io", "v1", "events", "Event", namespaced=True)
CONTROLLER = "gpu-clusters.dev/leases"
QUEUE = 10_000
SENDERS = 8
_CLUSTER_SCOPED_IN = "default"
_LOG = logging.getLogger(__name__)


def event(
    about: Mapping[str, Any],
    controller: str,
    instance: str,
    *,
    reason: str,
    action: str,
    note: str,
    kind: Literal["Normal", "Warning"] = "Normal",
) -> dict[str, Any]:
    """What a controller's instance says about an object: `reason` and `action` in CamelCase, one sentence."""
    metadata = about["metadata"]
    own = {"namespace": metadata["namespace"]} if metadata.get("namespace") else {}
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {
            "name": f"{metadata['name'][:200]}.{secrets.token_hex(8)}",
            "namespace": _CLUSTER_SCOPED_IN,
            **own,
        },
        "eventTime": datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "reportingController": controller,
        "reportingInstance": instance[:128],
        "action": action,
        "reason": reason,
        "note": note[:1024],
        "type": kind,
        "regarding": {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "name": metadata["name"],
            "uid": metadata["uid"],
            **own,
        },
    }


class Recorder:
    """Sends events in the background."""

    def __init__(self, cluster: Cluster, instance: str, controller: str = CONTROLLER) -> None:
        self._cluster, self._instance, self._controller = cluster, instance, controller
        self._queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(QUEUE)

    def note(
        self,
        about: Mapping[str, Any],
        *,
        reason: str,
        action: str,
        note: str,
        kind: Literal["Normal", "Warning"] = "Normal",
    ) -> None:
        """Say what happened to an object, as `event`; returns at once."""
        body = event(
            about,
            self._controller,
            self._instance,
            reason=reason,
            action=action,
            note=note,
            kind=kind,
        )
        try:
            self._queue.put_nowait(body)
        except asyncio.QueueFull:
            _LOG.warning("event dropped: %s %s", about["metadata"]["name"], reason)

    async def run(self) -> None:
        """Send until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(SENDERS):
                group.create_task(self._send())

    async def flush(self, seconds: float) -> None:
        """Wait until all is sent, but not longer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._queue.join()

    async def _send(self) -> None:
        while True:
            body = await self._queue.get()
            try:
                await self._cluster.create(EVENT, body)
            except ClusterError as error:
                _LOG.warning("event not sent: %s", error)
            finally:
                self._queue.task_done()
