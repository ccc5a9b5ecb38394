"""How long tenancies take to be ready, next to the same number of plain writes to the same server."""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

from caas.connection import Connection
from caas.controllers.tenancy_controller import WORKERS
from gpuclusters.domain.tenancy_resource import TenancySpec, tenancy_object
from tests.bench import asking
from tests.bench.processor import Processor
from tests.fixtures.tenancies import Operator, Tenants

pytestmark = [pytest.mark.bench, pytest.mark.lab, pytest.mark.timeout(1500)]

SETTLE_SECONDS = 15
COUNTS = [int(n) for n in os.environ.get("BENCH_TENANCIES", "1 100 1000").split()]


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def to_ready(asker: Executor, tenants: Tenants, count: int) -> list[float]:
    """Seconds from asking for all of them at once to each being ready."""
    names = [tenants.name() for _ in range(count)]
    bodies = [tenancy_object(TenancySpec.model_validate(tenants.spec(name))) for name in names]
    kubeconfig = tenants.request.cluster.kubeconfig
    return asker.submit(asking.tenancies, kubeconfig, bodies).result()


def raw(
    asker: Executor, tenants: Tenants, namespace: str, count: int, writes: int, key: str
) -> list[float]:
    """Seconds from asking for all of it at once to each batch of plain writes being done."""

    def config(name: str) -> dict[str, Any]:
        metadata = {"name": name, "namespace": namespace}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}

    batches = [
        [config(f"raw-{key}-{number}-{n}") for n in range(writes)] for number in range(count)
    ]
    kubeconfig = tenants.request.cluster.kubeconfig
    return asker.submit(asking.writes, kubeconfig, batches, WORKERS).result()


def _each(what: str, taken: dict[str, float], number: int) -> str:
    told = sorted(taken.items(), key=lambda one: -one[1])
    each = ", ".join(f"{name} {1000 * s / number:.0f}" for name, s in told if s / number >= 0.001)
    return f"{what}: {1000 * sum(taken.values()) / number:.0f} ({each})"


@pytest.fixture
def asker() -> Iterator[Executor]:
    """Another process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield pool


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every write of the controller that the server stores."""
    seen: list[str] = []
    ask = Connection.ask

    async def counted(self: Connection, method: str, path: str, *args: Any, **kw: Any) -> Any:
        query = args[0] if args else kw.get("query", ())
        if method != "GET" and ("dryRun", "All") not in query:
            seen.append(path)
        return await ask(self, method, path, *args, **kw)

    monkeypatch.setattr(Connection, "ask", counted)
    return seen


def test_tenancies_to_ready(
    tenants: Tenants, operator: Operator, namespace: str, written: list[str], asker: Executor
) -> None:
    to_ready(asker, tenants, 1)  # warm
    # The server is still digesting the definitions that were made just now, and the first requests.
    time.sleep(SETTLE_SECONDS)
    print(
        "\ntenancies  writes each  P50 s  P99 s  raw P50 s  raw P99 s  ratio P50  ratio P99  load"
    )
    medians: dict[int, float] = {}
    processor = Processor(tenants.request.cluster.folder)
    spent: list[str] = []
    for count in COUNTS:
        repeats = 10 if count == 1 else 1
        written.clear()
        processor.taken()
        took = [t for _ in range(repeats) for t in to_ready(asker, tenants, count)]
        spent.append(_each(f"{count} tenancies", processor.taken(), len(took)))
        # Beside those of the controller the one that asks.
        writes = 1 + round(len(written) / len(took))
        plain: list[float] = []
        for repeat in range(repeats):
            key = f"{count}-{repeat}"
            plain += raw(asker, tenants, namespace, count, writes, key)
        spent.append(_each(f"{count} times {writes} writes", processor.taken(), len(plain)))
        medians[count] = statistics.median(took)
        numbers = [medians[count], percentile(took, 0.99)]
        others = [statistics.median(plain), percentile(plain, 0.99)]
        ratios = [numbers[0] / others[0], numbers[1] / others[1]]
        print(
            f"{count:9}  {writes:11}  {numbers[0]:5.2f}  {numbers[1]:5.2f}  "
            f"{others[0]:9.2f}  {others[1]:9.2f}  {ratios[0]:9.2f}  {ratios[1]:9.2f}  "
            f"{os.getloadavg()[0]:4.1f}",
            flush=True,
        )
    print("processor time, ms for each:", *spent, sep="\n  ")
    for fewer, more in pairwise(COUNTS):
        print(f"P50: {more} take {medians[more] / medians[fewer]:.1f} times as long as {fewer}")
    # The control plane goes with the run; a thousand deletions would only keep it longer.
    tenants.made.clear()
