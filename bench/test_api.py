"""The API under steady load for a while: no error, nothing that grows; P50 and P99 of each kind of request.

`BENCH_API_SECONDS` (60) and `BENCH_API_RATE` (200 requests per second) change how long and how much. The
program runs as in a cluster, against a real API server; tokens are of the lab's issuer, every tenth
request makes a container, every tenth ends one.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from caas.api.__main__ import HEALTH_LISTEN, LISTEN
from caas.settings import SETTINGS_VARIABLE
from lab import issuer
from tests.caas.api import apikit
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.tenancies import Operator, Request, Tenants
from tests.fixtures.waiting import PATIENCE_SECONDS, eventually

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]

SECONDS = float(os.environ.get("BENCH_API_SECONDS", "60"))
RATE = float(os.environ.get("BENCH_API_RATE", "200"))
WARM_SECONDS = 5.0
GPUS = 64
KEPT = 16
CONNECTIONS = 64


@contextmanager
def served(folder: Path, cluster: KubeCluster, settings: dict[str, Any]) -> Iterator[str]:
    """The program as it runs in a cluster; gives its address."""
    (folder / "settings.yaml").write_text(yaml.safe_dump(settings))
    log = folder / "api.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "caas.api"],
            stderr=output,
            env={
                **os.environ,
                SETTINGS_VARIABLE: str(folder / "settings.yaml"),
                "KUBECONFIG": str(cluster.kubeconfig),
                LISTEN: "127.0.0.1:0",
                HEALTH_LISTEN: "127.0.0.1:0",
            },
        )
    try:
        said = eventually(lambda: _listening(log), what="listening")
        health = f"http://127.0.0.1:{said['healthPort']}"
        eventually(lambda: _ready(health), what="ready")
        yield f"http://127.0.0.1:{said['port']}"
    finally:
        process.terminate()
        try:
            code = process.wait(PATIENCE_SECONDS)
        finally:
            process.kill()
    assert code == 0, log.read_text()
    assert all(json.loads(line) for line in log.read_text().splitlines())


def _listening(log: Path) -> dict[str, Any]:
    # A line that is just being written is not one yet.
    for line in log.read_text().split("\n")[:-1]:
        said = json.loads(line)
        if said["message"] == "listening":
            return dict(said["fields"])
    return {}


def _ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/readyz", timeout=60) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


class Connection:
    """A kept connection that asks and reads, and does no more: a client must not be what is measured."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, token: str, body: str = "") -> tuple[int, bytes]:
        """Status and body."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        if body:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"{head}\r\n{body}".encode())
        start = await reader.readuntil(b"\r\n\r\n")
        length = int(start.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return int(start.split()[1]), await reader.readexactly(length)

    def close(self) -> None:
        """Let go of it."""
        if self._streams is not None:
            self._streams[1].close()


@dataclass
class Load:
    """What was asked and how it was answered."""

    port: int
    tokens: list[str]
    idle: list[Connection] = field(default_factory=list)
    turn: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CONNECTIONS))
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    answers: Counter[str] = field(default_factory=Counter)
    made: list[tuple[int, str]] = field(default_factory=list)

    async def one(self, number: int) -> None:
        """The request with this number."""
        tenant = number % len(self.tokens)
        kind = number % 10
        if kind == 0 and len(self.made) < GPUS:
            body = json.dumps({"image": apikit.IMAGE, "gpus": 1})
            status, answer = await self._ask("POST", tenant, "/v1/containers", body)
            if status == 201:
                self.made.append((tenant, json.loads(answer)["id"]))
        elif kind == 5 and len(self.made) > KEPT:
            owner, container = self.made.pop(0)
            await self._ask("DELETE", owner, f"/v1/containers/{container}")
        elif kind in (3, 7) and self.made:
            # The youngest: the eldest may just be on its way out.
            owner, container = self.made[-1]
            await self._ask("GET", owner, f"/v1/containers/{container}")
        else:
            path = ("/v1/containers", "/v1/capacity", "/v1/tenancy")[number % 3]
            await self._ask("GET", tenant, path)

    async def _ask(self, method: str, tenant: int, path: str, body: str = "") -> tuple[int, bytes]:
        # On a machine that cannot keep up requests wait here, and the rate that is told is lower.
        async with self.turn:
            connection = self.idle.pop() if self.idle else Connection(self.port)
            began = time.perf_counter()
            status, answer = await connection.ask(method, path, self.tokens[tenant], body)
            self.seconds[method].append(time.perf_counter() - began)
            self.answers[f"{method} {status}"] += 1
            self.idle.append(connection)
        return status, answer

    async def steady(self, seconds: float) -> float:
        """Ask at the rate, late or not; gives how many seconds it took until all was answered."""
        began = time.perf_counter()
        asked: set[asyncio.Task[None]] = set()
        count = int(seconds * RATE)
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number / RATE - time.perf_counter()))
            task = asyncio.create_task(self.one(number))
            asked.add(task)
            task.add_done_callback(asked.discard)
        await asyncio.gather(*asked)
        return time.perf_counter() - began

    async def empty(self) -> None:
        """End what is left, and let go of the connections."""
        while self.made:
            owner, container = self.made.pop()
            await self._ask("DELETE", owner, f"/v1/containers/{container}")
        for connection in self.idle:
            connection.close()


def share(values: list[float], part: float) -> str:
    return f"{sorted(values)[min(int(len(values) * part), len(values) - 1)] * 1000:.1f} ms"


def test_two_hundred_requests_a_second_for_a_minute(
    kube_api: KubeCluster,
    lease_api: Request,
    tenants: Tenants,
    operator: Operator,
    tmp_path: Path,
) -> None:
    quota = {"requests.nvidia.com/pgpu": str(GPUS), "requests.memory": "1Ti"}
    names = [tenants.make(gpus=GPUS, quota={"hard": quota}) for _ in range(2)]
    for name in names:
        tenants.ready(name)
    folder = tmp_path / "issuer"
    limits = {"requestsPerSecond": 100_000, "burst": 100_000, "maxContainers": 10_000}
    settings = apikit.settings(issuer=issuer.start(folder).url, **limits)
    try:
        with served(tmp_path, kube_api, settings.model_dump(mode="json", by_alias=True)) as address:
            tokens = [issuer.token(folder, name) for name in names]
            process = program(address)
            asyncio.run(measure(address, tokens, process))
    finally:
        issuer.stop(folder)


async def measure(address: str, tokens: list[str], process: psutil.Process) -> None:
    port = int(address.rsplit(":", 1)[1])
    warm = Load(port, tokens)
    await warm.steady(WARM_SECONDS)
    await warm.empty()
    load = Load(port, tokens)
    before, cpu = process.memory_info().rss, process.cpu_times()
    took = await load.steady(SECONDS)
    spent = process.cpu_times()
    await load.empty()
    await asyncio.sleep(1)
    after, files = process.memory_info().rss, process.num_fds()
    # Kept connections are closed; those to the API server and the watches stay.
    rate = SECONDS * RATE / took
    print(f"\n{rate:.0f} requests/s for {took:.0f} s; {dict(sorted(load.answers.items()))}")
    for method, values in sorted(load.seconds.items()):
        median = statistics.median(values) * 1000
        print(f"{method:6} P50 {median:.1f} ms  P99 {share(values, 0.99)}  max {share(values, 1)}")
    busy = (spent.user + spent.system - cpu.user - cpu.system) / took
    print(
        f"memory {before / 2**20:.0f} -> {after / 2**20:.0f} MiB, {files} files, {busy:.0%} of a core"
    )
    failed = {kind: n for kind, n in load.answers.items() if kind.split()[1][0] not in "2"}
    assert not failed, failed
    assert after - before < 30 * 2**20
    assert files < 100


def program(address: str) -> psutil.Process:
    """The process that listens there."""
    port = int(address.rsplit(":", 1)[1])
    for child in psutil.Process().children(recursive=True):
        for connection in child.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port:
                return child
    raise AssertionError(f"nobody listens on {address}")
