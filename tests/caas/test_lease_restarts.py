"""Two controllers at once; `test_killed_at_every_await` has those that die and rise."""

import asyncio
import secrets

import pytest

from caas.cluster import Cluster
from gpuclusters.lease.model import GPU_LEASE
from tests.caas.fakehost import GOLDEN, FakeHosts
from tests.caas.leasekit import LeaseLab, Nodes, define, settings_of
from tests.caas.loops import in_loop
from tests.fixtures.control_plane import KubeCluster

pytestmark = pytest.mark.lab


@in_loop
async def test_two_controllers_at_once_lease_no_gpu_twice(
    kube_api: KubeCluster, namespace: str
) -> None:
    """As when leadership failed to keep them apart."""
    name = f"fake-{secrets.token_hex(4)}"
    settings = settings_of([(name, None)], golden=GOLDEN)
    machines, nodes = FakeHosts(seconds=0.01), Nodes([name])
    async with Cluster(kube_api.kubeconfig) as cluster:
        await define(cluster)
        lab, other = (LeaseLab(cluster, settings, namespace, machines, nodes) for _ in range(2))
        try:
            await lab.start()
            await other.start()
            await lab.all_free()
            acme = await lab.tenant()
            asked = [(await lab.pod(acme, size), size) for size in (4, 2, 2, 1)]
            pods = {pod["metadata"]["uid"]: (pod, size) for pod, size in asked}
            admitted: set[str] = set()
            for _ in range(40):
                holders: dict[int, str] = {}
                for body in await cluster.list(GPU_LEASE):
                    holder = (body.get("status") or {}).get("holder")
                    # Both may reserve for a pod; it is let go to one partition, the other is given back.
                    if body["spec"]["node"] == name and holder and holder["admitted"]:
                        holders[body["spec"]["module"]] = holder["podUid"]
                        if not holder["allocated"]:
                            await lab.allocate(pods[holder["podUid"]][0])
                admitted |= set(holders.values())
                for uid, (_pod, size) in pods.items():
                    assert sum(u == uid for u in holders.values()) <= size
                await asyncio.sleep(0.05)
            assert len(admitted) >= 2, "nothing was leased while it was looked at"
            for pod, _size in pods.values():
                await lab.delete(pod)
                await lab.allocate(pod, allocated=False)
            await lab.all_free()
        finally:
            await other.stop()
            await lab.clean()
