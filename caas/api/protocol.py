"""One connection: how long a client may take to say what it wants."""

from __future__ import annotations

import asyncio
import resource
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from caas.api.door import MOST_CONNECTIONS
from caas.api.problems import Problem, ProblemError

HEADER_SECONDS = 10.0
MOST_HEADER_BYTES = 16_384


def allow_connections() -> None:
    """Raise this process's limit of open files to what the machine permits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = (
        2 * MOST_CONNECTIONS if hard == resource.RLIM_INFINITY else min(hard, 2 * MOST_CONNECTIONS)
    )
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Protocol(H11Protocol):
    """HTTP/1.1 of uvicorn, with an end for clients that send their headers slowly or never."""

    header_seconds = HEADER_SECONDS

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._arrived()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A request that has begun must also end; one that is whole is waited for by the gate."""
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._arrived()
        elif self._idle() and self._deadline is None:
            self._expect()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP is refused in the same form as everything else."""
        del msg
        large = len(self.conn.trailing_data[0]) >= MOST_HEADER_BYTES
        if large:
            error = ProblemError(
                Problem.HEADERS_TOO_LARGE, f"headers have at most {MOST_HEADER_BYTES} bytes"
            )
        else:
            error = ProblemError(Problem.MALFORMED, "this is not HTTP/1.1")
        self._refuse(error)

    def _idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _expect(self) -> None:
        self._deadline = self.loop.call_later(self.header_seconds, self._too_late)

    def _arrived(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self._deadline = None
        if self._idle():
            self._refuse(
                ProblemError(
                    Problem.TIMEOUT, f"the headers did not arrive within {self.header_seconds:g} s"
                )
            )

    def _refuse(self, error: ProblemError) -> None:
        """Answer without a request, and close."""
        self._arrived()
        if self.transport.is_closing():
            return
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(error.response())
        self.transport.close()
