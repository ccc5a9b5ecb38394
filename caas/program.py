"""What the programs in the cluster have in common: how they run, end, and say how they are."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NoReturn, Self

from aiohttp import web
from prometheus_client import CollectorRegistry

from caas import logs, metrics
from caas.cluster import ClusterError
from caas.settings import SettingsError

SHUTDOWN_SECONDS = 0.5
_log = logging.getLogger(__name__)


def run(program: Callable[[], Coroutine[Any, Any, int]]) -> NoReturn:
    """Run a program to its exit code; what it cannot begin with is one line of its log, and code 1."""
    logs.configure()
    try:
        code = asyncio.run(program())
    except (SettingsError, ClusterError, OSError) as error:
        _log.error("%s", error)
        code = 1
    sys.exit(code)


def told_to_stop() -> asyncio.Task[bool]:
    """Done with the first SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return asyncio.create_task(stop.wait())


async def ended(task: asyncio.Task[Any]) -> None:
    """Cancel it and wait until it has ended."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def pod_address() -> str:
    """Where kubelets and monitoring reach the program."""
    return os.environ.get("POD_IP") or "127.0.0.1"


async def _nothing() -> str | None:
    return None


class Health:
    """`/healthz`, `/readyz` and `/metrics` on one address (port 0: a free one) while it is entered.

    `OSError` when that cannot be had. `waits_for`: what the program needs before it works; `broken`: what
    only a restart cures.
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
        for path, answer in (("healthz", healthz), ("readyz", readyz), ("metrics", exposed)):
            app.router.add_get(f"/{path}", answer)
        self._where = address, port
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)

    @property
    def port(self) -> int:
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
