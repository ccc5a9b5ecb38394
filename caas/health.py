"""`/healthz`, `/readyz` and `/metrics` of a program, at a port that only kubelets and monitoring reach."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Self

from aiohttp import web
from prometheus_client import CollectorRegistry

from caas import metrics

SHUTDOWN_SECONDS = 0.5


async def _nothing() -> str | None:
    return None


class Health:
    """Answers on one address, for as long as it is entered; `OSError` when that cannot be had.

    Port 0 chooses a free one. `waits_for` is what the program needs before it does its work, or could begin
    at once; `broken` what it will not recover from without a restart.
    """

    def __init__(
        self,
        address: str,
        port: int,
        registry: CollectorRegistry,
        waits_for: Callable[[], Awaitable[str | None]] = _nothing,
        *,
        broken: Callable[[], str | None] = lambda: None,
    ) -> None:
        async def healthz(_: web.Request) -> web.Response:
            return _answer(broken())

        async def readyz(_: web.Request) -> web.Response:
            return _answer(await waits_for())

        async def exposed(_: web.Request) -> web.Response:
            text, content_type = metrics.exposition(registry)
            return web.Response(body=text, headers={"Content-Type": content_type})

        app = web.Application()
        app.router.add_get("/healthz", healthz)
        app.router.add_get("/readyz", readyz)
        app.router.add_get("/metrics", exposed)
        self._where = address, port
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._runner.addresses[0][1])

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, *self._where).start()
        except BaseException:
            await self._runner.cleanup()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()


def _answer(wrong: str | None) -> web.Response:
    return web.Response(text=f"{wrong or 'ok'}\n", status=503 if wrong else 200)
