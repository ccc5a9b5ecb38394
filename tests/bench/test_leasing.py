"""How long a lease takes to get and to give back: 100 machines, 800 GPUs, one controller.

The machines are in this process and take a fixed time for each effect; the API server is real. What is
measured is therefore the controller and its writes, printed beside raw writes made in the same run.
"""

from __future__ import annotations

import asyncio
import secrets
import statistics
import time
from collections.abc import Sequence

import pytest

from caas.cluster import ConflictError
from gpuclusters.domain.container import POD
from gpuclusters.domain.lease_resource import GPU_LEASE
from gpuclusters.domain.ports import ObjectKind
from tests.caas.fakehost import FakeHosts
from tests.caas.leasekit import LeaseLab
from tests.caas.test_lease_restarts import fake_lab
from tests.fixtures.control_plane import KubeCluster

HOSTS = 100
EFFECT_SECONDS = 0.05
SIZES = (8, 4, 2, 1)
ROUNDS = 3
CONFIG = ObjectKind("", "v1", "configmaps", "ConfigMap", namespaced=True)

pytestmark = [pytest.mark.bench, pytest.mark.lab, pytest.mark.timeout(1200)]


async def plugin(lab: LeaseLab) -> None:
    """What the device plugins of all nodes do: allocate what was admitted, let go what is released."""
    names = {host.name for host in lab.settings.hosts}
    async for kind, body in lab.cluster.watch(GPU_LEASE):
        if kind in ("SYNC", "DELETED") or body["spec"]["node"] not in names:
            continue
        status = body.get("status") or {}
        holder = status.get("holder")
        if not holder:
            continue
        wanted = status["phase"] == "Leased" and holder["admitted"]
        if holder["allocated"] == wanted or status["phase"] not in ("Leased", "Releasing"):
            continue
        holder["allocated"] = wanted
        try:
            await lab.cluster.replace_status(GPU_LEASE, body)
        except ConflictError:
            continue  # another event follows


async def grant_and_return(lab: LeaseLab, tenant: str, size: int) -> tuple[float, float]:
    """Seconds from the request to the open gate, and from the deletion to the last free GPU."""
    began = time.perf_counter()
    pod = await lab.pod(tenant, size)
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    async for kind, body in lab.cluster.watch(POD, lab.namespace, fields=f"metadata.name={name}"):
        if kind != "SYNC" and not body["spec"].get("schedulingGates"):
            break
    granted = time.perf_counter() - began
    assert lab.controller is not None
    hosts = lab.controller.hosts.values()
    (host,) = [host for host in hosts if host.holds(uid)]
    mine = [m for m in range(1, 9) if host.holds_module(uid, m)]
    cycles = {m: host.leases[m].cycle for m in mine}
    began = time.perf_counter()
    await lab.delete(pod)
    while any(
        host.leases[m].cycle == cycles[m]
        or host.leases[m].phase in ("Resetting", "Scrubbing", "Verifying")
        for m in mine
    ):
        await asyncio.sleep(0.05)
    return granted, time.perf_counter() - began


def row(what: str, seconds: Sequence[float]) -> str:
    """One line of the table."""
    ordered = sorted(seconds)
    p50, p99 = statistics.median(ordered), ordered[int(len(ordered) * 0.99)]
    return f"{what:<34} {len(ordered):>6} {p50 * 1000:>9.0f} {p99 * 1000:>9.0f}"


def test_grant_and_return_at_800_gpus(
    kube_api: KubeCluster, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def say(line: str) -> None:
        with capsys.disabled():
            print(line, flush=True)

    async def story() -> None:
        machines = FakeHosts(seconds=EFFECT_SECONDS)
        token = secrets.token_hex(3)
        names = [f"bench-{token}-{n:03}" for n in range(HOSTS)]
        async with fake_lab(kube_api, namespace, machines, names) as lab:
            assert lab.controller is not None
            began = time.perf_counter()
            hosts = lab.controller.hosts.values()
            while sum(x.phase == "Free" for h in hosts for x in h.leases.values()) < HOSTS * 8:
                assert lab.running is not None
                assert not lab.running.done()
                await asyncio.sleep(0.05)
            say(f"800 new GPUs free after {time.perf_counter() - began:.1f} s")
            raw: list[float] = []
            for number in range(100):
                began = time.perf_counter()
                await lab.cluster.create(CONFIG, {
                    "apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": f"raw-{number}", "namespace": namespace},
                })  # fmt: skip
                raw.append(time.perf_counter() - began)
            tenant = await lab.tenant()
            plugins = asyncio.create_task(plugin(lab))
            await asyncio.sleep(1)
            say(f"{'one after another':<34} {'n':>6} {'P50 ms':>9} {'P99 ms':>9}")
            say(row("raw write", raw))
            for size in SIZES:
                done = [await grant_and_return(lab, tenant, size) for _ in range(ROUNDS)]
                say(row(f"grant of {size} GPUs", [g for g, _ in done]))
                say(row(f"return of {size} GPUs", [r for _, r in done]))
            say(f"{'800 GPUs asked for at once':<34} {'n':>6} {'P50 ms':>9} {'P99 ms':>9}")
            all_at_once = (grant_and_return(lab, tenant, 8) for _ in range(HOSTS))
            done = await asyncio.gather(*all_at_once)
            say(row("grant of 8 GPUs", [g for g, _ in done]))
            say(row("return of 8 GPUs", [r for _, r in done]))
            plugins.cancel()

    say("")
    asyncio.run(story())
