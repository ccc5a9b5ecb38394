"""The plugin's answers to the kubelet, its socket, and its registration.

A kubelet that restarts removes all sockets and knows no plugin: nothing tells the plugin but the files.
"""

import asyncio
import contextlib
import logging
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NoReturn

import grpc
import grpc.aio

from caas import metrics
from caas.cluster import ClusterError
from caas.device_plugin.leases import Leases, MarkError
from caas.kubelet_api import deviceplugin_pb2 as api
from caas.kubelet_api.services import (
    API_VERSION,
    HEALTHY,
    KUBELET_SOCKET,
    UNHEALTHY,
    Context,
    method,
    serve,
)
from gpuclusters.device_plugin.decide import Board, Refusal, is_healthy, preferred

_OPTIONS = api.DevicePluginOptions(
    pre_start_required=False, get_preferred_allocation_available=True
)
_LOOK_SECONDS = 0.5
_REGISTER_SECONDS = 5.0
_LONGEST_PAUSE_SECONDS = 5.0
_PREFIX = "gpu-clusters-"
_log = logging.getLogger(__name__)


class PluginService:
    """Answers for one host. `board` gives what is known now."""

    def __init__(self, leases: Leases, cdi_kind: str, board: Callable[[], Board]) -> None:
        self._leases, self._cdi_kind, self._board = leases, cdi_kind, board
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

    def serve(self, server: grpc.aio.Server) -> None:
        answers: dict[str, Callable[..., Any]] = {
            "GetDevicePluginOptions": self._options,
            "ListAndWatch": self._list_and_watch,
            "GetPreferredAllocation": self._preferred_allocation,
            "Allocate": self._allocate,
            "PreStartContainer": self._pre_start_container,
        }
        serve(server, "DevicePlugin", answers)

    async def _options(self, _request: api.Empty, _context: Context) -> api.DevicePluginOptions:
        return _OPTIONS

    async def _pre_start_container(
        self, _request: api.PreStartContainerRequest, _context: Context
    ) -> api.PreStartContainerResponse:
        """The options tell the kubelet not to ask."""
        return api.PreStartContainerResponse()

    async def _list_and_watch(
        self, _request: api.Empty, _context: Context
    ) -> AsyncIterator[api.ListAndWatchResponse]:
        """All GPUs with their health, again whenever that changes."""
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

    def _announced(self) -> api.ListAndWatchResponse:
        board = self._board()
        answer = api.ListAndWatchResponse()
        for device in board.devices:
            health = HEALTHY if is_healthy(board, device) else UNHEALTHY
            answer.devices.add(ID=device.device, health=health)
        return answer

    async def _preferred_allocation(
        self, request: api.PreferredAllocationRequest, _context: Context
    ) -> api.PreferredAllocationResponse:
        """The group that waits for its GPUs, or the partition whose loss hurts least."""
        board = self._board()
        answer = api.PreferredAllocationResponse()
        for asked in request.container_requests:
            must, size = asked.must_include_deviceIDs, asked.allocation_size
            chosen = preferred(board, asked.available_deviceIDs, must, size)
            answer.container_responses.add(deviceIDs=chosen)
        return answer

    async def _allocate(
        self, request: api.AllocateRequest, context: Context
    ) -> api.AllocateResponse:
        """The CDI names of the GPUs of one leased group, marked as allocated; or an error."""
        if len(request.container_requests) != 1:
            # A pod has one container with GPUs; the kubelet asks for each container by itself.
            await self._refuse(context, "refused", "ask for one container at a time")
        asked = list(request.container_requests[0].devices_ids)
        async with self._allocating:
            try:
                grant = await self._leases.mark(self._board(), asked)
            except (MarkError, ClusterError) as error:
                await self._refuse(context, "error", str(error), grpc.StatusCode.UNAVAILABLE)
        if isinstance(grant, Refusal):
            await self._refuse(context, "refused", grant.message)
        metrics.DEVICE_PLUGIN_ALLOCATIONS.labels(result="granted").inc()
        fields = {"pod": str(grant.pod), "devices": ",".join(asked)}
        _log.info("allocated", extra={"fields": fields})
        answer = api.AllocateResponse()
        container = answer.container_responses.add()
        for device in grant.devices:
            container.cdi_devices.add(name=f"{self._cdi_kind}={device.device}")
        return answer

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


class Registration:
    """Serves the plugin and keeps it registered. `registered` says whether the kubelet knows it now."""

    def __init__(self, folder: Path, resource: str, service: PluginService) -> None:
        self._folder, self._resource, self._service = folder, resource, service
        # Another plugin on the same host, while a new version takes over, has a socket of its own.
        self._socket = folder / f"{_PREFIX}{secrets.token_hex(4)}.sock"
        self._server: grpc.aio.Server | None = None
        self._known: _FileId | None = None
        self.registered = False

    async def run(self) -> None:
        """Serve and stay registered, until cancelled."""
        self._remove_dead()
        pause = _LOOK_SECONDS
        try:
            while True:
                kubelet = _file_id(self._folder / KUBELET_SOCKET)
                if self._server is None or _file_id(self._socket) is None:
                    self.registered = False
                    await self._serve()
                if kubelet != self._known:
                    self.registered = False
                serving = self._server is not None
                if kubelet is not None and serving and not self.registered:
                    self.registered = await self._register()
                    self._known = kubelet
                waits = kubelet is not None and not self.registered
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS) if waits else _LOOK_SECONDS
                await asyncio.sleep(pause)
        finally:
            self.registered = False
            await self._stop_serving()

    async def _serve(self) -> None:
        await self._stop_serving()
        server = grpc.aio.server()
        self._service.serve(server)
        try:
            server.add_insecure_port(f"unix:{self._socket}")
        except RuntimeError as error:
            _log.warning("no socket in %s: %s", self._folder, error)
            return
        await server.start()
        self._server = server

    async def _stop_serving(self) -> None:
        if self._server is not None:
            await self._server.stop(grace=0)
            self._server = None
        self._socket.unlink(missing_ok=True)

    async def _register(self) -> bool:
        request = api.RegisterRequest(
            version=API_VERSION,
            endpoint=self._socket.name,
            resource_name=self._resource,
            options=_OPTIONS,
        )
        address = f"unix:{self._folder / KUBELET_SOCKET}"
        try:
            async with grpc.aio.insecure_channel(address) as channel:
                register = method(channel, "Registration", "Register")
                await register(request, timeout=_REGISTER_SECONDS)
        except grpc.aio.AioRpcError as error:
            _log.warning("the kubelet did not register the plugin: %s", error.details())
            return False
        _log.info("registered", extra={"fields": {"resource": self._resource}})
        return True

    def _remove_dead(self) -> None:
        """Remove sockets of plugins that were killed."""
        for path in self._folder.glob(f"{_PREFIX}*.sock"):
            with socket.socket(socket.AF_UNIX) as probe:
                try:
                    probe.connect(str(path))
                except ConnectionRefusedError:
                    path.unlink(missing_ok=True)
                except OSError as error:
                    _log.info("%s is left as it is: %s", path.name, error)


_FileId = tuple[int, int]
"""Which file a name means: its inode, and when it was made."""


def _file_id(path: Path) -> _FileId | None:
    with contextlib.suppress(FileNotFoundError):
        status = path.stat()
        return (status.st_ino, status.st_mtime_ns)
    return None
