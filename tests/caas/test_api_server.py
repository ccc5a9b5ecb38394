"""The API's server on a real socket: slow clients, many clients, the end."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import psutil
import pytest

from caas.api.protocol import MOST_HEADER_BYTES, Protocol, allow_connections
from tests.caas.apikit import (
    IMAGE,
    PATIENCE_SECONDS,
    Api,
    FakeCluster,
    Patient,
    listening,
    tenancy,
)
from tests.caas.loops import SetLoop

LIMIT = 3600.0
"""A deadline that comes when a test sets the clock forward, and by no pause of the machine."""


class Lonely(Patient):
    """Takes two connections."""

    most_connections = 2


class Clockwork:
    """A server whose clock the test sets, and what has come to it over connections."""

    def __init__(self) -> None:
        heard = self._heard = asyncio.Queue[bytes]()

        class Hearing(Protocol):
            header_seconds = LIMIT

            def connection_made(self, transport: Any) -> None:
                super().connection_made(transport)
                heard.put_nowait(b"")

            def data_received(self, data: bytes) -> None:
                super().data_received(data)
                heard.put_nowait(data)

        self.protocol = Hearing

    async def pass_by(self, seconds: float, *, after: bytes) -> None:
        """So much time passes as soon as this has come."""
        heard = await self._heard.get()
        while len(heard) < len(after):
            heard += await self._heard.get()
        assert heard == after
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SetLoop)
        loop.ahead += seconds


def play(act: Callable[[], Awaitable[None]]) -> None:
    """On a loop whose clock can be set."""

    async def run() -> None:
        await act()

    with asyncio.Runner(loop_factory=SetLoop) as runner:
        runner.run(run())


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[socket.socket]:
    """A connection without a buffer in this process: what was answered outlives a reset."""
    with socket.socket() as connection:
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
        yield connection


async def send(connection: socket.socket, content: bytes) -> None:
    await asyncio.get_running_loop().sock_sendall(connection, content)


async def rest(connection: socket.socket, end: bytes = b"") -> bytes:
    """All that is answered, or what comes up to `end`."""
    said = b""
    async with asyncio.timeout(PATIENCE_SECONDS):
        with suppress(ConnectionResetError):
            while piece := await asyncio.get_running_loop().sock_recv(connection, 65_536):
                said += piece
                if end and said.endswith(end):
                    break
    return said


async def refusal(connection: socket.socket) -> tuple[str, dict[str, Any]]:
    """The status line and the problem, when the server closes."""
    answer = await rest(connection)
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert "content-type: application/problem+json" in [line.lower() for line in lines[1:]], answer
    return lines[0], json.loads(body)


async def raw(port: int, content: bytes = b"") -> tuple[str, dict[str, Any]]:
    """What is said to somebody who sends this."""
    async with connected(port) as connection:
        await send(connection, content)
        return await refusal(connection)


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [(b"GET /healthz HT", LIMIT)],
        [(b"GET /healthz HTTP/1.1\r\nHost: x\r\n", LIMIT)],
        # Not one deadline per byte.
        [(b"G", 0.4 * LIMIT), (b"E", 0.4 * LIMIT), (b"T", 0.4 * LIMIT)],
    ],
)
def test_headers_that_come_slowly_are_not_waited_for(pieces: list[tuple[bytes, float]]) -> None:
    async def act() -> None:
        clockwork = Clockwork()
        async with (
            listening(protocol=clockwork.protocol) as (_, port),
            connected(port) as connection,
        ):
            await clockwork.pass_by(0 if pieces else LIMIT, after=b"")
            for piece, seconds in pieces:
                await send(connection, piece)
                await clockwork.pass_by(seconds, after=piece)
            status, problem = await refusal(connection)
            assert status.startswith("HTTP/1.1 408")
            assert problem["type"].endswith("/request-timeout")

    play(act)


def test_headers_that_come_slowly_on_a_kept_connection_are_not_waited_for() -> None:
    async def act() -> None:
        clockwork = Clockwork()
        async with (
            listening(protocol=clockwork.protocol) as (_, port),
            connected(port) as connection,
        ):
            await clockwork.pass_by(0, after=b"")
            whole, part = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /hea"
            await send(connection, whole)
            await clockwork.pass_by(0, after=whole)
            assert b'"ok"' in await rest(connection, b"}")
            await send(connection, part)
            await clockwork.pass_by(LIMIT, after=part)
            assert (await rest(connection)).startswith(b"HTTP/1.1 408")

    play(act)


def test_a_request_that_takes_long_to_answer_is_not_a_slow_client() -> None:
    class Slow(FakeCluster):
        async def _reach(self, call: str) -> None:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, SetLoop)
            loop.ahead += 3 * LIMIT
            await asyncio.sleep(0.01)
            await super()._reach(call)

    cluster = Slow()
    cluster.put("tenancies", tenancy("acme"))

    async def act() -> None:
        longer = {"kube_seconds": 100 * LIMIT}
        async with listening(cluster, options=longer, protocol=Clockwork().protocol) as (api, _):
            api.client.timeout = None  # type: ignore[assignment]
            assert (await api.post("acme")).status_code == 201

    play(act)


def head(api: Api, length: int, tenant: str = "acme") -> bytes:
    lines = [
        "POST /v1/containers HTTP/1.1",
        "Host: x",
        f"Authorization: {api.bearer(tenant)['Authorization']}",
        "Content-Type: application/json",
        f"Content-Length: {length}",
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def test_a_body_that_comes_slowly_is_not_waited_for() -> None:
    async def act() -> None:
        clockwork = Clockwork()
        limit = {"body_seconds": LIMIT}
        async with (
            listening(options=limit, protocol=clockwork.protocol) as (api, port),
            connected(port) as connection,
        ):
            await clockwork.pass_by(0, after=b"")
            begin = head(api, 100)
            await send(connection, begin)
            await clockwork.pass_by(0, after=begin)
            # Who it is has been found out, and the body is waited for.
            await api.settle()
            for piece in (b"{", b'"', b"i"):
                await send(connection, piece)
                await clockwork.pass_by(0.4 * LIMIT, after=piece)
            status, problem = await refusal(connection)
            assert status.startswith("HTTP/1.1 408")
            assert problem["type"].endswith("/request-timeout")
            assert api.cluster.pods == []

    play(act)


def test_a_body_that_says_it_is_too_large_is_refused_before_it_comes() -> None:
    async def act() -> None:
        async with listening() as (api, port):
            status, problem = await raw(port, head(api, 10**12))
            assert status.startswith("HTTP/1.1 413")
            assert problem["type"].endswith("/body-too-large")

    asyncio.run(act())


def test_who_has_no_token_is_refused_before_a_body_comes() -> None:
    async def act() -> None:
        async with listening() as (_, port):
            status, _ = await raw(
                port, b"POST /v1/containers HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n"
            )
            assert status.startswith("HTTP/1.1 401")

    asyncio.run(act())


def test_a_client_that_goes_away_in_the_middle_leaves_nothing() -> None:
    async def act() -> None:
        async with listening() as (api, port):
            for _ in range(10):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(head(api, 100) + b'{"image"')
                await writer.drain()
                writer.close()
            assert (await api.get("acme", "/v1/containers")).json()["items"] == []

    asyncio.run(act())


@pytest.mark.parametrize(
    ("sent", "status", "name"),
    [
        (b"hello\r\n\r\n", "400", "malformed-request"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n", "400", "malformed-request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "400", "malformed-request"),
        (b"GET / HTTP/1.1\r\nA: " + b"a" * 2 * MOST_HEADER_BYTES, "431", "headers-too-large"),
    ],
)
def test_what_is_no_http_is_a_problem_too(sent: bytes, status: str, name: str) -> None:
    async def act() -> None:
        async with listening() as (_, port):
            said, problem = await raw(port, sent)
            assert said.startswith(f"HTTP/1.1 {status}")
            assert problem["type"].endswith(f"/{name}")

    asyncio.run(act())


def test_too_many_connections_are_told_so() -> None:
    async def act() -> None:
        async with listening(protocol=Lonely) as (_, port):
            # They come to the server in the order in which they were made.
            async with connected(port), connected(port):
                status, problem = await raw(port)
            assert status.startswith("HTTP/1.1 503")
            assert problem["type"].endswith("/busy")

    asyncio.run(act())


async def at_once(api: Api, port: int, count: int) -> list[tuple[int, bytes]]:
    """So many requests on so many connections, all there before the first is answered."""
    body = json.dumps({"image": IMAGE, "gpus": 1}).encode()
    heads = [head(api, len(body), tenant) for tenant in ("acme", "globex")]
    held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
    for number, (_, writer) in enumerate(held):
        writer.write(heads[number % 2] + body)

    async def answer(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[int, bytes]:
        start = await reader.readuntil(b"\r\n\r\n")
        length = int(start.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        content = await reader.readexactly(length)
        writer.close()
        return int(start.split()[1]), content

    return await asyncio.gather(*(answer(*one) for one in held))


def test_a_thousand_requests_at_once_make_what_the_quota_allows() -> None:
    allow_connections()
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files != resource.RLIM_INFINITY and files < 2500:
        pytest.skip(f"this process may open {files} files only")

    async def act() -> None:
        async with listening(requestsPerSecond=0.1, burst=40) as (api, port):
            process = psutil.Process()
            tasks, sockets = len(asyncio.all_tasks()), len(process.net_connections())
            answers = await at_once(api, port, 1000)
            counts = Counter(status for status, _ in answers)
            assert set(counts) <= {201, 409, 429}, counts
            assert counts[201] == len(api.cluster.pods) == 12
            assert counts[429] > 500
            names = {json.loads(body)["type"] for status, body in answers if status != 201}
            assert {name.rsplit("/", 1)[1] for name in names} == {"quota-exceeded", "rate-limited"}
            async with asyncio.timeout(PATIENCE_SECONDS):
                while len(process.net_connections()) > sockets or len(asyncio.all_tasks()) > tasks:
                    await asyncio.sleep(0.02)

    asyncio.run(act())


def test_what_is_being_answered_when_the_server_stops_is_answered() -> None:
    class Slow(FakeCluster):
        async def create(self, *args: Any) -> Any:
            begun.set()
            await stopping.wait()
            return await super().create(*args)

    cluster = Slow()
    cluster.put("tenancies", tenancy("acme"))
    begun, stopping = asyncio.Event(), asyncio.Event()

    async def act() -> None:
        async with listening(cluster) as (api, _):
            # What the server calls when it has begun to stop.
            api.app.stop = stopping.set
            asked = asyncio.create_task(api.post("acme"))
            await begun.wait()
            api.stop()
            answer = await asked
        assert answer.status_code == 201
        assert answer.json()["image"] == IMAGE

    asyncio.run(act())
