"""How long a lease takes to get and to give back: 100 machines, 800 GPUs, one controller.

The machines are in this process and take a fixed time for each effect; the API server is real. What is
measured is therefore the controller and its writes, printed beside raw writes made in the same run.
"""

from __future__ import annotations

import asyncio
import copy
import os
import secrets
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from typing import Any

import pytest

from caas.cluster import Cluster, ConflictError, Event
from gpuclusters.core.ports import ObjectKind
from gpuclusters.lease.model import GPU_LEASE
from gpuclusters.tenancy.objects import NODE, POD
from tests.caas.fakehost import GOLDEN, FakeHosts
from tests.caas.leasekit import LeaseLab, running, settings_of
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.tenancies import Request

HOSTS = 100
EFFECT_SECONDS = 0.05
SIZES = (8, 4, 2, 1)
AT_ONCE = [int(size) for size in os.environ.get("BENCH_LEASES", "8 1").split()]
ROUNDS = 3
RAW = 200
ENOUGH_FOR_P99 = 100
CONFIG = ObjectKind("", "v1", "configmaps", "ConfigMap", namespaced=True)

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]


class Seen:
    """A cluster whose nodes are those of one test: they are Ready and stay so.

    In the API server, which all tests share, each would be one more that tenancies, DaemonSets and pods
    of other tests have to reckon with.
    """

    def __init__(self, cluster: Cluster, nodes: Iterable[str]) -> None:
        self._cluster = cluster
        self._nodes = nodes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def watch(self, kind: ObjectKind, *where: str, **chosen: str) -> AsyncIterator[Event]:
        """All but nodes from the API server."""
        return self._watch() if kind == NODE else self._cluster.watch(kind, *where, **chosen)

    async def _watch(self) -> AsyncIterator[Event]:
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        items = [
            {
                "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
                "spec": {},
                "status": {"conditions": [dict(ready)]},
            }
            for name in self._nodes
        ]
        for body in items:
            yield Event("ADDED", copy.deepcopy(body))
        yield Event("SYNC", {"metadata": {"resourceVersion": "1"}, "items": items})
        await asyncio.Event().wait()


class World:
    """The tenants and all nodes' device plugins, with two watches for all of them."""

    def __init__(self, lab: LeaseLab, tenant: str, group: asyncio.TaskGroup) -> None:
        self._lab = lab
        self._tenant = tenant
        self._group = group
        self._names = {host.name for host in lab.settings.hosts}
        self._granted: dict[str, asyncio.Future[None]] = {}
        self._returned: dict[str, asyncio.Future[None]] = {}
        self._holder: dict[str, str] = {}
        self._gpus: dict[str, set[str]] = {}
        self._had: dict[str, set[str]] = {}
        self._size: dict[str, int] = {}
        self._tasks = [group.create_task(self._pods()), group.create_task(self._leases())]

    def stop(self) -> None:
        """Watch no more."""
        for task in self._tasks:
            task.cancel()

    async def _pods(self) -> None:
        async for kind, body in self._lab.cluster.watch(POD, self._lab.namespace):
            if kind in ("SYNC", "DELETED") or body["spec"].get("schedulingGates"):
                continue
            granted = self._granted.setdefault(body["metadata"]["uid"], asyncio.Future())
            if not granted.done():
                granted.set_result(None)

    async def _leases(self) -> None:
        async for kind, body in self._lab.cluster.watch(GPU_LEASE):
            if kind in ("SYNC", "DELETED") or body["spec"]["node"] not in self._names:
                continue
            status = body.get("status") or {}
            self._note(body["metadata"]["name"], status)
            holder = status.get("holder")
            if not holder or status["phase"] not in ("Leased", "Releasing"):
                continue
            if holder["allocated"] != (status["phase"] == "Leased" and holder["admitted"]):
                # Each node has a plugin of its own: none waits for another's write.
                self._group.create_task(self._mark(body))

    async def _mark(self, body: dict[str, Any]) -> None:
        holder = body["status"]["holder"]
        marked = {**body["status"], "holder": {**holder, "allocated": not holder["allocated"]}}
        try:
            await self._lab.cluster.replace_status(GPU_LEASE, {**body, "status": marked})
        except ConflictError:
            return  # another event follows

    def _note(self, name: str, status: Mapping[str, Any]) -> None:
        if holder := status.get("holder"):
            self._holder[name] = holder["podUid"]
            self._gpus.setdefault(holder["podUid"], set()).add(name)
            self._had.setdefault(holder["podUid"], set()).add(name)
        elif status.get("phase") == "Free" and (uid := self._holder.pop(name, None)):
            self._gpus[uid].discard(name)
            # The watch of the leases may be behind that of the pods: all must have been seen.
            if not self._gpus[uid] and len(self._had[uid]) == self._size.get(uid):
                self._returned[uid].set_result(None)

    async def grant_and_return(
        self, size: int, all_granted: asyncio.Barrier
    ) -> tuple[float, float]:
        """Seconds from the request to the open gate, and from the deletion to the last free GPU."""
        began = time.perf_counter()
        pod = await self._lab.pod(self._tenant, size)
        uid = pod["metadata"]["uid"]
        await self._granted.setdefault(uid, asyncio.Future())
        granted = time.perf_counter() - began
        await all_granted.wait()
        returned = self._returned[uid] = asyncio.Future()
        self._size[uid] = size
        began = time.perf_counter()
        await self._lab.delete(pod)
        await returned
        return granted, time.perf_counter() - began


def head(what: str) -> str:
    """The first line of a table."""
    return f"{what:<34} {'n':>6} {'P50 ms':>9} {'P99 ms':>9} {'max ms':>9}"


def row(what: str, seconds: Sequence[float]) -> str:
    """One line of it; a P99 only of enough values to have one."""
    ordered = sorted(seconds)
    n, p50, most = len(ordered), statistics.median(ordered) * 1000, ordered[-1] * 1000
    p99 = f"{ordered[int((n - 1) * 0.99)] * 1000:.0f}" if n >= ENOUGH_FOR_P99 else "-"
    return f"{what:<34} {n:>6} {p50:>9.0f} {p99:>9} {most:>9.0f}"


async def raw_write(lab: LeaseLab, number: int) -> float:
    """Seconds that the API server takes for one small object."""
    began = time.perf_counter()
    metadata = {"name": f"raw-{number}", "namespace": lab.namespace}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    await lab.cluster.create(CONFIG, body)
    return time.perf_counter() - began


async def all_free(lab: LeaseLab) -> float:
    """Seconds until every GPU is free."""
    began = time.perf_counter()
    assert lab.controller is not None
    hosts = lab.controller.hosts.values()
    while sum(x.phase == "Free" for h in hosts for x in h.leases.values()) < HOSTS * 8:
        assert lab.running is not None
        assert not lab.running.done()
        await asyncio.sleep(0.05)
    return time.perf_counter() - began


def test_grant_and_return_at_800_gpus(
    kube_api: KubeCluster,
    lease_api: Request,
    namespace: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def say(line: str) -> None:
        with capsys.disabled():
            print(line, flush=True)

    def show(size: int, done: Sequence[tuple[float, float]]) -> None:
        gpus = f"{size} GPU{'s' if size > 1 else ''}"
        say(row(f"grant of {gpus}", [granted for granted, _ in done]))
        say(row(f"return of {gpus}", [returned for _, returned in done]))

    async def story() -> None:
        machines = FakeHosts(seconds=EFFECT_SECONDS)
        token = secrets.token_hex(3)
        names = [f"bench-{token}-{n:03}" for n in range(HOSTS)]
        settings = settings_of([(name, None) for name in names], golden=GOLDEN)
        async with (
            Cluster(kube_api.kubeconfig) as cluster,
            running(Seen(cluster, names), settings, namespace, machines) as lab,
            asyncio.TaskGroup() as group,
        ):
            say(f"800 new GPUs free after {await all_free(lab):.1f} s")
            world = World(lab, await lab.tenant(), group)
            await asyncio.sleep(1)
            say(head("one after another"))
            say(row("raw write", [await raw_write(lab, number) for number in range(RAW)]))
            for size in SIZES:
                alone = asyncio.Barrier(1)
                show(size, [await world.grant_and_return(size, alone) for _ in range(ROUNDS)])
            say(head(f"{HOSTS * 8} raw writes at once"))
            began = time.perf_counter()
            many = (raw_write(lab, RAW + number) for number in range(HOSTS * 8))
            say(row("raw write", await asyncio.gather(*many)))
            say(f"{'all written':<34} {time.perf_counter() - began:>6.1f} s")
            say(head(f"all {HOSTS * 8} GPUs asked for at once"))
            for size in AT_ONCE:
                await at_once(world, size)
            world.stop()

    async def at_once(world: World, size: int) -> None:
        requests = HOSTS * 8 // size
        together = asyncio.Barrier(requests)
        began = time.perf_counter()
        asked: list[Awaitable[tuple[float, float]]] = [
            world.grant_and_return(size, together) for _ in range(requests)
        ]
        show(size, await asyncio.gather(*asked))
        took = time.perf_counter() - began
        say(f"{'all granted and returned':<34} {took:>6.1f} s, load {os.getloadavg()[0]:.0f}")

    say("")
    asyncio.run(story())
