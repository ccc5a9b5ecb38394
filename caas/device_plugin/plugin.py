"""The whole plugin of one host: leases, answers, registration and reconciliation as one thing."""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from caas.cluster import Cluster, ClusterError, stamp
from caas.controllers.controller import EVENT, EventType, event, heard
from caas.device_plugin.kubelet import PluginService, Registration
from caas.device_plugin.leases import Clock, Leases, with_allocated
from caas.kubelet_api import podresources_pb2 as api
from caas.kubelet_api.services import method
from caas.settings import Host
from gpuclusters.device_plugin.decide import (
    CLEARABLE,
    HELD_BY_ANOTHER,
    KUBELET_AGREES,
    Action,
    Board,
    Correction,
    DeviceView,
    PodName,
    is_disputed,
    reconcile,
)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    confirm: float = 10
    """How often the leases are read although nothing seems to have changed."""
    stale: float = 30
    """Leases that were not confirmed for so long are not believed: no free GPU is offered any more."""
    read: float = 8
    """The longest wait for the API server while a kubelet waits."""
    reconcile: float = 5
    """How often the kubelet's list is compared with the leases."""
    release: float = 1
    """How often that is done while a pod's end is awaited."""
    unseen: float = 30
    """How long an allocated GPU may be missing in the kubelet's list."""


def _devices(answer: api.ListPodResourcesResponse, resource: str) -> Listed:
    found: defaultdict[str, set[PodName]] = defaultdict(set)
    for pod in answer.pod_resources:
        held = [one for container in pod.containers for one in container.devices]
        for device in (d for one in held if one.resource_name == resource for d in one.device_ids):
            found[device].add(PodName(pod.namespace, pod.name))
    return {device: frozenset(pods) for device, pods in found.items()}


def _with_condition(body: Mapping[str, Any], fault: str | None) -> dict[str, Any]:
    """The lease with its condition: False with the fault, True without one."""
    condition = {
        "type": KUBELET_AGREES,
        "status": "True" if fault is None else "False",
        "reason": "Agrees" if fault is None else HELD_BY_ANOTHER,
        "message": fault or "",
        "lastTransitionTime": stamp(timespec="seconds"),
    }
    status = body["status"]
    others = [c for c in status.get("conditions") or () if c["type"] != KUBELET_AGREES]
    return {**body, "status": {**status, "conditions": [*others, condition]}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubelet:
    device_plugins: Path
    pod_resources: Path


class Plugin:
    def __init__(
        self,
        cluster: Cluster,
        host: Host,
        kubelet: Kubelet,
        *,
        resource: str,
        cdi_kind: str,
        pace: Pace | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._cluster, self._host, self._kubelet = cluster, host, kubelet
        self._resource, self._pace, self._clock = resource, pace or Pace(), clock
        self._allocated: dict[str, _Allocated] = {}
        self._listed: Listed = {}
        """What the kubelet said last."""
        self._look = asyncio.Event()
        self.leases = Leases(cluster, host, self._pace.read, clock, self._learnt)
        self.service = PluginService(self.leases, cdi_kind, self.board)
        self.registration = Registration(kubelet.device_plugins, resource, self.service)

    @property
    def ready(self) -> bool:
        """Whether the kubelet knows the plugin and the leases are known."""
        return self.registration.registered and not self.board().stale

    def board(self) -> Board:
        stale = self.leases.age() > self._pace.stale
        return Board(self._host.name, self.leases.devices, self._host.offered, self._listed, stale)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.leases.follow())
            tasks.create_task(self._confirm())
            tasks.create_task(self.registration.run())
            tasks.create_task(self._reconcile())

    def _learnt(self) -> None:
        self.service.changed()
        self._look.set()

    async def _confirm(self) -> None:
        """Read the leases again and again; what cannot be confirmed becomes unhealthy in time."""
        while True:
            try:
                await self.leases.read()
            except ClusterError as error:
                _log.warning("leases not confirmed for %.0f s: %s", self.leases.age(), error)
            self.service.changed()
            # In time for the moment from which they are not believed any more.
            left = self._pace.stale - self.leases.age()
            pause = min(self._pace.confirm, left + 0.1) if left > 0 else self._pace.confirm
            await asyncio.sleep(pause)

    async def _reconcile(self) -> None:
        """Compare what the kubelet says with the leases, again and again, and write what follows."""
        async with grpc.aio.insecure_channel(f"unix:{self._kubelet.pod_resources}") as channel:
            list_all = method(channel, "PodResourcesLister", "List")
            while True:
                try:
                    await self._compare(list_all)
                except grpc.aio.AioRpcError as error:
                    _log.warning("the kubelet does not list its devices: %s", error.details())
                await heard(self._look, self._pause())
                self._look.clear()

    async def _compare(self, list_all: Callable[..., Any]) -> None:
        # In this order: what the kubelet does not list after a lease was seen to end is really over.
        devices = self.leases.devices
        before = {device.device: self.leases.known(device) for device in devices}
        answer = await list_all(api.ListPodResourcesRequest(), timeout=_ASK_SECONDS)
        listed = _devices(answer, self._resource)
        if listed != self._listed:
            self._listed = listed
            self.service.changed()
        board = Board("", devices, (), listed)
        for todo in reconcile(board, self._unseen(devices, listed)):
            known = before[todo.device.device]
            if known is None:
                continue
            try:
                await self._act(todo, known)
            except ClusterError as error:
                # Somebody else changed the lease, or it cannot be written now: looked at again soon.
                _log.info("%s not written: %s", known["metadata"]["name"], error)

    def _pause(self) -> float:
        ends = any(
            d.allocated and d.status and d.status.phase in CLEARABLE for d in self.leases.devices
        )
        return self._pace.release if ends else self._pace.reconcile

    def _unseen(self, devices: Sequence[DeviceView], listed: Listed) -> frozenset[str]:
        """Devices that the kubelet may have been given without listing them yet, also right after a start."""
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
            if not known.seen and now - known.since <= self._pace.unseen
        )

    async def _act(self, todo: Correction, known: Mapping[str, Any]) -> None:
        name, gpu = known["metadata"]["name"], todo.device.device
        match todo.action:
            case Action.CLEAR:
                await self.leases.write(with_allocated(known, allocated=False))
                _log.info("the kubelet has let %s go", gpu)
            case Action.ADOPT:
                await self.leases.write(with_allocated(known, allocated=True))
                _log.warning("the kubelet had %s without its lease saying so", gpu)
            case Action.AGREE:
                await self._agreement(known, None)
            case Action.DISAGREE if not is_disputed(todo.device.status):
                said = f"the kubelet lists GPU {gpu} for pod {todo.pod}, whose lease it is not"
                await self._agreement(known, said)
                _log.error("%s: %s", name, said)

    async def _agreement(self, known: Mapping[str, Any], fault: str | None) -> None:
        """Set the condition of the lease, False with a fault, and tell of it."""
        await self.leases.write(_with_condition(known, fault))
        reason = KUBELET_AGREES if fault is None else HELD_BY_ANOTHER
        note = fault or "the kubelet's list is as the lease again"
        who, node = "gpu-clusters.dev/device-plugin", known["spec"]["node"]
        kind: EventType = "Normal" if fault is None else "Warning"
        told = event(known, who, node, reason, "Reconcile", note, kind)
        await self._cluster.create(EVENT, told)
