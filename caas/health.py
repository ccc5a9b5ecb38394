"""`/healthz`, `/readyz` and `/metrics` of a program that has no other HTTP server."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from aiohttp import web
from prometheus_client import CollectorRegistry

from caas import metrics

SHUTDOWN_SECONDS = 0.5


class Health:
    """Answers on one address, for as long as it is entered; `OSError` when that cannot be had.

    Args:
        address: to listen on.
        port: 0 chooses a free one.
        registry: the program's metrics.
        ready: whether it does its work, or could begin at once.
        waits_for: what it says while it is not ready.
    """

    def __init__(
        self,
        address: str,
        port: int,
        registry: CollectorRegistry,
        ready: Callable[[], bool],
        *,
        waits_for: str,
    ) -> None:
        self._address = address
        self._port = port
        self._registry = registry
        self._ready = ready
        self._waits_for = waits_for
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._runner.addresses[0][1])

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._address, self._port).start()
        except BaseException:
            await self._runner.cleanup()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        if self._ready():
            return web.Response(text="ready\n")
        return web.Response(text=f"{self._waits_for}\n", status=503)

    async def _metrics(self, _: web.Request) -> web.Response:
        text, content_type = metrics.exposition(self._registry)
        return web.Response(body=text, headers={"Content-Type": content_type})
