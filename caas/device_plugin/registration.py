"""The plugin's socket, and its registration with the kubelet: made, watched, made anew.

A kubelet that restarts removes all plugins' sockets, makes its own anew, and knows no plugin: nothing
tells the plugin but the files.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
from pathlib import Path

import grpc
import grpc.aio

from caas.device_plugin.service import OPTIONS
from caas.kubelet_api import deviceplugin_pb2 as api
from caas.kubelet_api.services import (
    API_VERSION,
    KUBELET_SOCKET,
    DevicePluginService,
    RegistrationStub,
    serve_device_plugin,
)

_LOOK_SECONDS = 0.5
_REGISTER_SECONDS = 5.0
_LONGEST_PAUSE_SECONDS = 5.0
_PREFIX = "gpu-clusters-"
_log = logging.getLogger(__name__)

Mark = tuple[int, int]
"""Which file a name means: its inode, and when it was made."""


class Registration:
    """Serves the plugin and keeps it registered. `registered` says whether the kubelet knows it now."""

    def __init__(self, folder: Path, resource: str, service: DevicePluginService) -> None:
        self._folder = folder
        self._resource = resource
        self._service = service
        # Another plugin on the same host, while a new version takes over, has a socket of its own.
        self._socket = folder / f"{_PREFIX}{secrets.token_hex(4)}.sock"
        self._server: grpc.aio.Server | None = None
        self._known: Mark | None = None
        self.registered = False

    async def run(self) -> None:
        """Serve and stay registered, until cancelled."""
        self._remove_dead()
        pause = _LOOK_SECONDS
        try:
            while True:
                kubelet = _mark(self._folder / KUBELET_SOCKET)
                if self._server is None or _mark(self._socket) is None:
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
        serve_device_plugin(server, self._service)
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
            options=OPTIONS,
        )
        try:
            async with grpc.aio.insecure_channel(
                f"unix:{self._folder / KUBELET_SOCKET}"
            ) as channel:
                await RegistrationStub(channel).register(request, timeout=_REGISTER_SECONDS)
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


def _mark(path: Path) -> Mark | None:
    with contextlib.suppress(FileNotFoundError):
        status = path.stat()
        return (status.st_ino, status.st_mtime_ns)
    return None
