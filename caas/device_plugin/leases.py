"""The leases of one host's GPUs: followed, confirmed, read afresh, and marked by compare-and-swap."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from caas.cluster import Cluster, ClusterError
from caas.settings import Gpu, Host
from gpuclusters.device_plugin.decide import DeviceView
from gpuclusters.lease.model import GPU_LEASE, GPULeaseSpec, GPULeaseStatus, lease_name

HOST_LABEL = "kubernetes.io/hostname"
_log = logging.getLogger(__name__)

Objects = Mapping[str, Mapping[str, Any]]
"""Leases as they stand in the API server, by name."""
Clock = Callable[[], float]


class Leases:
    """What is known of the leases; `changed` is called whenever that is something else.

    Not thread-safe; every method is called from the program's event loop.
    """

    def __init__(
        self, cluster: Cluster, host: Host, clock: Clock, changed: Callable[[], None]
    ) -> None:
        self._cluster = cluster
        self._host = host
        self._clock = clock
        self._changed = changed
        self._objects: dict[str, Mapping[str, Any]] = {}
        self._confirmed = float("-inf")

    @property
    def devices(self) -> tuple[DeviceView, ...]:
        """All GPUs of the host, as last known."""
        return self.views(self._objects)

    def age(self) -> float:
        """Seconds since the API server last confirmed what is known; infinite before the first time."""
        return self._clock() - self._confirmed

    def views(self, objects: Objects) -> tuple[DeviceView, ...]:
        """All GPUs of the host with these leases."""
        return tuple(
            DeviceView(gpu.device, gpu.module, _status(objects, self._host.name, gpu))
            for gpu in self._host.gpus
        )

    async def read(self, seconds: float) -> Objects:
        """All leases of the host, read now.

        Raises:
            ClusterError: the API server did not answer in time, or refused.
        """
        asked = self._clock()
        try:
            async with asyncio.timeout(seconds):
                found = await self._cluster.list(
                    GPU_LEASE, labels=f"{HOST_LABEL}={self._host.name}"
                )
        except TimeoutError as error:
            raise ClusterError(
                f"{self._cluster.place} did not answer in {seconds:.0f} s", reason="Unreachable"
            ) from error
        objects = {body["metadata"]["name"]: body for body in found}
        self._confirmed = asked
        self._learn(objects.values(), complete=True)
        return objects

    async def follow(self) -> None:
        """Learn of every change, until cancelled."""
        labels = f"{HOST_LABEL}={self._host.name}"
        async for kind, body in self._cluster.watch(GPU_LEASE, labels=labels):
            if kind == "DELETED":
                self._objects.pop(body["metadata"]["name"], None)
                self._changed()
            elif kind != "SYNC":
                self._learn([body], complete=False)

    async def write(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Replace a lease's status if nobody changed it since it was read; what is there now.

        Raises:
            ConflictError: somebody changed it, or an answer was lost after it was written.
            ClusterError: the API server did not answer, or refused.
        """
        written = await self._cluster.replace_status(GPU_LEASE, body)
        self._learn([written], complete=False)
        return written

    def name(self, device: DeviceView) -> str:
        """The name of a device's lease."""
        return lease_name(self._host.name, device.module)

    def known(self, device: DeviceView) -> Mapping[str, Any] | None:
        """The lease as last known."""
        return self._objects.get(self.name(device))

    def _learn(self, bodies: Iterable[Mapping[str, Any]], *, complete: bool) -> None:
        """Take in what is newer than what is known; answers and events may overtake one another."""
        new = {body["metadata"]["name"]: body for body in bodies}
        before = dict(self._objects)
        if complete:
            self._objects = {name: body for name, body in before.items() if name in new}
        for name, body in new.items():
            known = self._objects.get(name)
            if known is None or _version(body) > _version(known) or _uid(body) != _uid(known):
                self._objects[name] = body
        if self._objects != before:
            self._changed()


def _version(body: Mapping[str, Any]) -> int:
    return int(body["metadata"]["resourceVersion"])


def _uid(body: Mapping[str, Any]) -> str:
    return str(body["metadata"]["uid"])


def _status(objects: Objects, host: str, gpu: Gpu) -> GPULeaseStatus | None:
    """The status of a GPU's lease; None when there is none that speaks of this very GPU."""
    body = objects.get(lease_name(host, gpu.module))
    if body is None or "status" not in body:
        return None
    try:
        spec = GPULeaseSpec.model_validate(body["spec"])
        status = GPULeaseStatus.model_validate(body["status"])
    except ValidationError as error:
        _log.warning("lease %s cannot be read: %s", body["metadata"]["name"], error)
        return None
    if (spec.node, spec.module, spec.device) != (host, gpu.module, gpu.device):
        _log.warning("lease %s is of another GPU than the settings say", body["metadata"]["name"])
        return None
    return status
