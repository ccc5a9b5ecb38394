"""The listening socket: how many connections there may be, and how long one may stall.

Counted where connections are accepted, before a byte is read or a TLS handshake begins.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Sequence
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any

from caas.api.problems import Problem, ProblemError

MOST_CONNECTIONS = 4096
STALL_SECONDS = 30.0
SEND_BUFFER_BYTES = 131_072
"""What the kernel holds of an answer that is not read. Linux reserves twice as much, for its own bookkeeping.
Left to itself it grows to several MB for each connection."""


class Door(socket.socket):
    """A TCP listener that turns away connections beyond its bounds.

    A connection whose peer takes nothing of what was sent to it for `stall_seconds` is ended by the kernel
    (TCP_USER_TIMEOUT, tcp(7): data that stays unacknowledged, or unsent because the peer's window is closed).
    That holds for what is still to be sent after a close, too. Where the kernel has no such option (not
    Linux), nothing ends it.

    Args:
        family: AF_INET or AF_INET6.
        most_per_address: connections of one address; of IPv6, of one /64, which is one customer's.
        proxies: networks whose connections carry those of many clients: they count in all, not by address.
        most: connections in all.
        stall_seconds: how long a peer may take nothing.
        tells: whether one that is turned away is told why, in plain HTTP.
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
        """The next connection.

        Raises:
            ConnectionAbortedError: it was turned away; asyncio goes on with what else there is to do.
        """
        accepted, address = super().accept()
        who = client(address[0])
        refusal = self._refusal(who)
        if refusal is not None:
            with accepted:
                if self._tells:
                    accepted.settimeout(0)
                    accepted.send(refusal.response())
            raise ConnectionAbortedError(refusal.detail)
        self._held[who] += 1
        return _Connection(accepted.detach(), lambda: self._left(who)), address

    def _refusal(self, who: str) -> ProblemError | None:
        if self._held.total() >= self._most:
            return ProblemError(Problem.BUSY, "there are too many connections; try again")
        if self._held[who] >= self._most_per_address and not self._is_proxy(who):
            return ProblemError(
                Problem.BUSY,
                f"at most {self._most_per_address} connections of one address; close some",
            )
        return None

    def _is_proxy(self, who: str) -> bool:
        address = ip_address(who)
        return any(address in network for network in self._proxies)

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


def client(address: str) -> str:
    """By what a client is counted: its IPv4 address, or the /64 of its IPv6 address.

    What a proxy calls its client need not be an address; then it is counted by that name.
    """
    try:
        known = ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if not isinstance(known, IPv6Address):
        return str(known)
    if known.ipv4_mapped is not None:
        return str(known.ipv4_mapped)
    return str(ip_network((known, 64), strict=False).network_address)
