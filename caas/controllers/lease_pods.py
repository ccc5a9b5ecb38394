"""Pods that ask for GPUs: what leases know of them and do to them, and how long they take to start."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from caas import metrics
from caas.cluster import Cluster, ClusterError, ConflictError, seconds_of
from caas.controllers.controller import Recorder, heard
from gpuclusters.container_api.container import LEASE_ANNOTATION, LEASE_GATE
from gpuclusters.core.quantity import parse_quantity
from gpuclusters.lease import board
from gpuclusters.tenancy.objects import POD

LEAST_SHARE = 0.25
"""Of its time to start that a pod gets which is first seen late."""
AGAIN_SECONDS = 10.0
"""How long after a deletion that failed, or had no effect yet, it is tried again."""
SCHEDULED, SANDBOX, STARTED = "scheduled", "sandbox", "started"
_LOG = logging.getLogger(__name__)

Body = Mapping[str, Any]


def pod_of(body: Body) -> board.Pod:
    state = board.PodState.GOING
    if _has_ended(body):
        state = board.PodState.ENDED
    elif body["metadata"].get("deletionTimestamp"):
        state = board.PodState.ENDING
    elif is_gated(body):
        state = board.PodState.WAITING
    lease = "" if state is board.PodState.WAITING else _lease_of(body)
    return board.Pod(body["metadata"]["uid"], state, lease)


def is_gated(body: Body) -> bool:
    """Whether the pod still has the gate of the leases."""
    gates = (body.get("spec") or {}).get("schedulingGates") or ()
    return any(gate.get("name") == LEASE_GATE for gate in gates)


def gpus_of(body: Body, resource: str) -> int:
    """How many GPUs the pod asks for; 0 for none and for what is no whole number."""
    total = 0
    for container in body["spec"].get("containers") or ():
        amount = ((container.get("resources") or {}).get("limits") or {}).get(resource, "0")
        try:
            wanted = parse_quantity(str(amount))
        except ValueError:
            return 0
        if wanted != int(wanted):
            return 0
        total += int(wanted)
    return total


def _lease_of(body: Body) -> str:
    """`<host>/<partition>` that the pod was let go to; empty if it was not."""
    return str((body["metadata"].get("annotations") or {}).get(LEASE_ANNOTATION, ""))


def _has_ended(body: Body) -> bool:
    return (body.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _true(body: Body) -> dict[str, Body]:
    """The conditions that hold, by type."""
    conditions = (body.get("status") or {}).get("conditions") or ()
    return {one["type"]: one for one in conditions if one["status"] == "True"}


def reached(body: Body) -> Iterator[str]:
    """The steps of its start that the pod has behind it."""
    true = _true(body)
    if "PodScheduled" in true:
        yield SCHEDULED
    containers = (body.get("status") or {}).get("containerStatuses") or ()
    # An image that ends at once has been started all the same.
    started = any({"running", "terminated"} & set(c.get("state") or ()) for c in containers)
    if "PodReadyToStartContainers" in true or started:
        yield SANDBOX
    if started:
        yield STARTED


async def do_to_pod(
    cluster: Cluster, effect: board.FindPod | board.AdmitPod | board.DeletePod
) -> board.Outcome:
    name, namespace = effect.name, effect.namespace
    try:
        if isinstance(effect, board.DeletePod):
            with suppress(ConflictError):  # another of its name is there: that very pod is gone
                await cluster.delete(POD, name, namespace, uid=effect.uid)
        body = await cluster.get(POD, name, namespace)
        if body is None or body["metadata"]["uid"] != effect.uid:
            return board.Succeeded(effect, board.Pod(effect.uid, board.PodState.GONE))
        if isinstance(effect, board.AdmitPod) and pod_of(body).state is board.PodState.WAITING:
            try:
                body = await cluster.patch(POD, name, namespace, _admission(effect, body))
            except ConflictError as error:
                return board.Refused(effect, str(error))
        return board.Succeeded(effect, pod_of(body))
    except ClusterError as error:
        return board.Failed(effect, str(error))


def _admission(effect: board.AdmitPod, body: Body) -> Body:
    """Opens the gate, if the pod is still the one that was looked at: any change in between refuses."""
    gates = [g for g in body["spec"]["schedulingGates"] if g.get("name") != LEASE_GATE]
    host = effect.lease.rpartition("/")[0]
    return {
        "metadata": {
            "uid": effect.uid,
            "resourceVersion": body["metadata"]["resourceVersion"],
            "annotations": {LEASE_ANNOTATION: effect.lease},
        },
        "spec": {"schedulingGates": gates, "nodeSelector": {"kubernetes.io/hostname": host}},
    }


class BootTimes:
    """How long containers take to start after their GPUs were leased, for pods seen at the gate.

    Of others nobody knows when they got their GPUs.
    """

    def __init__(self, gpu_resource: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._resource, self._clock = gpu_resource, clock
        self._leased: dict[str, tuple[float, frozenset[str]] | None] = {}
        """Since when a pod has its GPUs, and the steps that were told of; None: it is at the gate."""

    def observe(self, body: Body) -> None:
        uid = body["metadata"]["uid"]
        if is_gated(body):
            self._leased.setdefault(uid, None)
            return
        if uid not in self._leased:
            return
        if not _lease_of(body):
            self.forget(uid)
            return
        since, told = self._leased[uid] or (self._clock(), frozenset())
        now = frozenset(reached(body))
        for step in now - told:
            gpus = str(gpus_of(body, self._resource))
            metrics.BOOT_SECONDS.labels(step, gpus).observe(self._clock() - since)
        self._leased[uid] = since, told | now
        if STARTED in now:
            self.forget(uid)

    def forget(self, uid: str) -> None:
        """The pod is gone, or needs no more attention."""
        self._leased.pop(uid, None)


class LateStarts:
    """Ends pods that have their GPUs and do not start, so that the GPUs go to somebody who can use them.

    The deadline, longer than the kubelet tries once, begins with the pod's place on a node, by the clock of
    the cluster. How long the kubelet may take to allocate the GPUs is the leases' own matter.
    """

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
        """Nothing is watched yet; `fence` raises if this program must not act."""
        self._cluster, self._recorder, self._seconds = cluster, recorder, seconds
        self._fence, self._clock, self._wall = fence, clock, wall
        self._bodies: dict[str, Body] = {}
        self._until: dict[str, float] = {}
        self._told: set[str] = set()
        self._news = asyncio.Event()

    def observe(self, body: Body) -> None:
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
        while True:
            self._news.clear()
            await self.end_late()
            first = min(self._until.values(), default=None)
            await heard(self._news, None if first is None else max(0.0, first - self._clock()))

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
            self._recorder.note(body, "StartTimedOut", "End", note, "Warning")
            fields = {"pod": metadata["name"], "seconds": self._seconds}
            _LOG.warning("pod ended: it did not start in time", extra={"fields": fields})
        try:
            await self._cluster.delete(POD, metadata["name"], metadata["namespace"], uid=uid)
        except ConflictError:
            self.forget(uid)  # another pod of that name


def _waits_since(body: Body) -> float | None:
    """When the pod got its node, in seconds; None if it need not be waited for."""
    if body["metadata"].get("deletionTimestamp") or _has_ended(body) or is_gated(body):
        return None
    if not _lease_of(body) or STARTED in reached(body):
        return None
    placed = _true(body).get("PodScheduled")
    return None if placed is None else seconds_of(placed["lastTransitionTime"])
