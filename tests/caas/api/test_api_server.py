"""The API's server on a real socket: slow clients, many clients, the end."""

import asyncio
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from cryptography import x509

from caas.api.gate import AnonymousLimit
from caas.api.server import MOST_HEADER_BYTES, Certificate, Protocol
from tests.caas.api.apikit import IMAGE, Api, FakeCluster, listening
from tests.caas.loops import SetLoop, in_loop, in_set_loop
from tests.fixtures.authority import Authority
from tests.fixtures.waiting import PATIENCE_SECONDS, comes

linux = pytest.mark.skipif(
    not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux ends a connection that stalls"
)
LIMIT = 3600.0
"""A deadline that comes when a test sets the clock forward, and by no pause of the machine."""


def written(first: str, *headers: str) -> bytes:
    """A request without a body."""
    return "\r\n".join([f"{first} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


NOTHING = written("GET /nothing")


def ahead(seconds: float) -> None:
    """So much time passes."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SetLoop)
    loop.ahead += seconds


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
        ahead(seconds)


@asynccontextmanager
async def connected(
    port: int, source: str = "127.0.0.1", most: int | None = None
) -> AsyncIterator[socket.socket]:
    """A connection without a buffer in this process: what was answered outlives a reset.

    It holds at `most` so many bytes that are not read.
    """
    with socket.socket() as connection:
        if most is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, most)
        connection.setblocking(False)
        connection.bind((source, 0))
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


async def problem(connection: socket.socket) -> tuple[str, str]:
    """Status and name of the problem, and its detail, when the server closes."""
    answer = await rest(connection)
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    assert "content-type: application/problem+json" in [line.lower() for line in lines], answer
    said = json.loads(body)
    return f"{status.split()[1]} {said['type'].rsplit('/')[-1]}", said["detail"]


async def refusal(port: int, content: bytes = b"") -> tuple[str, str]:
    """The problem of somebody who sends this."""
    async with connected(port) as connection:
        await send(connection, content)
        return await problem(connection)


def authorization(api: Api, tenant: str = "acme") -> str:
    return f"Authorization: {api.issuer.bearer(tenant)['Authorization']}"


def head(api: Api, length: int) -> bytes:
    stated = ("Content-Type: application/json", f"Content-Length: {length}")
    return written("POST /v1/containers", authorization(api), *stated)


HEAD = b"a good one"


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [(b"GET /nothing HT", LIMIT)],
        [(b"GET /nothing HTTP/1.1\r\nHost: x\r\n", LIMIT)],
        # Not one deadline per byte.
        [(b"G", 0.4 * LIMIT), (b"E", 0.4 * LIMIT), (b"T", 0.4 * LIMIT)],
        [(HEAD, 0), (b"{", 0.4 * LIMIT), (b'"', 0.4 * LIMIT), (b"i", 0.4 * LIMIT)],
        # On a connection that was kept.
        [(NOTHING, 0), (b"GET /not", LIMIT)],
    ],
    ids=["none", "a part of a line", "a part", "by and by", "the body", "the second"],
)
@in_set_loop
async def test_what_comes_slowly_is_not_waited_for(pieces: list[tuple[bytes, float]]) -> None:
    clockwork = Clockwork()
    limit = {"body_seconds": LIMIT}
    async with (
        listening(options=limit, protocol=clockwork.protocol) as (api, port),
        connected(port) as connection,
    ):
        await clockwork.pass_by(0 if pieces else LIMIT, after=b"")
        for piece, seconds in pieces:
            said = head(api, 100) if piece == HEAD else piece
            await send(connection, said)
            await clockwork.pass_by(seconds, after=said)
            if piece == NOTHING:
                assert b"not-found" in await rest(connection, b"}")
            # Who it is has been found out, and the body is waited for.
            await api.settle()
        assert (await problem(connection))[0] == "408 request-timeout"
        assert api.cluster.pods == []


class Late(FakeCluster):
    """Makes nothing before it may."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.may = asyncio.Event(), asyncio.Event()

    async def create(self, *args: Any) -> Any:
        self.begun.set()
        await self.may.wait()
        return await super().create(*args)


@in_set_loop
async def test_a_request_that_takes_long_to_answer_is_not_a_slow_client() -> None:
    cluster, longer = Late(), {"kube_seconds": 100 * LIMIT}
    async with listening(cluster, options=longer, protocol=Clockwork().protocol) as (api, _):
        api.client.timeout = None  # type: ignore[assignment]
        asked = asyncio.create_task(api.post("acme"))
        await cluster.begun.wait()
        ahead(3 * LIMIT)
        await asyncio.sleep(0.01)
        cluster.may.set()
        assert (await asked).status_code == 201


@in_loop
async def test_what_is_being_answered_when_the_server_stops_is_answered() -> None:
    cluster = Late()
    async with listening(cluster) as (api, _):
        # What the server calls when it has begun to stop.
        api.app.stop = cluster.may.set
        asked = asyncio.create_task(api.post("acme"))
        await cluster.begun.wait()
        api.stop()
        assert (await asked).json()["image"] == IMAGE


@in_loop
async def test_a_client_that_goes_away_in_the_middle_leaves_nothing() -> None:
    async with listening() as (api, port):
        for _ in range(10):
            async with connected(port) as connection:
                await send(connection, head(api, 100) + b'{"image"')
        assert (await api.get("acme", "/v1/containers")).json()["items"] == []


@in_loop
async def test_what_cannot_be_answered_otherwise_is_refused_before_more_comes() -> None:
    async with listening() as (api, port):
        refused = {
            b"hello\r\n\r\n": "400 malformed-request",
            written("GET /", "Content-Length: x"): "400 malformed-request",
            # A client that begins with TLS.
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n": "400 malformed-request",
            b"GET / HTTP/1.1\r\nA: " + b"a" * 2 * MOST_HEADER_BYTES: "431 headers-too-large",
            head(api, 10**12): "413 body-too-large",
            written("POST /v1/nothing", "Content-Length: 6"): "401 unauthenticated",
        }
        answers = await asyncio.gather(*(refusal(port, sent) for sent in refused))
        assert [status for status, _ in answers] == list(refused.values())


@pytest.mark.attack(
    by="anyone on the network",
    tries="take all connections of the API from one address",
    stopped_by="64 connections of one address; more are turned away before TLS",
)
@pytest.mark.parametrize(
    ("bound", "said"), [("most", ""), ("most_per_address", "connections of one address")]
)
@in_loop
async def test_there_may_be_so_many_connections(bound: str, said: str) -> None:
    async with (
        listening(door={bound: 2}) as (_, port),
        connected(port) as first,
        connected(port),
    ):
        # They come to the server in the order in which they were made.
        status, detail = await refusal(port)
        assert status == "503 busy"
        assert said in detail
        # A client at another address is not held up by it.
        if bound == "most_per_address":
            async with connected(port, "127.0.0.9") as other:
                await send(other, NOTHING)
                assert b"not-found" in await rest(other, b"}")
        await send(first, written("GET /nothing", "Connection: close"))
        assert b"not-found" in await rest(first)
        # What was closed makes room for another.
        async with connected(port) as another:
            await send(another, NOTHING)
            assert b"not-found" in await rest(another, b"}")


@in_loop
async def test_over_tls_one_too_many_is_told_nothing_in_the_clear(tmp_path: Path) -> None:
    shown = Certificate(Authority(tmp_path).issue("localhost"))
    async with (
        listening(door={"most_per_address": 1}, certificate=shown) as (_, port),
        connected(port),
        connected(port) as second,
    ):
        assert await rest(second) == b""


@in_loop
async def test_a_proxy_carries_the_connections_of_many_clients() -> None:
    door = {"most_per_address": 1, "proxies": ["127.0.0.0/24"]}
    async with listening(door=door) as (_, port), connected(port), connected(port) as second:
        await send(second, NOTHING)
        assert b"not-found" in await rest(second, b"}")


PIPELINED = written("GET /openapi.json")


def server_side(port: int, client_port: int) -> list[str]:
    """The states of what the kernel still holds of the server's end of a connection.

    Connections to other servers may have the same port on their client's side.
    """
    return [
        found.status
        for found in psutil.net_connections("tcp")
        if found.raddr and (found.laddr.port, found.raddr.port) == (port, client_port)
    ]


async def gone(port: int, client_port: int) -> None:
    await comes(lambda: not server_side(port, client_port))


@linux
@pytest.mark.attack(
    by="anyone on the network",
    tries="pipeline requests to the API and never read an answer",
    stopped_by="the connection ends when nothing of an answer was taken for 30 seconds",
)
@pytest.mark.parametrize("over_tls", [False, True])
@in_loop
async def test_a_client_that_never_reads_is_dropped(tmp_path: Path, *, over_tls: bool) -> None:
    authority = Authority(tmp_path)
    shown = Certificate(authority.issue("localhost")) if over_tls else None

    def never_read(plain: socket.socket, port: int) -> None:
        plain.settimeout(PATIENCE_SECONDS)
        context = authority.client_context()
        connection = context.wrap_socket(plain, server_hostname="localhost") if shown else plain
        with connection:
            client_port = connection.getsockname()[1]
            connection.settimeout(0.2)
            # Until the server takes no more, or has ended the connection.
            with suppress(OSError):
                while True:
                    connection.send(PIPELINED * 10)
            asyncio.run(gone(port, client_port))

    async with (
        listening(door={"stall_seconds": 1}, certificate=shown) as (_, port),
        connected(port, most=4096) as connection,
    ):
        await asyncio.to_thread(never_read, connection, port)


class Talkative(FakeCluster):
    """Its containers write without end, and fast."""

    async def pod_log(self, *_: Any, **__: Any) -> AsyncIterator[bytes]:
        self.open_logs += 1
        try:
            while True:
                yield b"x" * 65_536
                await asyncio.sleep(0)
        finally:
            self.open_logs -= 1


@linux
@pytest.mark.attack(
    by="a tenant",
    tries="follow a log and stop reading it",
    stopped_by="the connection ends when nothing of an answer was taken for 30 seconds",
)
@in_loop
async def test_a_log_stream_is_dropped_that_stalls_and_not_one_that_is_read_slowly() -> None:
    async with listening(Talkative(), door={"stall_seconds": 1}) as (api, port):
        async with connected(port, most=4096) as connection:
            client_port = connection.getsockname()[1]
            path = f"/v1/containers/{await api.started()}/logs?follow=true"
            await send(connection, written(f"GET {path}", authorization(api)))
            loop = asyncio.get_running_loop()
            began, received = loop.time(), 0
            # Two deadlines pass, in none of which nothing was read.
            while loop.time() - began < 2:
                received += len(await loop.sock_recv(connection, 65_536))
                await asyncio.sleep(0.1)
            assert server_side(port, client_port) == [psutil.CONN_ESTABLISHED]
            assert received > 0
            await gone(port, client_port)
        await comes(lambda: not api.cluster.open_logs)


def standing_still(**bounds: Any) -> dict[str, Any]:
    """Bounds that are never filled up again."""
    return {"anonymous": AnonymousLimit(lambda: 0.0, **bounds)}


async def flood(api: Api, *forwarded: str) -> list[int]:
    """What is answered to somebody without a valid token, for whom a proxy says this."""
    answers = [
        await api.client.get(
            "/v1/containers",
            headers={"Authorization": "Bearer x.y.z", "X-Forwarded-For": client},
        )
        for client in forwarded
    ]
    return [answer.status_code for answer in answers]


@pytest.mark.attack(
    by="anyone on the network",
    tries="ask without a valid token as fast as the network carries",
    stopped_by="10 such requests per second of one address, 200 of all; the connection ends with the refusal",
)
@in_loop
async def test_requests_without_a_valid_token_are_limited() -> None:
    async with listening(options=standing_still()) as (api, _):
        # Who is no proxy does not choose its address.
        codes = await flood(api, *(f"203.0.113.{number}" for number in range(60)))
        assert Counter(codes) == {401: 50, 429: 10}
        refused = await api.client.get("/v1/containers")
        assert refused.headers["Retry-After"] == "1"
        assert refused.headers["Connection"] == "close"
        assert (await api.client.get("/openapi.json")).status_code == 429
        # Who has a token is not held up by who has none, from the same address.
        assert (await api.get("acme", "/v1/containers")).status_code == 200


CLIENTS = range(25)


@pytest.mark.parametrize(
    ("bounds", "forwarded", "answered"),
    [
        (
            # What a client claims of itself comes before what the proxy adds, and is not believed.
            {"burst": 20},
            [
                *(f"203.0.113.{number}, 198.51.100.7" for number in CLIENTS),
                "198.51.100.7",
                "198.51.100.8",
                "not an address",
            ],
            [401] * 20 + [429] * 6 + [401] * 2,
        ),
        # Of one /64 each: more addresses than that cost nothing.
        (
            {"burst_of_all": 20},
            [f"2001:db8:0:{number:x}::1" for number in CLIENTS],
            [401] * 20 + [429] * 5,
        ),
        ({"burst": 20}, [f"2001:db8::{number:x}" for number in CLIENTS], [401] * 20 + [429] * 5),
    ],
    ids=["told apart", "all together", "one IPv6 network"],
)
@in_loop
async def test_behind_a_proxy_clients_are_told_apart_by_what_the_proxy_says(
    bounds: dict[str, int], forwarded: list[str], answered: list[int]
) -> None:
    door = {"proxies": ["127.0.0.1/32"]}
    async with listening(options=standing_still(**bounds), door=door) as (api, _):
        assert await flood(api, *forwarded) == answered


@pytest.mark.attack(
    by="a tenant",
    tries="send two Authorization headers, of which a proxy may check the other one",
    stopped_by="a request with two is refused with 400",
)
@pytest.mark.parametrize("name", ["Authorization", "X-Request-Id", "Idempotency-Key"])
@in_loop
async def test_a_header_that_decides_something_comes_once(name: str) -> None:
    async with listening() as (api, port):
        other = authorization(api, "globex").partition(" ")[2]
        lines = [authorization(api), f"{name.lower()}: {other}", "Connection: close"]
        if name != "Authorization":
            lines.append(f"{name}: a")
        status, detail = await refusal(port, written("GET /v1/containers", *lines))
        assert status.startswith("400")
        assert detail == f"send the header `{name}` once"


@in_loop
async def test_a_certificate_that_was_renewed_is_shown_without_a_restart(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    folder = authority.issue("localhost")
    certificate = Certificate(folder)

    def shown(port: int) -> int:
        with (
            socket.create_connection(("127.0.0.1", port)) as plain,
            authority.client_context().wrap_socket(
                plain, server_hostname="localhost"
            ) as connection,
        ):
            der = connection.getpeercert(binary_form=True)
            assert der is not None
            return x509.load_der_x509_certificate(der).serial_number

    async with listening(certificate=certificate) as (api, port):
        first = await asyncio.to_thread(shown, port)
        certificate.renew()
        assert await asyncio.to_thread(shown, port) == first
        authority.issue("localhost")
        certificate.renew()
        second = await asyncio.to_thread(shown, port)
        assert second != first
        (folder / "tls.key").write_text("nonsense")
        certificate.renew()
        assert await asyncio.to_thread(shown, port) == second
        async with httpx.AsyncClient(verify=authority.client_context(), trust_env=False) as client:
            answer = await client.get(
                f"https://localhost:{port}/v1/containers", headers=api.issuer.bearer("acme")
            )
            # Browsers are told to come by HTTPS alone.
            assert answer.status_code == 200
            assert answer.headers["Strict-Transport-Security"] == "max-age=31536000"
