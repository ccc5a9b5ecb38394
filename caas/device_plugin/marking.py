"""Marking leases as allocated, all of a group or none, by compare-and-swap on each."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from caas.cluster import ClusterError, ConflictError
from caas.device_plugin.leases import Leases, Objects
from gpuclusters.device_plugin.decide import Board, DeviceView, Grant, Refusal, decide

_TRIES = 4
_log = logging.getLogger(__name__)


class MarkError(Exception):
    """The leases were not marked; none of the devices may be given. One sentence."""


def with_allocated(body: Mapping[str, Any], *, allocated: bool) -> dict[str, Any]:
    """The lease with its mark set or taken away."""
    changed = copy.deepcopy(dict(body))
    changed["status"]["holder"]["allocated"] = allocated
    return changed


class Marker:
    """Marks the leases of one host."""

    def __init__(self, leases: Leases, read_seconds: float) -> None:
        self._leases = leases
        self._read_seconds = read_seconds

    async def mark(self, board: Board, asked: Sequence[str]) -> Grant | Refusal:
        """Give these devices to the pod that has their leases.

        `board` says what else is known of the host; the leases are read afresh. Whoever else writes to a
        lease meanwhile, the answer is a grant only if every mark was made by this call.

        Raises:
            MarkError: a mark could not be made; those that were made are taken back.
            ClusterError: the leases cannot be read.
        """
        objects = await self._leases.read(self._read_seconds)
        answer = decide(_with(board, self._leases, objects), asked)
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
        name = self._leases.name(device)
        for _ in range(_TRIES):
            try:
                return await self._leases.write(with_allocated(objects[name], allocated=True))
            except ConflictError:
                # Also met after an own write whose answer was lost: then the mark is there, and as
                # nobody can tell whose it is, it counts as another's.
                objects = await self._leases.read(self._read_seconds)
                board = _with(board, self._leases, objects)
                now = next(d for d in board.devices if d.device == device.device)
                if not now.waits or now.holder is None or now.holder.pod_uid != grant.pod_uid:
                    raise MarkError(
                        f"GPU {device.device} was taken while it was being allocated to {grant.pod}"
                    ) from None
            except ClusterError as error:
                raise MarkError(
                    f"GPU {device.device} could not be marked as allocated: {error}"
                ) from error
        raise MarkError(f"the lease of GPU {device.device} changes too often to be marked")

    async def _undo(self, made: Sequence[Mapping[str, Any]]) -> None:
        """Take back marks that were certainly ours.

        One that cannot be taken back stays until the pod has ended and the kubelet does not list the GPU.
        """
        for body in made:
            try:
                await self._leases.write(with_allocated(body, allocated=False))
            except ClusterError as error:
                _log.warning("mark of %s stays: %s", body["metadata"]["name"], error)


def _with(board: Board, leases: Leases, objects: Objects) -> Board:
    return Board(board.host, leases.views(objects), board.offered, board.listed)
