"""What every request passes before and after the routes: name, caller, rate, size, time, log, metrics."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any

from caas import metrics
from caas.api.problems import CONTENT_TYPE, Problem, ProblemError, internal
from caas.api.tokens import Caller, Callers

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

GUARDED = "/v1/"
BODY_SECONDS = 10.0
HSTS_SECONDS = 31_536_000
"""For a year a browser that came over HTTPS comes in no other way (RFC 6797)."""
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ONCE = (b"authorization", b"content-type", b"idempotency-key", b"x-request-id")
"""Header fields that decide something: of two, a proxy before us might believe the other one."""
_DRAIN_BYTES = 1_000_000
_DRAIN_SECONDS = 1.0
_MANY = 10_000
"""Buckets that are remembered. The one that was used longest ago is forgotten first, and then full again."""
_log = logging.getLogger("caas.api")


def client(address: str) -> str:
    """By what a client is counted: IPv4 address, /64 of the IPv6 address, or a proxy's name for it."""
    try:
        known = ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if not isinstance(known, IPv6Address):
        return str(known)
    if known.ipv4_mapped is not None:
        return str(known.ipv4_mapped)
    return str(ip_network((known, 64), strict=False).network_address)


@dataclass(eq=False)
class RateLimit:
    """A bucket of tokens per caller, filled at a steady rate. Each copy of this program counts for itself."""

    per_second: float
    burst: float
    clock: Callable[[], float]
    of: str = "requests"
    _buckets: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def spend(self, caller: str) -> None:
        """Take one token; `ProblemError` if there is none, and its `Retry-After` says when there will be."""
        now = self.clock()
        tokens, then = self._buckets.get(caller, (self.burst, now))
        tokens = min(self.burst, tokens + max(0.0, now - then) * self.per_second)
        self._buckets[caller] = (tokens - 1 if tokens >= 1 else tokens, now)
        self._buckets.move_to_end(caller)
        if len(self._buckets) > _MANY:
            self._buckets.popitem(last=False)
        if tokens < 1:
            seconds = math.ceil((1 - tokens) / self.per_second)
            most = f"at most {self.per_second:g} {self.of} per second, {self.burst:g} at once"
            raise ProblemError(
                Problem.RATE,
                f"{most}; try again in {seconds} s",
                headers={"Retry-After": str(seconds)},
            )


class AnonymousLimit:
    """Bounds what is asked without a valid token, by address and in all; it never holds up who has one."""

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        per_second: float = 10.0,
        burst: int = 50,
        per_second_of_all: float = 200.0,
        burst_of_all: int = 1000,
    ) -> None:
        what = "requests without a valid token"
        self._each = RateLimit(per_second, burst, clock, of=f"{what} from one address")
        self._all = RateLimit(per_second_of_all, burst_of_all, clock, of=what)

    def spend(self, address: str) -> None:
        """Take one token of the address and one of all; where there is none, the connection ends too."""
        try:
            self._each.spend(address)
            self._all.spend("")
        except ProblemError as error:
            error.headers = {**error.headers, "Connection": "close"}
            raise


@dataclass(eq=False)
class Gate:
    """An ASGI application around another one; `stop` ends answers that would go on for long."""

    application: App
    callers: Callers
    rate: RateLimit
    anonymous: AnonymousLimit
    max_body_bytes: int
    body_seconds: float = BODY_SECONDS
    stop: Callable[[], None] = lambda: None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return
        exchange = _Exchange(scope, send)
        try:
            await self._pass(scope, receive, exchange)
        except _GoneError:
            pass  # nobody is there to be answered
        except ProblemError as error:
            await exchange.refuse(error, receive)
        except Exception:  # noqa: BLE001 - whatever it is, the client gets an answer
            _log.exception("a request failed", extra={"fields": exchange.fields()})
            if exchange.status is None:
                await exchange.refuse(internal(), receive)
        finally:
            exchange.account()

    async def _pass(self, scope: Scope, receive: Receive, exchange: _Exchange) -> None:
        names = [name for name, _ in scope["headers"]]
        if twice := next((name for name in _ONCE if names.count(name) > 1), None):
            once = f"send the header `{twice.decode().title()}` once"
            raise ProblemError(Problem.MALFORMED, once)
        if scope["path"].startswith(GUARDED):
            await self._admit(scope, exchange)
        else:
            self._count_anonymous(exchange)
        body = await self._body(exchange, receive)
        exchange.body_read = True
        whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return whole.pop() if whole else await receive()

        await self.application(scope, replay, exchange.send)

    async def _admit(self, scope: Scope, exchange: _Exchange) -> None:
        stated = exchange.headers.get(b"authorization")
        authorization = None if stated is None else stated.decode("latin-1")
        try:
            exchange.caller = await self.callers.caller(authorization)
        except ProblemError as error:
            if error.problem in (Problem.UNAUTHENTICATED, Problem.NO_TENANCY):
                self._count_anonymous(exchange)
            raise
        scope["state"]["caller"] = exchange.caller
        self.rate.spend(exchange.caller.tenant)
        kind = exchange.headers.get(b"content-type", b"").split(b";")[0].strip().lower()
        if scope["method"] == "POST" and kind != b"application/json":
            json_please = "send the header `Content-Type: application/json`"
            raise ProblemError(Problem.MEDIA_TYPE, json_please)

    def _count_anonymous(self, exchange: _Exchange) -> None:
        try:
            self.anonymous.spend(exchange.address)
        except ProblemError:
            # Counted in the metrics: a flood must not become a flood of the log.
            exchange.is_logged = False
            raise

    async def _body(self, exchange: _Exchange, receive: Receive) -> bytes:
        """The whole body, which is small, or a refusal before it is here."""
        most = self.max_body_bytes
        stated = exchange.headers.get(b"content-length")
        if stated is None and b"transfer-encoding" not in exchange.headers:
            return b""
        body, more = b"", True
        too_large = ProblemError(Problem.TOO_LARGE, f"a body has at most {most} bytes")
        if stated is not None and stated.isdigit() and int(stated) > most:
            raise too_large
        try:
            async with asyncio.timeout(self.body_seconds):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _GoneError
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > most:
                        raise too_large
        except TimeoutError:
            late = f"the body did not arrive within {self.body_seconds:g} s"
            raise ProblemError(Problem.TIMEOUT, late) from None
        return body


class _GoneError(Exception):
    """The client went away."""


class _Exchange:
    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._began = time.perf_counter()
        self._seconds: float | None = None
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.status: int | None = None
        self.caller: Caller | None = None
        self.body_read = False
        self.is_logged = True
        peer = scope.get("client")
        self.address = client(peer[0]) if peer else ""
        asked = self.headers.get(b"x-request-id", b"").decode("latin-1")
        self.id = asked if _REQUEST_ID.fullmatch(asked) else secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = self.id

    async def send(self, message: Message) -> None:
        """Pass on the answer, with the request's id and what browsers are told."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._seconds = time.perf_counter() - self._began
            message["headers"] = [
                *message.get("headers", ()),
                (b"x-request-id", self.id.encode()),
                # Answers are the tenant's own; no cache between may keep them.
                (b"cache-control", b"no-store"),
                (b"x-content-type-options", b"nosniff"),
            ]
            if self._scope.get("scheme") == "https":
                strict = f"max-age={HSTS_SECONDS}".encode()
                message["headers"].append((b"strict-transport-security", strict))
        await self._send(message)

    async def refuse(self, error: ProblemError, receive: Receive) -> None:
        """Answer with a problem; a body that is still coming is not waited for."""
        body = error.body(self.id)
        length = str(len(body))
        headers = {"content-type": CONTENT_TYPE, "content-length": length, **error.headers}
        stated = self.headers.get(b"content-length", b"0")
        has_body = stated != b"0" or b"transfer-encoding" in self.headers
        unread = has_body and not self.body_read
        if unread:
            headers["connection"] = "close"
        encoded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await self.send(
            {"type": "http.response.start", "status": error.problem.status, "headers": encoded}
        )
        await self.send({"type": "http.response.body", "body": body, "more_body": unread})
        if unread:
            # Closing on unread data would reset the connection before the answer is read.
            await _drain(receive)
            await self.send({"type": "http.response.body", "body": b"", "more_body": False})

    def fields(self) -> dict[str, Any]:
        """For the log: nothing that a client wrote but the path."""
        return {
            "requestId": self.id,
            "method": self._method(),
            "path": self._scope["path"][:200],
            "tenant": self.caller.tenant if self.caller else None,
        }

    def account(self) -> None:
        route = getattr(self._scope.get("route"), "path", "unmatched")
        status = str(self.status or "disconnected")
        metrics.API_REQUESTS.labels(self._method(), route, status).inc()
        if self._seconds is not None:
            metrics.API_REQUEST_SECONDS.labels(self._method(), route).observe(self._seconds)
        if self.is_logged:
            took = round((time.perf_counter() - self._began) * 1000, 1)
            _log.info("request", extra={"fields": {**self.fields(), "status": status, "ms": took}})

    def _method(self) -> str:
        method = str(self._scope["method"])
        return method if method in _METHODS else "other"


async def _drain(receive: Receive) -> None:
    size, more = 0, True
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            while more and size < _DRAIN_BYTES:
                message = await receive()
                size += len(message.get("body", b""))
                more = message.get("more_body", False)
    except TimeoutError:
        return
