"""What every request passes before and after the routes: name, caller, rate, size, time, log, metrics."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from caas import metrics
from caas.api.callers import Caller, Callers
from caas.api.door import client
from caas.api.limits import RateLimit, StrangerLimit
from caas.api.problems import CONTENT_TYPE, Problem, ProblemError

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
_log = logging.getLogger("caas.api")


class Gate:
    """An ASGI application around another one."""

    def __init__(
        self,
        app: App,
        callers: Callers,
        rate: RateLimit,
        strangers: StrangerLimit,
        *,
        max_body_bytes: int,
        body_seconds: float = BODY_SECONDS,
        stop: Callable[[], None] = lambda: None,
    ) -> None:
        self.application = app
        self._callers = callers
        self._rate = rate
        self._strangers = strangers
        self._max_body_bytes = max_body_bytes
        self._body_seconds = body_seconds
        self.stop = stop
        """Ends answers that would go on for long."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the life of the program."""
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
                await exchange.refuse(
                    ProblemError(
                        Problem.INTERNAL,
                        "this is our fault; tell the operator the request id",
                    ),
                    receive,
                )
        finally:
            exchange.account()

    async def _pass(self, scope: Scope, receive: Receive, exchange: _Exchange) -> None:
        _once(scope)
        headers = dict(scope["headers"])
        if not scope["path"].startswith(GUARDED):
            self._count_stranger(exchange)
        else:
            authorization = headers.get(b"authorization")
            try:
                caller = await self._callers.caller(
                    None if authorization is None else authorization.decode("latin-1")
                )
            except ProblemError as error:
                if error.problem in (Problem.UNAUTHENTICATED, Problem.NO_TENANCY):
                    self._count_stranger(exchange)
                raise
            scope["state"]["caller"] = caller
            exchange.caller = caller
            self._rate.spend(caller.tenant)
            if scope["method"] == "POST" and not _is_json(headers):
                raise ProblemError(
                    Problem.MEDIA_TYPE, "send the header `Content-Type: application/json`"
                )
        body = await self._body(headers, receive)
        exchange.body_read = True

        given = False

        async def replay() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.application(scope, replay, exchange.send)

    def _count_stranger(self, exchange: _Exchange) -> None:
        try:
            self._strangers.spend(exchange.address)
        except ProblemError:
            # Counted in the metrics: a flood must not become a flood of the log.
            exchange.is_logged = False
            raise

    async def _body(self, headers: MutableMapping[bytes, bytes], receive: Receive) -> bytes:
        """The whole body, which is small, or a refusal before it is here."""
        stated = headers.get(b"content-length")
        if stated is None and b"transfer-encoding" not in headers:
            return b""
        if stated is not None and stated.isdigit() and int(stated) > self._max_body_bytes:
            raise self._too_large()
        pieces, size = [], 0
        try:
            async with asyncio.timeout(self._body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _GoneError
                    pieces.append(message.get("body", b""))
                    size += len(pieces[-1])
                    if size > self._max_body_bytes:
                        raise self._too_large()
                    if not message.get("more_body"):
                        return b"".join(pieces)
        except TimeoutError:
            raise ProblemError(
                Problem.TIMEOUT, f"the body did not arrive within {self._body_seconds:g} s"
            ) from None

    def _too_large(self) -> ProblemError:
        return ProblemError(Problem.TOO_LARGE, f"a body has at most {self._max_body_bytes} bytes")


class _GoneError(Exception):
    """The client went away."""


class _Exchange:
    """One request and its answer, as far as they have come."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._began = time.perf_counter()
        self._seconds: float | None = None
        self.status: int | None = None
        self.caller: Caller | None = None
        self.body_read = False
        self.is_logged = True
        peer = scope.get("client")
        self.address = client(peer[0]) if peer else ""
        asked = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
        self.id = asked if _REQUEST_ID.fullmatch(asked) else secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = self.id

    async def send(self, message: Message) -> None:
        """Pass on the answer, with the request's id."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._seconds = time.perf_counter() - self._began
            message["headers"] = [
                *message.get("headers", ()),
                (b"x-request-id", self.id.encode()),
                # Answers are the tenant's own; no cache between may keep them.
                (b"cache-control", b"no-store"),
                *self._for_browsers(),
            ]
        await self._send(message)

    def _for_browsers(self) -> list[tuple[bytes, bytes]]:
        said = [(b"x-content-type-options", b"nosniff")]
        if self._scope.get("scheme") == "https":
            said.append((b"strict-transport-security", f"max-age={HSTS_SECONDS}".encode()))
        return said

    async def refuse(self, error: ProblemError, receive: Receive) -> None:
        """Answer with a problem; a body that is still coming is not waited for."""
        body = error.body(self.id)
        headers = {
            "content-type": CONTENT_TYPE,
            "content-length": str(len(body)),
            **error.headers,
        }
        unread = not self.body_read and _has_body(self._scope)
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
        """Count it and log it."""
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


def _once(scope: Scope) -> None:
    given = [name for name, _ in scope["headers"]]
    for name in _ONCE:
        if given.count(name) > 1:
            raise ProblemError(Problem.MALFORMED, f"send the header `{name.decode().title()}` once")


def _is_json(headers: MutableMapping[bytes, bytes]) -> bool:
    kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
    return kind == b"application/json"


def _has_body(scope: Scope) -> bool:
    headers = dict(scope["headers"])
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers


async def _drain(receive: Receive) -> None:
    size = 0
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            while size < _DRAIN_BYTES:
                message = await receive()
                size += len(message.get("body", b""))
                if not message.get("more_body"):
                    return
    except TimeoutError:
        return
