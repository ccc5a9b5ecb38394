"""`/healthz`, `/readyz` and `/metrics` of the plugin."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from caas import metrics


class HealthServer:
    """Answers on one address. `ready` says whether the plugin does its work."""

    def __init__(self, address: str, port: int, ready: Callable[[], bool]) -> None:
        self._address = address
        self._port = port
        self._ready = ready
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)

    async def open(self) -> None:
        """Serve; raises `OSError` when the address cannot be had."""
        await self._runner.setup()
        await web.TCPSite(self._runner, self._address, self._port).start()

    async def close(self) -> None:
        """Stop serving."""
        await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        if self._ready():
            return web.Response(text="ok\n")
        return web.Response(status=503, text="not registered, or the leases are not known\n")

    async def _metrics(self, _: web.Request) -> web.Response:
        text, content_type = metrics.exposition(metrics.DEVICE_PLUGIN)
        return web.Response(body=text, headers={"Content-Type": content_type})
