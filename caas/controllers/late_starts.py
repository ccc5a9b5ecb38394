"""Pods that have their GPUs and do not start: ended, so that the GPUs go to somebody who can use them.

The deadline is the cluster's own: longer than the kubelet tries once, so that its error is seen first. It
begins with the pod's place on a node, by the clock of the cluster, and is obeyed by one that never jumps: a
pod that is first seen late gets what is left of its time, but at least a quarter. How long the kubelet may
take to allocate the GPUs is another matter, and the leases' own (`lease_admission.py`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from caas import metrics
from caas.cluster import Cluster, ClusterError, ConflictError
from caas.controllers.boot_times import STARTED, reached
from caas.controllers.events import Recorder
from caas.controllers.lease_pods import is_gated
from gpuclusters.container_api.container import LEASE_ANNOTATION, POD

LEAST_SHARE = 0.25
AGAIN_SECONDS = 10.0
"""How long after a deletion that failed, or had no effect yet, it is tried again."""
_TERMINAL = ("Succeeded", "Failed")
_LOG = logging.getLogger(__name__)

Body = Mapping[str, Any]


class LateStarts:
    """Watches pods from their node to the running container."""

    def __init__(
        self,
        cluster: Cluster,
        recorder: Recorder,
        seconds: float,
        *,
        fence: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Nothing is watched yet.

        Args:
            cluster: where the pods are.
            recorder: tells of what is ended.
            seconds: how long a pod that has its GPUs may take until its container runs.
            fence: raises if this program must not act.
            clock: never jumps.
            wall: the time of day.
        """
        self._cluster = cluster
        self._recorder = recorder
        self._seconds = seconds
        self._fence = fence
        self._clock = clock
        self._wall = wall
        self._bodies: dict[str, Body] = {}
        self._until: dict[str, float] = {}
        self._told: set[str] = set()
        self._news = asyncio.Event()

    def observe(self, body: Body) -> None:
        """A pod as the API server has it."""
        uid = body["metadata"]["uid"]
        since = _waits_since(body)
        if since is None:
            self.forget(uid)
            return
        self._bodies[uid] = body
        if uid not in self._until:
            left = since + self._seconds - self._wall()
            least = LEAST_SHARE * self._seconds
            self._until[uid] = self._clock() + min(max(left, least), self._seconds)
            self._news.set()

    def forget(self, uid: str) -> None:
        """The pod is gone, or has started."""
        self._bodies.pop(uid, None)
        self._until.pop(uid, None)
        self._told.discard(uid)

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            self._news.clear()
            await self.end_late()
            first = min(self._until.values(), default=None)
            seconds = None if first is None else max(0.0, first - self._clock())
            try:
                async with asyncio.timeout(seconds):
                    await self._news.wait()
            except TimeoutError:
                pass

    async def end_late(self) -> None:
        """End those whose time is over. Once ended they are forgotten as soon as that is seen."""
        now = self._clock()
        for uid in [uid for uid, until in self._until.items() if until <= now]:
            body = self._bodies[uid]
            self._until[uid] = now + AGAIN_SECONDS
            self._fence()
            try:
                await self._end(uid, body)
            except ClusterError as error:
                _LOG.warning("pod %s is late and still there: %s", body["metadata"]["name"], error)

    async def _end(self, uid: str, body: Body) -> None:
        metadata = body["metadata"]
        if uid not in self._told:
            self._told.add(uid)
            metrics.LATE_STARTS.inc()
            note = (
                f"its container did not start within {self._seconds:g} s after its machine got it; "
                "it is ended and its GPUs go on"
            )
            self._recorder.note(
                body, reason="StartTimedOut", action="End", note=note, kind="Warning"
            )
            _LOG.warning(
                "pod ended: it did not start in time",
                extra={"fields": {"pod": metadata["name"], "seconds": self._seconds}},
            )
        try:
            await self._cluster.delete(POD, metadata["name"], metadata["namespace"], uid=uid)
        except ConflictError:
            self.forget(uid)  # another pod of that name


def _waits_since(body: Body) -> float | None:
    """When the pod got its node, in seconds; None if it need not be waited for."""
    metadata, status = body["metadata"], body.get("status") or {}
    if metadata.get("deletionTimestamp") or status.get("phase") in _TERMINAL or is_gated(body):
        return None
    if LEASE_ANNOTATION not in (metadata.get("annotations") or {}) or STARTED in reached(body):
        return None
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "True":
            return datetime.fromisoformat(condition["lastTransitionTime"]).timestamp()
    return None
