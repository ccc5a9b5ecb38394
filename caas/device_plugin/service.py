"""The plugin's answers to the kubelet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import NoReturn

import grpc
import grpc.aio

from caas import metrics
from caas.cluster import ClusterError
from caas.device_plugin.marking import Marker, MarkError
from caas.kubelet_api import deviceplugin_pb2 as api
from caas.kubelet_api.services import HEALTHY, UNHEALTHY, Context
from gpuclusters.device_plugin.decide import Board, Refusal, is_healthy, preferred

OPTIONS = api.DevicePluginOptions(pre_start_required=False, get_preferred_allocation_available=True)
_log = logging.getLogger(__name__)


class PluginService:
    """Answers for one host. `board` gives what is known now."""

    def __init__(
        self,
        marker: Marker,
        cdi_kind: str,
        board: Callable[[], Board],
    ) -> None:
        self._marker = marker
        self._cdi_kind = cdi_kind
        self._board = board
        self._allocating = asyncio.Lock()
        self._listeners: set[asyncio.Event] = set()

    def changed(self) -> None:
        """Something is known anew: whoever listens is told if that changes what is announced."""
        for listener in self._listeners:
            listener.set()
        board = self._board()
        healthy = sum(is_healthy(board, device) for device in board.devices)
        gauge = metrics.DEVICE_PLUGIN_DEVICES
        gauge.labels(health="healthy").set(healthy)
        gauge.labels(health="unhealthy").set(len(board.devices) - healthy)

    async def options(self, request: api.Empty, context: Context) -> api.DevicePluginOptions:
        """Preferred allocations are offered; nothing happens before a container starts."""
        del request, context
        return OPTIONS

    async def list_and_watch(
        self, request: api.Empty, context: Context
    ) -> AsyncIterator[api.ListAndWatchResponse]:
        """All GPUs with their health, again whenever that changes."""
        del request, context
        news = asyncio.Event()
        self._listeners.add(news)
        told: api.ListAndWatchResponse | None = None
        try:
            while True:
                now = self._announced()
                if now != told:
                    yield now
                    told = now
                await news.wait()
                news.clear()
        finally:
            self._listeners.discard(news)

    async def preferred_allocation(
        self, request: api.PreferredAllocationRequest, context: Context
    ) -> api.PreferredAllocationResponse:
        """The group that waits for its GPUs, or the partition whose loss hurts least."""
        del context
        board = self._board()
        return api.PreferredAllocationResponse(
            container_responses=[
                api.ContainerPreferredAllocationResponse(
                    deviceIDs=preferred(
                        board,
                        container.available_deviceIDs,
                        container.must_include_deviceIDs,
                        container.allocation_size,
                    )
                )
                for container in request.container_requests
            ]
        )

    async def allocate(
        self, request: api.AllocateRequest, context: Context
    ) -> api.AllocateResponse:
        """The CDI names of the GPUs of one leased group, marked as allocated; or an error."""
        if len(request.container_requests) != 1:
            # A pod has one container with GPUs; the kubelet asks for each container by itself.
            await self._refuse(context, "refused", "ask for one container at a time")
        asked = list(request.container_requests[0].devices_ids)
        async with self._allocating:
            try:
                answer = await self._marker.mark(self._board(), asked)
            except (MarkError, ClusterError) as error:
                await self._refuse(context, "error", str(error), grpc.StatusCode.UNAVAILABLE)
        if isinstance(answer, Refusal):
            await self._refuse(context, "refused", answer.message)
        metrics.DEVICE_PLUGIN_ALLOCATIONS.labels(result="granted").inc()
        _log.info(
            "allocated", extra={"fields": {"pod": str(answer.pod), "devices": ",".join(asked)}}
        )
        return api.AllocateResponse(
            container_responses=[
                api.ContainerAllocateResponse(
                    cdi_devices=[
                        api.CDIDevice(name=f"{self._cdi_kind}={device.device}")
                        for device in answer.devices
                    ]
                )
            ]
        )

    async def pre_start_container(
        self, request: api.PreStartContainerRequest, context: Context
    ) -> api.PreStartContainerResponse:
        """Nothing to do: the kubelet is told not to ask."""
        del request, context
        return api.PreStartContainerResponse()

    def _announced(self) -> api.ListAndWatchResponse:
        board = self._board()
        return api.ListAndWatchResponse(
            devices=[
                api.Device(
                    ID=device.device, health=HEALTHY if is_healthy(board, device) else UNHEALTHY
                )
                for device in board.devices
            ]
        )

    async def _refuse(
        self,
        context: Context,
        result: str,
        message: str,
        code: grpc.StatusCode = grpc.StatusCode.FAILED_PRECONDITION,
    ) -> NoReturn:
        metrics.DEVICE_PLUGIN_ALLOCATIONS.labels(result=result).inc()
        _log.warning("not allocated: %s", message)
        await context.abort(code, message)
        raise AssertionError("abort raises")
