"""One registered device plugin, as the kubelet sees it: its devices, and the calls to it."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message

from lab.kubelet.device_api import HEALTHY, method
from lab.kubelet_api import deviceplugin_pb2 as api

_ALLOCATE_SECONDS = 60.0
_HINT_SECONDS = 60.0
_log = logging.getLogger(__name__)


class PluginError(Exception):
    """The plugin refused or did not answer; the text is its own."""


class PluginEndpoint:
    """A plugin that serves one resource; `changed` is called whenever its devices change."""

    def __init__(
        self,
        resource: str,
        socket: Path,
        options: api.DevicePluginOptions,
        changed: Callable[[], None],
    ) -> None:
        self.resource = resource
        self.devices: dict[str, bool] = {}
        """Health by id; all unhealthy once the plugin is gone."""
        self._options = options
        self._changed = changed
        self._channel = grpc.aio.insecure_channel(f"unix:{socket}")
        self._watching = asyncio.create_task(self._watch())

    @property
    def healthy(self) -> list[str]:
        return sorted(device for device, healthy in self.devices.items() if healthy)

    async def close(self) -> None:
        self._watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._watching
        await self._channel.close(grace=None)

    async def preferred(self, available: Collection[str], size: int) -> list[str]:
        """The plugin's choice if it has one that can be taken, else none."""
        if not self._options.get_preferred_allocation_available:
            return []
        request = api.PreferredAllocationRequest(
            container_requests=[
                api.ContainerPreferredAllocationRequest(
                    available_deviceIDs=sorted(available), allocation_size=size
                )
            ]
        )
        answer = await self._ask("GetPreferredAllocation", request, _HINT_SECONDS)
        return [d for d in answer.container_responses[0].deviceIDs if d in available][:size]

    async def allocate(self, devices: Sequence[str]) -> api.ContainerAllocateResponse:
        """Ask for these devices for one container."""
        request = api.AllocateRequest(
            container_requests=[api.ContainerAllocateRequest(devices_ids=devices)]
        )
        answer = await self._ask("Allocate", request, _ALLOCATE_SECONDS)
        response: api.ContainerAllocateResponse = answer.container_responses[0]
        return response

    async def _ask(self, name: str, request: Message, seconds: float) -> Any:
        try:
            return await method(self._channel, "DevicePlugin", name)(request, timeout=seconds)
        except grpc.aio.AioRpcError as error:
            raise PluginError(_said(error)) from error

    async def _watch(self) -> None:
        try:
            async for answer in method(self._channel, "DevicePlugin", "ListAndWatch")(api.Empty()):
                self.devices = {device.ID: device.health == HEALTHY for device in answer.devices}
                self._changed()
        except grpc.aio.AioRpcError as error:
            _log.info("plugin of %s is gone: %s", self.resource, error.details())
        self.devices = dict.fromkeys(self.devices, False)
        self._changed()


def _said(error: grpc.aio.AioRpcError) -> str:
    code = error.code().name.title().replace("_", "")
    return f"rpc error: code = {code} desc = {error.details()}"
