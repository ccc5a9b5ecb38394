"""The leases of one host's GPUs: followed, confirmed, read afresh, and marked by compare-and-swap."""

import asyncio
import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from caas.cluster import Cluster, ClusterError, ConflictError, Event
from caas.mirror import Mirror
from caas.settings import Gpu, Host
from gpuclusters.device_plugin.decide import Board, DeviceView, Grant, Refusal, decide
from gpuclusters.lease.model import GPU_LEASE, GPULeaseSpec, GPULeaseStatus, lease_name

HOST_LABEL = "kubernetes.io/hostname"
_TRIES = 4
_log = logging.getLogger(__name__)

Objects = Mapping[str, Mapping[str, Any]]
"""Leases as they stand in the API server, by name."""
Clock = Callable[[], float]


class MarkError(Exception):
    """The leases were not marked; none of the devices may be given. One sentence."""


class Leases:
    """What is known of the leases, `changed` told of news; a read takes `read` seconds at most."""

    def __init__(
        self, cluster: Cluster, host: Host, read: float, clock: Clock, changed: Callable[[], None]
    ) -> None:
        self._cluster, self._host = cluster, host
        self._read_seconds, self._clock, self._changed = read, clock, changed
        self._label = f"{HOST_LABEL}={host.name}"
        self._known = Mirror(GPU_LEASE, labels=self._label, changed=lambda _body: changed())
        self._confirmed = float("-inf")

    @property
    def devices(self) -> tuple[DeviceView, ...]:
        return self._views(self._known.within())

    def age(self) -> float:
        """Seconds since the API server last confirmed what is known; infinite before the first time."""
        return self._clock() - self._confirmed

    def _views(self, objects: Objects) -> tuple[DeviceView, ...]:
        return tuple(
            DeviceView(gpu.device, gpu.module, _status(objects, self._host.name, gpu))
            for gpu in self._host.gpus
        )

    async def read(self) -> Objects:
        """All leases of the host, read now; `ClusterError` without an answer in time."""
        asked = self._clock()
        try:
            async with asyncio.timeout(self._read_seconds):
                found = await self._cluster.list(GPU_LEASE, labels=self._label)
        except TimeoutError as error:
            said = f"{self._cluster.target} did not answer in {self._read_seconds:.0f} s"
            raise ClusterError(said, reason="Unreachable") from error
        self._confirmed = asked
        # Answers and events may overtake one another; of each lease the newest is kept.
        for body in found:
            self._known.take(Event("ADDED", body))
        self._known.take(Event("SYNC", {"metadata": {}, "items": found}))
        return {body["metadata"]["name"]: body for body in found}

    async def follow(self) -> None:
        await self._known.follow(self._cluster)

    async def write(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Replace a lease's status if nobody changed it since it was read; what is there now."""
        written = await self._cluster.replace_status(GPU_LEASE, body)
        self._known.wrote(written)
        self._changed()
        return written

    def known(self, device: DeviceView) -> Mapping[str, Any] | None:
        return self._known.get(lease_name(self._host.name, device.module))

    async def mark(self, board: Board, asked: Sequence[str]) -> Grant | Refusal:
        """Give these devices to the pod that has their leases: mark all of a group as allocated, or none.

        Leases are read afresh (`ClusterError`). Whoever else writes meanwhile, a grant means that this call
        made every mark; if one could not be made (`MarkError`), those that were made are taken back.
        """
        objects = await self.read()
        answer = decide(self._with(board, objects), asked)
        if isinstance(answer, Refusal):
            return answer
        made: list[Mapping[str, Any]] = []
        try:
            # In one order for all, so that of two who want the same GPUs one gets none.
            for device in sorted(answer.devices, key=lambda device: device.module):
                marked = await self._mark_one(board, objects, device, answer)
                made.append(marked)
        except BaseException:
            await self._undo(made)
            raise
        return answer

    async def _mark_one(
        self, board: Board, objects: Objects, device: DeviceView, grant: Grant
    ) -> Mapping[str, Any]:
        """Set one mark; a change of the lease that leaves it waiting for the same pod is no obstacle."""
        name = lease_name(self._host.name, device.module)
        for _ in range(_TRIES):
            try:
                return await self.write(with_allocated(objects[name], allocated=True))
            except ConflictError:
                # Also met after an own write whose answer was lost: then the mark is there, and as
                # nobody can tell whose it is, it counts as another's.
                objects = await self.read()
                views = self._with(board, objects).devices
                now = next(view for view in views if view.device == device.device)
                if not now.waits or now.holder is None or now.holder.pod_uid != grant.pod_uid:
                    taken = f"was taken while it was being allocated to {grant.pod}"
                    raise MarkError(f"GPU {device.device} {taken}") from None
            except ClusterError as error:
                unmarked = f"could not be marked as allocated: {error}"
                raise MarkError(f"GPU {device.device} {unmarked}") from error
        raise MarkError(f"the lease of GPU {device.device} changes too often to be marked")

    async def _undo(self, made: Sequence[Mapping[str, Any]]) -> None:
        """Take back marks that were certainly ours; one that stays goes when the pod has ended."""
        for body in made:
            try:
                await self.write(with_allocated(body, allocated=False))
            except ClusterError as error:
                _log.warning("mark of %s stays: %s", body["metadata"]["name"], error)

    def _with(self, board: Board, objects: Objects) -> Board:
        return replace(board, devices=self._views(objects), stale=False)


def with_allocated(body: Mapping[str, Any], *, allocated: bool) -> dict[str, Any]:
    """The lease with its mark set or taken away."""
    changed = copy.deepcopy(dict(body))
    changed["status"]["holder"]["allocated"] = allocated
    return changed


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
