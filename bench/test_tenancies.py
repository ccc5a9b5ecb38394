"""How long tenancies take to be ready, next to the same number of plain writes to the same server.

Plain writes of two kinds: of the objects that a tenancy is made of, which is what isolating a tenant costs
without a controller; and of ConfigMaps, the cheapest objects that there are.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from bench import asking
from bench.asking import Batch
from bench.processor import Processor
from caas.cluster import Cluster
from caas.controllers.tenancy import WORKERS
from gpuclusters.tenancy import objects as tenancy_objects
from gpuclusters.tenancy.model import TenancySpec, tenancy_object
from tests.fixtures.tenancies import NETWORK, Operator, Tenants

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1500)]

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


def config_maps(namespace: str, key: str, count: int) -> Batch:
    """So many of the cheapest objects."""
    return [
        (
            asking.CONFIG,
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": f"raw-{key}-{n}", "namespace": namespace},
            },
        )
        for n in range(count)
    ]


def same_objects(tenants: Tenants, namespace: str, key: str, count: int) -> Batch:
    """What a tenancy is made of, of a tenant that nobody asked for; and ConfigMaps for the other writes."""
    spec = TenancySpec.model_validate(tenants.spec(f"{namespace}-{key}"))
    children = [tenancy_objects.home(spec), *tenancy_objects.inside(spec, NETWORK)]
    made = [(child.kind, dict(child.body)) for child in children]
    return [*made, *config_maps(namespace, key, count - len(made))]


def raw(asker: Executor, tenants: Tenants, batches: list[Batch]) -> list[float]:
    """Seconds from asking for all of it at once to each batch of plain writes being done."""
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
    ask = Cluster._ask

    async def counted(self: Cluster, method: str, path: str, *args: Any, **kw: Any) -> Any:
        query = args[0] if args else kw.get("query", ())
        if method != "GET" and ("dryRun", "All") not in query:
            seen.append(path)
        return await ask(self, method, path, *args, **kw)

    monkeypatch.setattr(Cluster, "_ask", counted)
    return seen


def test_tenancies_to_ready(
    tenants: Tenants, operator: Operator, namespace: str, written: list[str], asker: Executor
) -> None:
    to_ready(asker, tenants, 1)  # warm
    # The server is still digesting the definitions that were made just now, and the first requests.
    time.sleep(SETTLE_SECONDS)
    print(f"\n{'tenancies':>9}{'writes':>8}{'P50 s':>8}{'P99 s':>8}", end="")
    print(
        "".join(
            f"{name:>22}{'ratio':>8}" for name in ("same objects P50, P99", "ConfigMaps P50, P99")
        )
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
        medians[count] = statistics.median(took)
        print(f"{count:9}", end="")
        # Beside those of the controller the one that asks.
        writes = 1 + round(len(written) / len(took))
        print(f"{writes:8}{medians[count]:8.2f}{percentile(took, 0.99):8.2f}", end="")
        for name, batch in (
            ("same objects", partial(same_objects, tenants)),
            ("ConfigMaps", config_maps),
        ):
            plain: list[float] = []
            for repeat in range(repeats):
                keys = [f"{name[0].lower()}-{count}-{repeat}-{number}" for number in range(count)]
                plain += raw(asker, tenants, [batch(namespace, key, writes) for key in keys])
            spent.append(_each(f"{count} times {writes} {name}", processor.taken(), len(plain)))
            median = statistics.median(plain)
            both = f"{median:.2f}, {percentile(plain, 0.99):.2f}"
            print(f"{both:>22}{medians[count] / median:8.2f}", end="", flush=True)
        print(f"  load {os.getloadavg()[0]:.1f}", flush=True)
    print("processor time, ms for each:", *spent, sep="\n  ")
    for fewer, more in pairwise(COUNTS):
        print(f"P50: {more} take {medians[more] / medians[fewer]:.1f} times as long as {fewer}")
    # The control plane goes with the run; a thousand deletions would only keep it longer.
    tenants.made.clear()
