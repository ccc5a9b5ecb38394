"""`/healthz`, `/readyz` and `/metrics` of the controllers."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from aiohttp import web

from caas import metrics


class Health:
    """A small HTTP server, for as long as it is entered."""

    def __init__(self, address: str, port: int) -> None:
        self.ready = False
        """Whether the program has come so far that it leads or stands by."""
        self._address = address
        self._port = port
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._runner.addresses[0][1])

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, self._address, self._port).start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._runner.cleanup()

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        if self.ready:
            return web.Response(text="ready\n")
        return web.Response(text="starting\n", status=503)

    async def _metrics(self, _request: web.Request) -> web.Response:
        text, content_type = metrics.exposition(metrics.CONTROLLERS)
        return web.Response(body=text, headers={"Content-Type": content_type})
