"""uvicorn as the API uses it: its deadlines, its limits, its end."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import uvicorn

from caas.api.gate import Gate
from caas.api.protocol import MOST_HEADER_BYTES, Protocol
from caas.api.tls import Certificate

STOP_SECONDS = 3
"""For what is being answered when the program is told to stop."""


class Server(uvicorn.Server):
    """Stops at the first signal, and then the process ends as one that did what it was asked."""

    def __init__(
        self,
        gate: Gate,
        *,
        proxies: Sequence[str] = (),
        certificate: Certificate | None = None,
        protocol: type[Protocol] = Protocol,
    ) -> None:
        options: dict[str, Any] = {
            "http": protocol,
            "ws": "none",
            "lifespan": "on",
            "log_config": None,
            "access_log": False,
            "server_header": False,
            # The client is the last address in X-Forwarded-For that is not a proxy's.
            "proxy_headers": bool(proxies),
            "forwarded_allow_ips": list(proxies),
            "backlog": 2048,
            "h11_max_incomplete_event_size": MOST_HEADER_BYTES,
            "timeout_keep_alive": 30,
            "timeout_graceful_shutdown": STOP_SECONDS,
        }
        if certificate is not None:
            options["ssl_context_factory"] = lambda *_: certificate.context
        super().__init__(uvicorn.Config(gate, **options))
        self._gate = gate

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals mean the end, and nothing afterwards; they reach the main thread alone."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End what would not end by itself, then wait for the rest."""
        self._gate.stop()
        await super().shutdown(sockets)
