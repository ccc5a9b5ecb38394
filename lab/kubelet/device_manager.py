"""The device manager of one kubelet: plugins register with it, pods get their devices from it."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

import grpc
import grpc.aio

from lab.kubelet import device_api
from lab.kubelet.checkpoint import Allocation, Checkpoint
from lab.kubelet.folder import NodeFolder
from lab.kubelet.plugin_endpoint import PluginEndpoint, PluginError
from lab.kubelet_api import deviceplugin_pb2 as api

REJECTED = "UnexpectedAdmissionError"
"""Reason of a pod whose devices could not be had."""
_log = logging.getLogger(__name__)


class AdmissionError(Exception):
    """The pod cannot have its devices; the text is what a kubelet would say."""


class DeviceManager:
    """Devices of one node. `changed` is called whenever what the node offers changes."""

    def __init__(self, folder: NodeFolder, changed: Callable[[], None]) -> None:
        self._folder = folder
        self._changed = changed
        self._plugins: dict[str, PluginEndpoint] = {}
        self._admission = asyncio.Lock()
        self._server: grpc.aio.Server | None = None
        folder.device_plugins.mkdir(parents=True, exist_ok=True)
        self._checkpoint = Checkpoint(folder.checkpoint)

    async def open(self) -> None:
        """Serve registrations. As every kubelet, forget the plugins of before: their sockets go."""
        for socket in self._folder.device_plugins.glob("*"):
            if socket.is_socket():
                socket.unlink()
        self._server = grpc.aio.server()
        device_api.serve(self._server, "Registration", {"Register": self.register})
        self._server.add_insecure_port(f"unix:{self._folder.registration}")
        await self._server.start()

    async def close(self) -> None:
        for endpoint in self._plugins.values():
            await endpoint.close()
        if self._server is not None:
            await self._server.stop(grace=0)

    async def register(
        self, request: api.RegisterRequest, context: device_api.Context
    ) -> api.Empty:
        """Take a plugin in; the last one of a resource wins."""
        if request.version != device_api.VERSION:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"requested API version {request.version!r} is not supported by kubelet. "
                f"Supported version is {device_api.VERSION!r}",
            )
        if "/" not in request.resource_name or "/" in request.endpoint:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"invalid registration of {request.resource_name!r} at {request.endpoint!r}",
            )
        before = self._plugins.pop(request.resource_name, None)
        if before is not None:
            await before.close()
        _log.info("%s: plugin of %s registered", self._folder.name, request.resource_name)
        self._checkpoint.register(request.resource_name)
        self._plugins[request.resource_name] = PluginEndpoint(
            request.resource_name,
            self._folder.device_plugins / request.endpoint,
            request.options,
            self._changed,
        )
        return api.Empty()

    def capacity(self) -> Mapping[str, tuple[int, int]]:
        """All devices and healthy ones, by resource; 0 of a plugin that has not come back."""
        devices = {name: self._plugins.get(name) for name in self._checkpoint.resources}
        return {
            name: (len(plugin.devices), len(plugin.healthy)) if plugin else (0, 0)
            for name, plugin in sorted(devices.items())
        }

    def healthy(self) -> Mapping[str, list[str]]:
        """Healthy devices by resource, whoever has them."""
        return {name: plugin.healthy for name, plugin in sorted(self._plugins.items())}

    def of_pod(self, uid: str) -> list[Allocation]:
        return self._checkpoint.of_pod(uid)

    def free(self, uid: str) -> None:
        self._checkpoint.free(uid)

    def keep_only(self, uids: Collection[str]) -> None:
        """After a restart: devices of pods that are gone are free."""
        self._checkpoint.keep_only(uids)

    async def admit(self, pod: Mapping[str, Any]) -> list[Allocation]:
        """Get the devices of all containers, or none; what it was given before stays.

        Raises:
            AdmissionError: a device is missing, or a plugin refused.
        """
        uid = pod["metadata"]["uid"]
        async with self._admission:
            if self.of_pod(uid):
                return self.of_pod(uid)
            given: list[Allocation] = []
            for container in pod["spec"]["containers"]:
                for resource, needed in device_requests(container).items():
                    if resource not in self._checkpoint.resources:
                        # Offered by no plugin ever: somebody wrote it into the node.
                        continue
                    given.append(await self._allocate(pod, container, resource, needed, given))
            if given:
                self._checkpoint.add(given)
            return given

    async def _allocate(
        self,
        pod: Mapping[str, Any],
        container: Mapping[str, Any],
        resource: str,
        needed: int,
        given: list[Allocation],
    ) -> Allocation:
        plugin = self._plugins.get(resource)
        healthy = set(plugin.healthy) if plugin else set()
        if plugin is None or not healthy:
            raise AdmissionError(
                f"Allocate failed due to no healthy devices present; cannot allocate unhealthy "
                f"devices {resource}, which is unexpected"
            )
        taken = self._checkpoint.in_use(resource)
        taken |= {d for held in given if held.resource == resource for d in held.devices}
        available = healthy - taken
        if len(available) < needed:
            raise AdmissionError(
                "Allocate failed due to requested number of devices unavailable for "
                f"{resource}. Requested: {needed}, Available: {len(available)}, which is unexpected"
            )
        try:
            chosen = await plugin.preferred(available, needed)
            chosen += sorted(available.difference(chosen))[: needed - len(chosen)]
            answer = await plugin.allocate(chosen)
        except PluginError as error:
            raise AdmissionError(f"Allocate failed due to {error}, which is unexpected") from error
        metadata = pod["metadata"]
        return Allocation(
            metadata["uid"], metadata["namespace"], metadata["name"], container["name"], resource,
            tuple(chosen), tuple(device.name for device in answer.cdi_devices),
            tuple(sorted(answer.envs.items())),
        )  # fmt: skip


def device_requests(container: Mapping[str, Any]) -> dict[str, int]:
    """How many devices of which resources a container asks for."""
    limits = container.get("resources", {}).get("limits") or {}
    return {name: int(amount) for name, amount in sorted(limits.items()) if "/" in name}
