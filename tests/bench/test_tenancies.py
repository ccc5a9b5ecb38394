"""How long tenancies take to be ready, next to the same number of plain writes to the same server."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from contextlib import aclosing
from itertools import pairwise
from typing import Any

import pytest

from caas.cluster import Cluster
from caas.connection import Connection
from caas.controllers.tenancy_controller import WORKERS
from gpuclusters.domain import tenancy_conditions
from gpuclusters.domain.ports import ObjectKind
from gpuclusters.domain.tenancy_objects import NETWORK_POLICY
from gpuclusters.domain.tenancy_resource import TENANCY, TenancySpec, tenancy_object
from tests.fixtures.tenancies import Operator, Tenants

pytestmark = [pytest.mark.bench, pytest.mark.lab, pytest.mark.timeout(1500)]

CONFIG = ObjectKind("", "v1", "configmaps", "ConfigMap", namespaced=True)
COUNTS = [int(n) for n in os.environ.get("BENCH_TENANCIES", "1 100 1000").split()]


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


async def verdicts(cluster: Cluster) -> None:
    """Calls every new network policy valid at once, as Cilium's operator does.

    The lab's stand-in does too, but four at a time: with hundreds it is the stand-in that is measured.
    """
    told: set[asyncio.Task[Any]] = set()
    async for event in cluster.watch(NETWORK_POLICY):
        if event.kind not in ("ADDED", "MODIFIED"):
            continue
        if (event.object.get("status") or {}).get("conditions"):
            continue
        metadata = event.object["metadata"]
        said = {"conditions": [{"type": "Valid", "status": "True", "message": "bench"}]}
        work = asyncio.create_task(
            cluster.patch(
                NETWORK_POLICY,
                metadata["name"],
                metadata["namespace"],
                {"status": said},
                subresource="status",
            )
        )
        told.add(work)
        work.add_done_callback(told.discard)


async def to_ready(tenants: Tenants, count: int) -> list[float]:
    """Seconds from asking for all of them at once to each being ready."""
    names = [tenants.name() for _ in range(count)]
    bodies = [tenancy_object(TenancySpec.model_validate(tenants.spec(name))) for name in names]
    missing, took = set(names), []
    async with Cluster.connect(tenants.request.cluster.kubeconfig) as cluster:
        stream = cluster.watch(TENANCY)
        async with aclosing(stream):
            async for event in stream:
                if event.kind == "SYNC":
                    break
            operating = asyncio.create_task(verdicts(cluster))
            began = time.monotonic()
            asking = [asyncio.create_task(cluster.create(TENANCY, body)) for body in bodies]
            async for event in stream:
                name = event.object.get("metadata", {}).get("name")
                if name in missing and tenancy_conditions.ready(event.object):
                    missing.discard(name)
                    took.append(time.monotonic() - began)
                if not missing:
                    break
            await asyncio.gather(*asking)
            operating.cancel()
            await asyncio.gather(operating, return_exceptions=True)
    return took


async def raw(tenants: Tenants, namespace: str, count: int, writes: int, key: str) -> list[float]:
    """Seconds from asking for all of it at once to each batch of plain writes being done."""
    took: list[float] = []
    turn = asyncio.Semaphore(WORKERS)

    def config(name: str) -> dict[str, Any]:
        metadata = {"name": name, "namespace": namespace}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}

    async with Cluster.connect(tenants.request.cluster.kubeconfig) as cluster:
        began = time.monotonic()

        async def batch(number: int) -> None:
            async with turn:
                names = [f"raw-{key}-{number}-{n}" for n in range(writes)]
                await asyncio.gather(*(cluster.create(CONFIG, config(n)) for n in names))
            took.append(time.monotonic() - began)

        await asyncio.gather(*(batch(number) for number in range(count)))
    return took


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every write of this process that the server stores."""
    seen: list[str] = []
    ask = Connection.ask

    async def counted(self: Connection, method: str, path: str, *args: Any, **kw: Any) -> Any:
        query = args[0] if args else kw.get("query", ())
        others = "ciliumnetworkpolicies" in path and path.endswith("/status")
        if method != "GET" and ("dryRun", "All") not in query and not others:
            seen.append(path)
        return await ask(self, method, path, *args, **kw)

    monkeypatch.setattr(Connection, "ask", counted)
    return seen


def test_tenancies_to_ready(
    tenants: Tenants, operator: Operator, namespace: str, written: list[str]
) -> None:
    asyncio.run(to_ready(tenants, 1))  # warm
    print("\ntenancies  writes each  P50 s  P99 s  raw P50 s  raw P99 s  ratio P50  ratio P99")
    medians: dict[int, float] = {}
    for count in COUNTS:
        repeats = 10 if count == 1 else 1
        written.clear()
        took = [t for _ in range(repeats) for t in asyncio.run(to_ready(tenants, count))]
        writes = round(len(written) / len(took))
        plain: list[float] = []
        for repeat in range(repeats):
            key = f"{count}-{repeat}"
            plain += asyncio.run(raw(tenants, namespace, count, writes, key))
        medians[count] = statistics.median(took)
        numbers = [medians[count], percentile(took, 0.99)]
        others = [statistics.median(plain), percentile(plain, 0.99)]
        ratios = [numbers[0] / others[0], numbers[1] / others[1]]
        print(
            f"{count:9}  {writes:11}  {numbers[0]:5.2f}  {numbers[1]:5.2f}  "
            f"{others[0]:9.2f}  {others[1]:9.2f}  {ratios[0]:9.2f}  {ratios[1]:9.2f}",
            flush=True,
        )
    for fewer, more in pairwise(COUNTS):
        print(f"P50: {more} take {medians[more] / medians[fewer]:.1f} times as long as {fewer}")
    # The control plane goes with the run; a thousand deletions would only keep it longer.
    tenants.made.clear()
