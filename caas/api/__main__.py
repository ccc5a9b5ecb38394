"""`python -m caas.api`: serve the API until SIGTERM.

GPU_CLUSTERS_SETTINGS      settings file
KUBECONFIG                 outside of a cluster
GPU_CLUSTERS_API_LISTEN    address:port; by default $POD_IP:8080; port 0: one that is free, told in the log
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from caas import logs
from caas.api.app import create_app
from caas.api.gate import Gate
from caas.api.protocol import MOST_HEADER_BYTES, Protocol, allow_connections
from caas.cluster import Cluster, ClusterError
from caas.settings import Settings, SettingsError, load

LISTEN = "GPU_CLUSTERS_API_LISTEN"
_PORT = 8080
_STOP_SECONDS = 3
_log = logging.getLogger("caas.api")


class _Server(uvicorn.Server):
    """Stops at the first signal, and then the process ends as one that did what it was asked."""

    def __init__(self, config: uvicorn.Config, gate: Gate) -> None:
        super().__init__(config)
        self._gate = gate

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End what would not end by itself, then wait for the rest."""
        self._gate.stop()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)


def _listen() -> socket.socket:
    stated = os.environ.get(LISTEN) or f"{os.environ.get('POD_IP') or '127.0.0.1'}:{_PORT}"
    host, _, port = stated.rpartition(":")
    host = host.strip("[]")
    if not port.isdecimal():
        raise SettingsError(f"{LISTEN} must be address:port (got {stated})")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, int(port)))
    except OSError as error:
        listener.close()
        raise SettingsError(f"{stated} cannot be listened on: {error.strerror}") from error
    return listener


async def _serve(settings: Settings, listener: socket.socket) -> None:
    async with Cluster.connect() as cluster:
        app = create_app(settings, cluster)
        config = uvicorn.Config(
            app,
            http=Protocol,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=2048,
            h11_max_incomplete_event_size=MOST_HEADER_BYTES,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=_STOP_SECONDS,
        )
        host, port = listener.getsockname()[:2]
        _log.info("listening", extra={"fields": {"address": host, "port": port}})
        server = _Server(config, app)
        await server.serve(sockets=[listener])
    _log.info("stopped")


def main() -> int:
    """Serve; returns the exit code."""
    logs.configure()
    try:
        settings = load()
        allow_connections()
        with _listen() as listener:
            asyncio.run(_serve(settings, listener))
    except (SettingsError, ClusterError) as error:
        _log.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
