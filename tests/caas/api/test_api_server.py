"""The API's server on a real socket: slow clients, many clients, the end."""

import asyncio
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from cryptography import x509

from caas import metrics
from caas.api.gate import AnonymousLimit
from caas.api.server import MOST_HEADER_BYTES, Certificate, Protocol
from caas.program import Health
from tests.caas.api.apikit import IMAGE, PATIENCE_SECONDS, Api, FakeCluster, listening, tenancy
from tests.caas.api.test_api_logs import started
from tests.caas.loops import SetLoop, in_loop, in_set_loop
from tests.fixtures.authority import Authority
from tests.fixtures.waiting import comes

linux = pytest.mark.skipif(
    not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux ends a connection that stalls"
)
LIMIT = 3600.0
"""A deadline that comes when a test sets the clock forward, and by no pause of the machine."""


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


@asynccontextmanager
async def connected(port: int, source: str = "127.0.0.1") -> AsyncIterator[socket.socket]:
    """A connection without a buffer in this process: what was answered outlives a reset."""
    with socket.socket() as connection:
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
        [(b"GET /nothing HT", LIMIT)],
        [(b"GET /nothing HTTP/1.1\r\nHost: x\r\n", LIMIT)],
        # Not one deadline per byte.
        [(b"G", 0.4 * LIMIT), (b"E", 0.4 * LIMIT), (b"T", 0.4 * LIMIT)],
    ],
)
@in_set_loop
async def test_headers_that_come_slowly_are_not_waited_for(
    pieces: list[tuple[bytes, float]],
) -> None:
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


@in_set_loop
async def test_headers_that_come_slowly_on_a_kept_connection_are_not_waited_for() -> None:
    clockwork = Clockwork()
    async with (
        listening(protocol=clockwork.protocol) as (_, port),
        connected(port) as connection,
    ):
        await clockwork.pass_by(0, after=b"")
        whole, part = b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /not"
        await send(connection, whole)
        await clockwork.pass_by(0, after=whole)
        assert b"not-found" in await rest(connection, b"}")
        await send(connection, part)
        await clockwork.pass_by(LIMIT, after=part)
        assert (await rest(connection)).startswith(b"HTTP/1.1 408")


@in_set_loop
async def test_a_request_that_takes_long_to_answer_is_not_a_slow_client() -> None:
    class Slow(FakeCluster):
        async def _reach(self, call: str) -> None:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, SetLoop)
            loop.ahead += 3 * LIMIT
            await asyncio.sleep(0.01)
            await super()._reach(call)

    cluster = Slow()
    cluster.put("tenancies", tenancy("acme"))

    longer = {"kube_seconds": 100 * LIMIT}
    async with listening(cluster, options=longer, protocol=Clockwork().protocol) as (api, _):
        api.client.timeout = None  # type: ignore[assignment]
        assert (await api.post("acme")).status_code == 201


def head(api: Api, length: int, tenant: str = "acme") -> bytes:
    lines = [
        "POST /v1/containers HTTP/1.1",
        "Host: x",
        f"Authorization: {api.bearer(tenant)['Authorization']}",
        "Content-Type: application/json",
        f"Content-Length: {length}",
    ]
    return "\r\n".join([*lines, "", ""]).encode()


@in_set_loop
async def test_a_body_that_comes_slowly_is_not_waited_for() -> None:
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


@in_loop
async def test_a_body_that_says_it_is_too_large_is_refused_before_it_comes() -> None:
    async with listening() as (api, port):
        status, problem = await raw(port, head(api, 10**12))
        assert status.startswith("HTTP/1.1 413")
        assert problem["type"].endswith("/body-too-large")


@in_loop
async def test_who_has_no_token_is_refused_before_a_body_comes() -> None:
    async with listening() as (_, port):
        status, _ = await raw(
            port, b"POST /v1/containers HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n"
        )
        assert status.startswith("HTTP/1.1 401")


@in_loop
async def test_a_client_that_goes_away_in_the_middle_leaves_nothing() -> None:
    async with listening() as (api, port):
        for _ in range(10):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head(api, 100) + b'{"image"')
            await writer.drain()
            writer.close()
        assert (await api.get("acme", "/v1/containers")).json()["items"] == []


@pytest.mark.parametrize(
    ("sent", "status", "name"),
    [
        (b"hello\r\n\r\n", "400", "malformed-request"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n", "400", "malformed-request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "400", "malformed-request"),
        (b"GET / HTTP/1.1\r\nA: " + b"a" * 2 * MOST_HEADER_BYTES, "431", "headers-too-large"),
    ],
)
@in_loop
async def test_what_is_no_http_is_a_problem_too(sent: bytes, status: str, name: str) -> None:
    async with listening() as (_, port):
        said, problem = await raw(port, sent)
        assert said.startswith(f"HTTP/1.1 {status}")
        assert problem["type"].endswith(f"/{name}")


@in_loop
async def test_too_many_connections_are_told_so() -> None:
    async with listening(door={"most": 2}) as (_, port):
        # They come to the server in the order in which they were made.
        async with connected(port), connected(port):
            status, problem = await raw(port)
        assert status.startswith("HTTP/1.1 503")
        assert problem["type"].endswith("/busy")


@in_loop
async def test_a_closed_connection_makes_room_for_another() -> None:
    async with listening(door={"most_per_address": 1}) as (api, port):
        for _ in range(3):
            async with connected(port) as connection:
                await send(
                    connection, b"GET /nothing HTTP/1.1\r\nConnection: close\r\nHost: x\r\n\r\n"
                )
                assert b"not-found" in await rest(connection)
        assert (await api.get("acme", "/v1/containers")).status_code == 200


PIPELINED = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"


async def fill(connection: socket.socket) -> None:
    """Ask again and again, and read nothing, until the server takes no more or ends the connection."""
    with suppress(ConnectionError):
        while True:
            async with asyncio.timeout(0.2):
                await send(connection, PIPELINED * 10)


@contextmanager
def small(port: int) -> Iterator[socket.socket]:
    """A connection that holds little of what it does not read."""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", port))
        connection.setblocking(False)
        yield connection


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
@in_loop
async def test_a_client_that_never_reads_is_dropped() -> None:
    async with listening(door={"stall_seconds": 1}) as (api, port):
        with small(port) as connection:
            with suppress(TimeoutError):
                await fill(connection)
            await gone(port, connection.getsockname()[1])
        assert (await api.get("acme", "/v1/containers")).status_code == 200


@linux
@in_loop
async def test_a_client_that_never_reads_is_dropped_over_tls_too(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    def never_read(plain: socket.socket, port: int) -> None:
        plain.settimeout(PATIENCE_SECONDS)
        with authority.client_context().wrap_socket(plain, server_hostname="localhost") as secured:
            client_port = secured.getsockname()[1]
            secured.settimeout(0.2)
            with suppress(OSError):
                while True:
                    secured.send(PIPELINED * 10)
            asyncio.run(gone(port, client_port))

    shown = Certificate(authority.issue("localhost"))
    async with listening(door={"stall_seconds": 1}, certificate=shown) as (_, port):
        with small(port) as connection:
            await asyncio.to_thread(never_read, connection, port)


@linux
@pytest.mark.attack(
    by="a tenant",
    tries="follow a log and stop reading it",
    stopped_by="the connection ends when nothing of an answer was taken for 30 seconds",
)
@in_loop
async def test_a_log_stream_that_stalls_is_dropped() -> None:
    cluster = talkative()
    async with listening(cluster, door={"stall_seconds": 1}) as (api, port):
        with small(port) as connection:
            await send(connection, await log_request(api))
            await gone(port, connection.getsockname()[1])
        await comes(lambda: not cluster.open_logs)


@linux
@in_loop
async def test_a_log_stream_that_is_read_slowly_stays() -> None:
    cluster = talkative()
    async with listening(cluster, door={"stall_seconds": 1}) as (api, port):
        with small(port) as connection:
            await send(connection, await log_request(api))
            loop = asyncio.get_running_loop()
            began, received = loop.time(), 0
            # Three deadlines pass, in none of which nothing was read.
            while loop.time() - began < 3:
                received += len(await loop.sock_recv(connection, 65_536))
                await asyncio.sleep(0.1)
            assert server_side(port, connection.getsockname()[1]) == [psutil.CONN_ESTABLISHED]
            assert received > 0


def talkative() -> FakeCluster:
    """A cluster with a container of acme that writes without end, and fast."""

    class Talkative(FakeCluster):
        async def pod_log(self, *_: Any, **__: Any) -> AsyncIterator[bytes]:
            self.open_logs += 1
            try:
                while True:
                    yield b"x" * 65_536
                    await asyncio.sleep(0)
            finally:
                self.open_logs -= 1

    cluster = Talkative()
    cluster.put("tenancies", tenancy("acme"))
    return cluster


async def log_request(api: Api) -> bytes:
    """Follow the log of a container that runs."""
    token = api.bearer("acme")["Authorization"]
    return (
        f"GET /v1/containers/{await started(api)}/logs?follow=true HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: {token}\r\n\r\n"
    ).encode()


@pytest.mark.attack(
    by="anyone on the network",
    tries="take all connections of the API from one address",
    stopped_by="64 connections of one address; more are turned away before TLS",
)
@pytest.mark.parametrize("over_tls", [False, True])
@in_loop
async def test_one_address_may_have_so_many_connections(over_tls: bool, tmp_path: Path) -> None:
    shown = Certificate(Authority(tmp_path).issue("localhost")) if over_tls else None
    async with (
        listening(door={"most_per_address": 2}, certificate=shown) as (_, port),
        connected(port),
        connected(port),
    ):
        async with connected(port) as third:
            said = await rest(third)
            if over_tls:
                assert said == b""
            else:
                assert said.startswith(b"HTTP/1.1 503"), said
                assert b"connections of one address" in said
        # A client at another address is not held up by it.
        if not over_tls:
            async with connected(port, "127.0.0.9") as other:
                await send(other, b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n")
                assert b"not-found" in await rest(other, b"}")


@in_loop
async def test_a_proxy_carries_the_connections_of_many_clients() -> None:
    door = {"most_per_address": 1, "proxies": ["127.0.0.0/24"]}
    async with (
        listening(door=door) as (_, port),
        connected(port),
        connected(port),
        connected(port) as third,
    ):
        await send(third, b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"not-found" in await rest(third, b"}")


async def flood(api: Api, count: int, **headers: str) -> Counter[int]:
    answers = [
        await api.client.get("/v1/containers", headers={"Authorization": "Bearer x.y.z", **headers})
        for _ in range(count)
    ]
    return Counter(answer.status_code for answer in answers)


@pytest.mark.attack(
    by="anyone on the network",
    tries="ask without a valid token as fast as the network carries",
    stopped_by="10 such requests per second of one address, 200 of all; the connection ends with the refusal",
)
@in_loop
async def test_requests_without_a_valid_token_are_limited() -> None:
    async with listening(options=standing_still()) as (api, _):
        assert await flood(api, 100) == {401: 50, 429: 50}
        refused = await api.client.get("/v1/containers")
        assert refused.headers["Retry-After"] == "1"
        assert refused.headers["Connection"] == "close"
        assert (await api.client.get("/openapi.json")).status_code == 429
        # Who has a token is not held up by who has none, from the same address.
        assert (await api.get("acme", "/v1/containers")).status_code == 200


def standing_still(**bounds: Any) -> dict[str, Any]:
    """Bounds that are never filled up again."""
    return {"anonymous": AnonymousLimit(lambda: 0.0, **bounds)}


@in_loop
async def test_behind_a_proxy_clients_are_told_apart_by_what_the_proxy_says() -> None:
    door = {"proxies": ["127.0.0.1/32"]}
    async with listening(options=standing_still(), door=door) as (api, _):
        # What a client claims of itself comes before what the proxy adds, and is not believed.
        for number in range(50):
            await flood(api, 1, **{"X-Forwarded-For": f"203.0.113.{number}, 198.51.100.7"})
        assert await flood(api, 1, **{"X-Forwarded-For": "198.51.100.7"}) == {429: 1}
        assert await flood(api, 1, **{"X-Forwarded-For": "198.51.100.8"}) == {401: 1}
        assert await flood(api, 1, **{"X-Forwarded-For": "not an address"}) == {401: 1}


@in_loop
async def test_many_addresses_together_are_limited_too() -> None:
    door = {"proxies": ["127.0.0.1/32"]}
    options = standing_still(burst_of_all=20)
    async with listening(options=options, door=door) as (api, _):
        counts: Counter[int] = Counter()
        for number in range(30):
            # Of one /64 each: more addresses than that cost nothing.
            counts += await flood(api, 1, **{"X-Forwarded-For": f"2001:db8:0:{number:x}::1"})
        assert counts == {401: 20, 429: 10}


@in_loop
async def test_addresses_of_one_ipv6_network_count_as_one() -> None:
    door = {"proxies": ["127.0.0.1/32"]}
    async with listening(options=standing_still(burst=20), door=door) as (api, _):
        counts: Counter[int] = Counter()
        for number in range(30):
            counts += await flood(api, 1, **{"X-Forwarded-For": f"2001:db8::{number:x}"})
        assert counts == {401: 20, 429: 10}


@in_loop
async def test_a_client_that_is_no_proxy_does_not_choose_its_address() -> None:
    async with listening(options=standing_still()) as (api, _):
        counts: Counter[int] = Counter()
        for number in range(60):
            counts += await flood(api, 1, **{"X-Forwarded-For": f"203.0.113.{number}"})
        assert counts == {401: 50, 429: 10}


@pytest.mark.attack(
    by="anyone on the network",
    tries="read the API's metrics without a right",
    stopped_by="metrics and probes have a port of their own, which no way in leads to",
)
@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz"])
@in_loop
async def test_metrics_and_probes_are_not_where_tenants_are(path: str) -> None:
    async with listening() as (api, _):
        assert (await api.client.get(path)).status_code == 404
        assert (await api.get("acme", path)).status_code == 404
        condition = api.condition
        health = Health("127.0.0.1", 0, metrics.API, condition.waits_for, broken=condition.broken)
        async with health, httpx.AsyncClient(trust_env=False) as monitoring:
            answer = await monitoring.get(f"http://127.0.0.1:{health.port}{path}")
            assert answer.status_code == 200


@pytest.mark.attack(
    by="a tenant",
    tries="send two Authorization headers, of which a proxy may check the other one",
    stopped_by="a request with two is refused with 400",
)
@pytest.mark.parametrize("name", ["Authorization", "X-Request-Id", "Idempotency-Key"])
@in_loop
async def test_a_header_that_decides_something_comes_once(name: str) -> None:
    async with listening() as (api, port):
        good = api.bearer("acme")["Authorization"]
        lines = [
            "GET /v1/containers HTTP/1.1",
            "Host: x",
            *([f"Authorization: {good}"] if name != "Authorization" else []),
            f"{name}: {good if name == 'Authorization' else 'a'}",
            f"{name.lower()}: {api.bearer('globex')['Authorization']}",
            "Connection: close",
        ]
        status, problem = await raw(port, "\r\n".join([*lines, "", ""]).encode())
        assert status.startswith("HTTP/1.1 400")
        assert problem["detail"] == f"send the header `{name}` once"


@in_loop
async def test_over_tls_browsers_are_told_to_come_by_https_alone(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    shown = Certificate(authority.issue("localhost"))
    async with listening(certificate=shown) as (api, port):
        context = authority.client_context()
        async with httpx.AsyncClient(verify=context, trust_env=False) as client:
            answer = await client.get(
                f"https://localhost:{port}/v1/containers", headers=api.bearer("acme")
            )
        assert answer.status_code == 200
        assert answer.headers["Strict-Transport-Security"] == "max-age=31536000"


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

    async with listening(certificate=certificate) as (_, port):
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


@in_loop
async def test_what_is_being_answered_when_the_server_stops_is_answered() -> None:
    class Slow(FakeCluster):
        async def create(self, *args: Any) -> Any:
            begun.set()
            await stopping.wait()
            return await super().create(*args)

    cluster = Slow()
    cluster.put("tenancies", tenancy("acme"))
    begun, stopping = asyncio.Event(), asyncio.Event()
    async with listening(cluster) as (api, _):
        # What the server calls when it has begun to stop.
        api.app.stop = stopping.set
        asked = asyncio.create_task(api.post("acme"))
        await begun.wait()
        api.stop()
        answer = await asked
    assert answer.status_code == 201
    assert answer.json()["image"] == IMAGE
