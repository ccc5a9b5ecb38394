"""`python -m caas.api`: serve the API until SIGTERM.

GPU_CLUSTERS_SETTINGS           settings file
KUBECONFIG                      outside of a cluster
GPU_CLUSTERS_API_TLS            folder with tls.crt and tls.key; without it plain HTTP is served
GPU_CLUSTERS_API_LISTEN         address:port; by default $POD_IP:8080; port 0: a free one, told in the log
GPU_CLUSTERS_API_HEALTH_LISTEN  the same for /healthz, /readyz and /metrics; by default $POD_IP:8083
"""

import asyncio
import logging
import os
import socket
from pathlib import Path

from caas import metrics
from caas.api.app import create_app
from caas.api.server import Certificate, Door, Server, allow_connections
from caas.cluster import Cluster
from caas.program import Health, ended, pod_address, run
from caas.settings import Settings, SettingsError, load

LISTEN = "GPU_CLUSTERS_API_LISTEN"
HEALTH_LISTEN = "GPU_CLUSTERS_API_HEALTH_LISTEN"
TLS = "GPU_CLUSTERS_API_TLS"
PORT = 8080
HEALTH_PORT = 8083
_log = logging.getLogger("caas.api")


def _address(variable: str, port: int) -> tuple[str, int]:
    stated = os.environ.get(variable) or f"{pod_address()}:{port}"
    host, _, number = stated.rpartition(":")
    if not number.isdecimal():
        raise SettingsError(f"{variable} must be address:port (got {stated})")
    return host.strip("[]"), int(number)


def _listen(settings: Settings, *, over_tls: bool) -> Door:
    host, port = _address(LISTEN, PORT)
    listener = Door(
        socket.AF_INET6 if ":" in host else socket.AF_INET,
        most_per_address=settings.api.connections_per_address,
        proxies=[str(proxy) for proxy in settings.api.proxies],
        # Plain HTTP says nothing to who is about to speak TLS.
        tells=not over_tls,
    )
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise SettingsError(f"{host}:{port} cannot be listened on: {error}") from error
    return listener


async def _serve(settings: Settings, listener: Door, certificate: Certificate | None) -> None:
    async with Cluster() as cluster:
        program = create_app(settings, cluster)
        health = Health(
            *_address(HEALTH_LISTEN, HEALTH_PORT),
            metrics.API,
            program.condition.waits_for,
            broken=program.condition.broken,
        )
        async with health:
            address, port = listener.getsockname()[:2]
            where = {"address": address, "port": port, "healthPort": health.port}
            _log.info("listening", extra={"fields": where})
            following = asyncio.create_task(certificate.follow()) if certificate else None
            proxies = [str(proxy) for proxy in settings.api.proxies]
            server = Server(program.gate, proxies=proxies, certificate=certificate)
            await server.serve(sockets=[listener])
            if following:
                await ended(following)
    _log.info("stopped")


async def _run() -> int:
    settings = load()
    allow_connections()
    folder = os.environ.get(TLS)
    certificate = Certificate(Path(folder)) if folder else None
    with _listen(settings, over_tls=certificate is not None) as listener:
        await _serve(settings, listener, certificate)
    return 0


if __name__ == "__main__":
    run(_run)
