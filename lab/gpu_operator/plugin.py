"""Device plugins of nodes: they register with kubelets, real or the lab's, and hand out CDI names."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.gpu_operator import device_nodes
from lab.kubelet.device_api import HEALTHY, Context, keep_registered
from lab.kubelet_api import deviceplugin_pb2 as api


class Devices:
    """One resource of one node, as the kubelet asks for it."""

    def __init__(self, resource: str) -> None:
        self._resource = resource
        self._ids: tuple[str, ...] = ()
        self._listeners: set[asyncio.Event] = set()

    @property
    def answers(self) -> dict[str, Callable[..., Any]]:
        return {
            "GetDevicePluginOptions": self.options,
            "ListAndWatch": self.list_and_watch,
            "GetPreferredAllocation": self.preferred_allocation,
            "Allocate": self.allocate,
            "PreStartContainer": self.pre_start_container,
        }

    def offer(self, ids: Sequence[str]) -> None:
        if tuple(ids) != self._ids:
            self._ids = tuple(ids)
            for listener in self._listeners:
                listener.set()

    async def options(self, request: api.Empty, context: Context) -> api.DevicePluginOptions:
        """As it registers: with preferred allocations, as the real plugin."""
        del request, context
        return api.DevicePluginOptions(get_preferred_allocation_available=True)

    async def list_and_watch(
        self, request: api.Empty, context: Context
    ) -> AsyncIterator[api.ListAndWatchResponse]:
        """All devices, again whenever they change."""
        del request, context
        news = asyncio.Event()
        self._listeners.add(news)
        try:
            while True:
                yield api.ListAndWatchResponse(
                    devices=[api.Device(ID=one, health=HEALTHY) for one in self._ids]
                )
                await news.wait()
                news.clear()
        finally:
            self._listeners.discard(news)

    async def preferred_allocation(
        self, request: api.PreferredAllocationRequest, context: Context
    ) -> api.PreferredAllocationResponse:
        """Devices that must be taken, then the lowest numbers."""
        del context
        return api.PreferredAllocationResponse(
            container_responses=[
                api.ContainerPreferredAllocationResponse(
                    deviceIDs=_lowest(
                        one.available_deviceIDs, one.must_include_deviceIDs, one.allocation_size
                    )
                )
                for one in request.container_requests
            ]
        )

    async def allocate(
        self, request: api.AllocateRequest, context: Context
    ) -> api.AllocateResponse:
        """The CDI names, as with native CDI of containerd 2: of one kind, whatever the resource is called."""
        del context
        return api.AllocateResponse(
            container_responses=[
                api.ContainerAllocateResponse(
                    cdi_devices=[
                        api.CDIDevice(name=f"{device_nodes.KIND}={name}")
                        for name in device_nodes.names(container.devices_ids)
                    ]
                )
                for container in request.container_requests
            ]
        )

    async def pre_start_container(
        self, request: api.PreStartContainerRequest, context: Context
    ) -> api.PreStartContainerResponse:
        del request, context
        return api.PreStartContainerResponse()


def _lowest(available: Sequence[str], needed: Sequence[str], size: int) -> list[str]:
    return [*needed, *sorted(set(available) - set(needed))][:size]


class NodePlugins:
    """The device plugin of one node, with all its resources."""

    def __init__(self, folder: Path) -> None:
        """`folder`: where the node's kubelet listens for device plugins."""
        self.folder = folder
        self._devices: dict[str, Devices] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def offer(self, resources: Mapping[str, Sequence[str]]) -> None:
        """These resources; one that was offered before stays, with no devices."""
        for resource in {*resources, *self._devices}:
            if resource not in self._devices:
                devices = self._devices[resource] = Devices(resource)
                registered = keep_registered(self.folder, resource, devices.answers)
                self._tasks[resource] = asyncio.create_task(registered)
            self._devices[resource].offer(resources.get(resource, ()))

    async def close(self) -> None:
        """The plugin ends; the kubelet takes its devices for unhealthy."""
        for task in self._tasks.values():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._tasks, self._devices = {}, {}
