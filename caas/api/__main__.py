"""`python -m caas.api`: serve the API until SIGTERM.

GPU_CLUSTERS_SETTINGS      settings file
KUBECONFIG                 outside of a cluster
GPU_CLUSTERS_API_LISTEN    address:port; by default $POD_IP:8080; port 0: one that is free, told in the log
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys

from caas import logs
from caas.api.app import create_app
from caas.api.protocol import allow_connections
from caas.api.server import Server
from caas.cluster import Cluster, ClusterError
from caas.settings import Settings, SettingsError, load

LISTEN = "GPU_CLUSTERS_API_LISTEN"
_PORT = 8080
_log = logging.getLogger("caas.api")


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
    except (OSError, OverflowError) as error:
        listener.close()
        raise SettingsError(f"{stated} cannot be listened on: {error}") from error
    return listener


async def _serve(settings: Settings, listener: socket.socket) -> None:
    async with Cluster.connect() as cluster:
        address, port = listener.getsockname()[:2]
        _log.info("listening", extra={"fields": {"address": address, "port": port}})
        await Server(create_app(settings, cluster)).serve(sockets=[listener])
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
