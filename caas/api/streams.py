"""Logs of containers, passed on as they come: bounded in number and time, ended with the program."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from caas.api.problems import Problem, ProblemError, is_away, not_found
from caas.cluster import Cluster, ClusterError
from gpuclusters.container_api.container import MAIN

PER_TENANT = 16
LONGEST_SECONDS = 3600.0
"""A log is followed no longer, nor longer than its caller's token is valid."""
_FIRST_SECONDS = 2.0
"""How long the first piece is waited for: until then a failure can still be told."""
_NOT_YET = 400


class LogStream:
    """One log that is being read. `close` must be called."""

    def __init__(
        self,
        source: AsyncIterator[bytes],
        seconds: float,
        ending: asyncio.Event,
        closed: Callable[[], None],
    ) -> None:
        self._source = source
        self._end = asyncio.get_running_loop().time() + seconds
        self._closed = closed
        self._ending = asyncio.ensure_future(ending.wait())
        self._next: asyncio.Future[bytes | None] = self._ask()

    async def begun(self) -> None:
        """Wait a moment for the first piece; `ClusterError` if there will be none."""
        await asyncio.wait({self._next}, timeout=_FIRST_SECONDS)
        if self._next.done():
            self._next.result()

    def __aiter__(self) -> LogStream:
        return self

    async def __anext__(self) -> bytes:
        left = max(0.0, self._end - asyncio.get_running_loop().time())
        waited_for: set[asyncio.Future[Any]] = {self._next, self._ending}
        await asyncio.wait(waited_for, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        piece = None
        if self._next.done() and left > 0:
            # The headers are gone: of a failure, that the log breaks off is all that can be told.
            with suppress(ClusterError):
                piece = self._next.result()
        if piece is None:
            raise StopAsyncIteration
        self._next = self._ask()
        return piece

    async def close(self) -> None:
        """Let go of the connection to the cluster."""
        self._closed()
        self._next.cancel()
        self._ending.cancel()
        # A generator cannot be closed while it runs.
        await asyncio.gather(self._next, self._ending, return_exceptions=True)
        await self._source.aclose()  # type: ignore[attr-defined]

    def _ask(self) -> asyncio.Future[bytes | None]:
        return asyncio.ensure_future(anext(self._source, None))


class LogResponse(StreamingResponse):
    """A log as an answer; closed however it ends."""

    def __init__(self, stream: LogStream) -> None:
        super().__init__(stream, media_type="text/plain; charset=utf-8")
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._stream.close()


@dataclass(eq=False)
class LogStreams:
    """Every log that is being read."""

    cluster: Cluster
    clock: Callable[[], float]
    _open: Counter[str] = field(default_factory=Counter)
    _ending: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self) -> None:
        """End all of them; the program is about to stop."""
        self._ending.set()

    async def open(
        self,
        tenant: str,
        namespace: str,
        container: str,
        *,
        follow: bool,
        tail: int | None,
        since: int | None,
        expires: float,
    ) -> LogStream:
        """The log from its first piece on; `ProblemError` if there is none."""
        if self._open[tenant] >= PER_TENANT:
            most = f"at most {PER_TENANT} logs are read at once"
            raise ProblemError(Problem.TOO_MANY_STREAMS, most)
        source = self.cluster.pod_log(
            namespace,
            container,
            container=MAIN,
            follow=follow,
            tail_lines=tail,
            since_seconds=since,
        )
        seconds = min(LONGEST_SECONDS, max(0.0, expires - self.clock()))
        self._open[tenant] += 1
        stream = LogStream(source, seconds, self._ending, lambda: self._open.subtract([tenant]))
        try:
            await stream.begun()
        except (ClusterError, asyncio.CancelledError) as error:
            await stream.close()
            if isinstance(error, ClusterError):
                raise _problem(error) from error
            raise
        return stream


def _problem(error: ClusterError) -> ProblemError:
    if error.status == _NOT_YET:
        return ProblemError(Problem.NOT_STARTED, "the container writes no log yet; try again")
    if is_away(error):
        silent = "the machine that has the log does not answer; try again"
        return ProblemError(Problem.LOGS_AWAY, silent)
    return not_found()
