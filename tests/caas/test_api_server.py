"""The API's server on a real socket: slow clients, many clients, the end."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from typing import Any

import psutil
import pytest

from caas.api.protocol import MOST_HEADER_BYTES, Protocol, allow_connections
from tests.caas.apikit import IMAGE, Api, FakeCluster, listening, tenancy

SHORT = 0.3


class Impatient(Protocol):
    """Waits for headers as long as a test can."""

    header_seconds = SHORT


class Lonely(Protocol):
    """Takes two connections."""

    most_connections = 2


async def raw(port: int, *pieces: bytes | float) -> tuple[str, dict[str, Any]]:
    """Send pieces, with pauses; gives the status line and the problem, when the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            if isinstance(piece, float):
                await asyncio.sleep(piece)
            else:
                writer.write(piece)
                await writer.drain()
        answer = await asyncio.wait_for(reader.read(), 20)
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert "content-type: application/problem+json" in [line.lower() for line in lines[1:]], answer
    return lines[0], json.loads(body)


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [b"GET /healthz HT"],
        [b"GET /healthz HTTP/1.1\r\nHost: x\r\n"],
        # Not one deadline per byte.
        [b"G", 0.1, b"E", 0.1, b"T", 0.1, b" "],
    ],
)
def test_headers_that_come_slowly_are_not_waited_for(pieces: list[bytes | float]) -> None:
    async def act() -> None:
        async with listening(protocol=Impatient) as (_, port):
            began = time.monotonic()
            status, problem = await raw(port, *pieces)
            assert status.startswith("HTTP/1.1 408")
            assert problem["type"].endswith("/request-timeout")
            assert time.monotonic() - began < 10

    asyncio.run(act())


def test_headers_that_come_slowly_on_a_kept_connection_are_not_waited_for() -> None:
    async def act() -> None:
        async with listening(protocol=Impatient) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b'"ok"' in await reader.readuntil(b"}")
            writer.write(b"GET /hea")
            answer = await asyncio.wait_for(reader.read(), 20)
            assert answer.startswith(b"HTTP/1.1 408")
            writer.close()

    asyncio.run(act())


def test_a_request_that_takes_long_to_answer_is_not_a_slow_client() -> None:
    class Slow(FakeCluster):
        async def _reach(self, call: str) -> None:
            await asyncio.sleep(3 * SHORT)
            await super()._reach(call)

    cluster = Slow()
    cluster.put("tenancies", tenancy("acme"))

    async def act() -> None:
        async with listening(cluster, protocol=Impatient) as (api, _):
            assert (await api.post("acme")).status_code == 201

    asyncio.run(act())


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
        async with listening(options={"body_seconds": SHORT}) as (api, port):
            status, problem = await raw(port, head(api, 100), b"{", 0.1, b'"', 0.1, b"i")
            assert status.startswith("HTTP/1.1 408")
            assert problem["type"].endswith("/request-timeout")
            assert api.cluster.pods == []

    asyncio.run(act())


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
            held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
            await asyncio.sleep(0.05)
            status, problem = await raw(port)
            assert status.startswith("HTTP/1.1 503")
            assert problem["type"].endswith("/busy")
            for _, writer in held:
                writer.close()

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
    async def act() -> None:
        allow_connections()
        async with listening(requestsPerSecond=1, burst=40) as (api, port):
            process = psutil.Process()
            tasks, sockets = len(asyncio.all_tasks()), len(process.net_connections())
            answers = await at_once(api, port, 1000)
            counts = Counter(status for status, _ in answers)
            assert set(counts) <= {201, 409, 429}, counts
            assert counts[201] == len(api.cluster.pods) == 12
            assert counts[429] > 500
            names = {json.loads(body)["type"] for status, body in answers if status != 201}
            assert {name.rsplit("/", 1)[1] for name in names} == {"quota-exceeded", "rate-limited"}
            for _ in range(500):
                if len(process.net_connections()) <= sockets:
                    break
                await asyncio.sleep(0.02)
            assert len(process.net_connections()) <= sockets
            assert len(asyncio.all_tasks()) <= tasks

    asyncio.run(act())


def test_what_is_being_answered_when_the_server_stops_is_answered() -> None:
    class Slow(FakeCluster):
        async def create(self, *args: Any) -> Any:
            begun.set()
            await asyncio.sleep(0.5)
            return await super().create(*args)

    cluster = Slow()
    cluster.put("tenancies", tenancy("acme"))
    begun = asyncio.Event()

    async def act() -> None:
        async with listening(cluster) as (api, _):
            asked = asyncio.create_task(api.post("acme"))
            await begun.wait()
            api.stop()
            answer = await asked
        assert answer.status_code == 201
        assert answer.json()["image"] == IMAGE

    asyncio.run(act())
