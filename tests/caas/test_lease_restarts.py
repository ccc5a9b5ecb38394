"""Two controllers at once; `test_killed_at_every_await` has those that die and rise."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from caas.cluster import Cluster
from gpuclusters.lease.model import GPU_LEASE
from tests.caas.fakehost import GOLDEN, FakeHosts
from tests.caas.leasekit import LeaseLab, Nodes, define, settings_of
from tests.caas.loops import in_loop
from tests.fixtures.control_plane import KubeCluster

pytestmark = pytest.mark.lab


@asynccontextmanager
async def fake_lab(
    kube_api: KubeCluster, namespace: str, machines: FakeHosts, names: list[str]
) -> AsyncIterator[LeaseLab]:
    """A controller of machines in this process, on a real API server."""
    async with Cluster(kube_api.kubeconfig) as cluster:
        await define(cluster)
        lab = LeaseLab(
            cluster,
            settings_of([(name, None) for name in names], golden=GOLDEN),
            namespace,
            machines,
            Nodes(names),
        )
        try:
            await lab.start()
            yield lab
        finally:
            await lab.clean()


@in_loop
async def test_two_controllers_at_once_lease_no_gpu_twice(
    kube_api: KubeCluster, namespace: str
) -> None:
    """As when leadership failed to keep them apart."""
    machines = FakeHosts(seconds=0.01)
    name = f"fake-{secrets.token_hex(4)}"
    async with fake_lab(kube_api, namespace, machines, [name]) as lab:
        other = LeaseLab(lab.cluster, lab.settings, namespace, machines, lab.nodes)
        await other.start()
        try:
            await lab.all_free()
            acme = await lab.tenant()
            pods = [await lab.pod(acme, size) for size in (4, 2, 2, 1)]
            admitted: set[str] = set()
            for _ in range(40):
                holders: dict[int, str] = {}
                for body in await lab.cluster.list(GPU_LEASE):
                    holder = (body.get("status") or {}).get("holder")
                    # Both may reserve for a pod; it is let go to one partition, the other is given back.
                    if body["spec"]["node"] == name and holder and holder["admitted"]:
                        holders[body["spec"]["module"]] = holder["podUid"]
                        if not holder["allocated"]:
                            uid = holder["podUid"]
                            (pod,) = [p for p in pods if p["metadata"]["uid"] == uid]
                            await lab.allocate(pod)
                admitted |= set(holders.values())
                for pod in pods:
                    uid = pod["metadata"]["uid"]
                    size = int(
                        pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/pgpu"]
                    )
                    assert sum(u == uid for u in holders.values()) <= size
                await asyncio.sleep(0.05)
            assert len(admitted) >= 2, "nothing was leased while it was looked at"
            for pod in pods:
                await lab.delete(pod)
                await lab.allocate(pod, allocated=False)
            await lab.all_free()
        finally:
            await other.stop()
