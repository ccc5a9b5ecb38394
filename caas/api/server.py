"""Connections, counted before a byte is read or a TLS handshake begins: how many, how long, TLS, the end."""

import asyncio
import logging
import resource
import signal
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from caas.api.gate import Gate, client
from caas.api.problems import Problem, ProblemError
from caas.settings import SettingsError

MOST_CONNECTIONS = 4096
STALL_SECONDS = 30.0
SEND_BUFFER_BYTES = 131_072
"""What the kernel holds of an answer that is not read; left to itself it grows to several MB each."""
HEADER_SECONDS = 10.0
MOST_HEADER_BYTES = 16_384
STOP_SECONDS = 3
"""For what is being answered when the program is told to stop."""
CERTIFICATE_SECONDS = 60.0
"""How often the files are looked at. The kubelet itself takes about a minute to renew a mounted Secret."""
_log = logging.getLogger(__name__)


def allow_connections() -> None:
    """Raise this process's limit of open files to what the machine permits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * MOST_CONNECTIONS
    if hard != resource.RLIM_INFINITY:
        wanted = min(hard, wanted)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Door(socket.socket):
    """A TCP listener that turns away connections beyond its bounds, in all and per address (IPv6: /64).

    A connection whose peer takes nothing of what was sent to it for `stall_seconds` is ended by the kernel
    (TCP_USER_TIMEOUT, tcp(7)), also what is still to be sent after a close; where the kernel has no such
    option (not Linux), nothing ends it. Connections of `proxies` carry those of many clients and count in all
    only. `tells`: whether one that is turned away is told why, in plain HTTP.
    """

    def __init__(
        self,
        family: socket.AddressFamily,
        *,
        most_per_address: int,
        proxies: Sequence[str] = (),
        most: int = MOST_CONNECTIONS,
        stall_seconds: float = STALL_SECONDS,
        tells: bool = True,
    ) -> None:
        super().__init__(family)
        self._most = most
        self._most_per_address = most_per_address
        self._proxies = [ip_network(proxy) for proxy in proxies]
        self._tells = tells
        self._held: Counter[str] = Counter()
        self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted connections inherit both.
        self.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            milliseconds = int(stall_seconds * 1000)
            self.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection; `ConnectionAbortedError`, which asyncio passes over, of one turned away."""
        accepted, address = super().accept()
        who = client(address[0])
        if refusal := self._refusal(who):
            with accepted:
                if self._tells:
                    accepted.settimeout(0)
                    accepted.send(ProblemError(Problem.BUSY, refusal).response())
            raise ConnectionAbortedError(refusal)
        self._held[who] += 1
        return _Connection(accepted.detach(), lambda: self._left(who)), address

    def _refusal(self, who: str) -> str:
        if self._held.total() >= self._most:
            return "there are too many connections; try again"
        if self._held[who] >= self._most_per_address:
            address = ip_address(who)
            if not any(address in network for network in self._proxies):
                return f"at most {self._most_per_address} connections of one address; close some"
        return ""

    def _left(self, who: str) -> None:
        self._held[who] -= 1
        if not self._held[who]:
            del self._held[who]


class _Connection(socket.socket):
    """Says once when it is closed, whoever closes it."""

    def __init__(self, descriptor: int, closed: Callable[[], None]) -> None:
        super().__init__(fileno=descriptor)
        self._when_closed: Callable[[], None] | None = closed

    def close(self) -> None:
        super().close()
        told, self._when_closed = self._when_closed, None
        if told:
            told()


class Protocol(H11Protocol):
    """HTTP/1.1 of uvicorn, with an end for clients that send their headers slowly or never."""

    header_seconds = HEADER_SECONDS

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
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
        if len(self.conn.trailing_data[0]) >= MOST_HEADER_BYTES:
            most = f"headers have at most {MOST_HEADER_BYTES} bytes"
            self._refuse(ProblemError(Problem.HEADERS_TOO_LARGE, most))
        else:
            self._refuse(ProblemError(Problem.MALFORMED, "this is not HTTP/1.1"))

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
            late = f"the headers did not arrive within {self.header_seconds:g} s"
            self._refuse(ProblemError(Problem.TIMEOUT, late))

    def _refuse(self, error: ProblemError) -> None:
        """Answer without a request, and close."""
        self._arrived()
        if self.transport.is_closing():
            return
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(error.response())
        self.transport.close()


class Certificate:
    """`tls.crt` (the server's own first) and `tls.key` in a folder; `SettingsError` if unusable."""

    def __init__(self, folder: Path) -> None:
        self._chain, self._key = folder / "tls.crt", folder / "tls.key"
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        """Of the server; connections that are made later show what was read last."""
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._known = self._content()
        if wrong := self._load():
            raise SettingsError(f"{folder}: {wrong}")

    async def follow(self) -> None:
        """Read it again whenever it changes. An unusable one is told in the log, and the old one stays."""
        while True:
            await asyncio.sleep(CERTIFICATE_SECONDS)
            self.renew()

    def renew(self) -> None:
        found = self._content()
        if found == self._known:
            return
        if wrong := self._load():
            _log.error("the new certificate is not used: %s", wrong)
        else:
            _log.info("the certificate was renewed")
        self._known = found

    def _load(self) -> str:
        """Why it cannot be used; empty if it is."""
        try:
            self.context.load_cert_chain(self._chain, self._key)
        except ssl.SSLError as error:
            return f"tls.crt and tls.key are not a certificate and its key ({error.reason})"
        except OSError as error:
            return f"tls.crt or tls.key cannot be read: {error.strerror}"
        return ""

    def _content(self) -> tuple[bytes, bytes] | None:
        try:
            return self._chain.read_bytes(), self._key.read_bytes()
        except OSError:
            return None


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
