"""`/healthz`, `/readyz` and `/metrics` of a program, at a port that only kubelets and monitoring reach."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from aiohttp import web
from prometheus_client import CollectorRegistry

from caas import metrics

SHUTDOWN_SECONDS = 0.5


async def _nothing() -> str | None:
    return None


class Health:
    """Answers on one address, for as long as it is entered; `OSError` when that cannot be had.

    Args:
        address: to listen on.
        port: 0 chooses a free one.
        registry: the program's metrics.
        waits_for: what it needs before it does its work, or could begin at once; None: nothing.
        broken: what it will not recover from without a restart; None: nothing.
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
        self._address = address
        self._port = port
        self._registry = registry
        self._waits_for = waits_for
        self._broken = broken
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
        return _answer(self._broken())

    async def _readyz(self, _: web.Request) -> web.Response:
        return _answer(await self._waits_for())

    async def _metrics(self, _: web.Request) -> web.Response:
        text, content_type = metrics.exposition(self._registry)
        return web.Response(body=text, headers={"Content-Type": content_type})


def _answer(wrong: str | None) -> web.Response:
    return web.Response(text=f"{wrong or 'ok'}\n", status=503 if wrong else 200)
