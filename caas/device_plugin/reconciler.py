"""What the kubelet says it has given away, compared with the leases again and again."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from caas.cluster import Cluster, ClusterError
from caas.device_plugin.leases import Clock, Leases
from caas.device_plugin.marking import with_allocated
from caas.kubelet_api import podresources_pb2 as api
from caas.kubelet_api.services import PodResourcesStub
from gpuclusters.device_plugin.decide import (
    CLEARABLE,
    HELD_BY_ANOTHER,
    KUBELET_AGREES,
    Adopt,
    Agree,
    Board,
    Clear,
    DeviceView,
    Disagree,
    Finding,
    PodName,
    reconcile,
)
from gpuclusters.domain.ports import ObjectKind
from gpuclusters.lease.model import GPU_LEASE

EVENT = ObjectKind("events.k8s.io", "v1", "events", "Event", namespaced=True)
_ASK_SECONDS = 5.0
_log = logging.getLogger(__name__)

Listed = Mapping[str, frozenset[PodName]]
"""For which pods the kubelet lists each device."""


@dataclass(slots=True)
class _Allocated:
    """Since when this process knows that a pod has a device, and whether the kubelet said so too."""

    pod_uid: str
    since: float
    seen: bool = False


class Reconciler:
    """Compares, and writes what follows onto the leases.

    Args:
        cluster: where events go.
        leases: the leases of the host.
        socket: the kubelet's PodResources.
        resource: name of the resource that the GPUs are to the kubelet.
        clock: for how long things last, in seconds.
        every_seconds: pause between two comparisons.
        release_seconds: the pause while a pod's end is awaited.
        unseen_seconds: how long a device that was just allocated may be missing in the kubelet's list.
    """

    def __init__(
        self,
        cluster: Cluster,
        leases: Leases,
        socket: Path,
        resource: str,
        *,
        clock: Clock,
        every_seconds: float,
        release_seconds: float,
        unseen_seconds: float,
    ) -> None:
        self._cluster = cluster
        self._leases = leases
        self._socket = socket
        self._resource = resource
        self._clock = clock
        self._every_seconds = every_seconds
        self._release_seconds = release_seconds
        self._unseen_seconds = unseen_seconds
        self._allocated: dict[str, _Allocated] = {}
        self._now = asyncio.Event()
        self.listed: Listed = {}
        """What the kubelet said last."""
        self.changed: Callable[[], None] = lambda: None
        """Called when it says something else."""

    def look(self) -> None:
        """Something happened: look now."""
        self._now.set()

    async def run(self) -> None:
        """Compare every few seconds, and whenever there is a reason to, until cancelled."""
        async with grpc.aio.insecure_channel(f"unix:{self._socket}") as channel:
            kubelet = PodResourcesStub(channel)
            while True:
                try:
                    await self.compare(kubelet)
                except grpc.aio.AioRpcError as error:
                    _log.warning("the kubelet does not list its devices: %s", error.details())
                try:
                    async with asyncio.timeout(self._pause()):
                        await self._now.wait()
                except TimeoutError:
                    continue
                self._now.clear()

    async def compare(self, kubelet: PodResourcesStub) -> None:
        """Ask the kubelet, write what follows.

        Raises:
            AioRpcError: the kubelet did not answer; then nothing follows.
        """
        # In this order: what the kubelet does not list after a lease was seen to end is really over.
        devices = self._leases.devices
        before = {device.device: self._leases.known(device) for device in devices}
        answer = await kubelet.list_all(api.ListPodResourcesRequest(), timeout=_ASK_SECONDS)
        listed = _devices(answer, self._resource)
        if listed != self.listed:
            self.listed = listed
            self.changed()
        board = Board("", devices, (), listed)
        for finding in reconcile(board, self._unseen(devices, listed)):
            known = before[finding.device.device]
            if known is None:
                continue
            try:
                await self._act(finding, known)
            except ClusterError as error:
                # Somebody else changed the lease, or it cannot be written now: looked at again soon.
                _log.info("%s not written: %s", known["metadata"]["name"], error)

    def _pause(self) -> float:
        ends = any(
            d.allocated and d.status and d.status.phase in CLEARABLE for d in self._leases.devices
        )
        return self._release_seconds if ends else self._every_seconds

    def _unseen(self, devices: Sequence[DeviceView], listed: Listed) -> frozenset[str]:
        """Devices that the kubelet may have been given without listing them yet.

        Also right after a start: what was allocated just before has not been seen by this process.
        """
        now = self._clock()
        allocated: dict[str, _Allocated] = {}
        for device in devices:
            if device.holder is not None and device.allocated:
                known = self._allocated.get(device.device)
                if known is None or known.pod_uid != device.holder.pod_uid:
                    known = _Allocated(device.holder.pod_uid, now)
                known.seen = known.seen or bool(listed.get(device.device))
                allocated[device.device] = known
        self._allocated = allocated
        return frozenset(
            device
            for device, known in allocated.items()
            if not known.seen and now - known.since <= self._unseen_seconds
        )

    async def _act(self, finding: Finding, known: Mapping[str, Any]) -> None:
        name = known["metadata"]["name"]
        match finding:
            case Clear(device):
                await self._leases.write(with_allocated(known, allocated=False))
                _log.info("the kubelet has let %s go", device.device)
            case Adopt(device):
                await self._leases.write(with_allocated(known, allocated=True))
                _log.warning("the kubelet had %s without its lease saying so", device.device)
            case Agree():
                await self._leases.write(_with_condition(known, None))
                await self._event(
                    known, "KubeletAgrees", "the kubelet's list is as the lease again"
                )
            case Disagree(device, pod):
                message = (
                    f"the kubelet lists GPU {device.device} for pod {pod}, whose lease it is not"
                )
                if _marked(device):
                    return
                await self._leases.write(_with_condition(known, message))
                await self._event(known, HELD_BY_ANOTHER, message, warning=True)
                _log.error("%s: %s", name, message)

    async def _event(
        self, about: Mapping[str, Any], reason: str, message: str, *, warning: bool = False
    ) -> None:
        metadata = about["metadata"]
        body = {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.kind,
            # Of a cluster-scoped object; Kubernetes keeps such events here.
            "metadata": {
                "name": f"{metadata['name']}.{secrets.token_hex(8)}",
                "namespace": "default",
            },
            "regarding": {
                "apiVersion": GPU_LEASE.api_version,
                "kind": GPU_LEASE.kind,
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
            "reason": reason,
            "note": message,
            "type": "Warning" if warning else "Normal",
            "action": "Reconcile",
            "eventTime": datetime.now(UTC)
            .isoformat(timespec="microseconds")
            .replace("+00:00", "Z"),
            "reportingController": "gpu-clusters.dev/device-plugin",
            "reportingInstance": about["spec"]["node"],
        }
        await self._cluster.create(EVENT, body)


def _marked(device: DeviceView) -> bool:
    conditions = device.status.conditions if device.status is not None else ()
    return any(c.type == KUBELET_AGREES and c.status == "False" for c in conditions)


def _devices(answer: api.ListPodResourcesResponse, resource: str) -> Listed:
    found: dict[str, set[PodName]] = {}
    for pod in answer.pod_resources:
        for container in pod.containers:
            for held in container.devices:
                if held.resource_name == resource:
                    for device in held.device_ids:
                        found.setdefault(device, set()).add(PodName(pod.namespace, pod.name))
    return {device: frozenset(pods) for device, pods in found.items()}


def _with_condition(body: Mapping[str, Any], fault: str | None) -> dict[str, Any]:
    """The lease with its condition: False with the fault, True without one."""
    condition = {
        "type": KUBELET_AGREES,
        "status": "True" if fault is None else "False",
        "reason": "Agrees" if fault is None else HELD_BY_ANOTHER,
        "message": fault or "",
        "lastTransitionTime": _timestamp(),
    }
    status = body["status"]
    others = [c for c in status.get("conditions") or () if c["type"] != KUBELET_AGREES]
    return {**body, "status": {**status, "conditions": [*others, condition]}}


def _timestamp() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
