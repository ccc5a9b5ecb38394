"""The lease controller, the device plugin and a kubelet together: pods come, run, and leave clean GPUs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from caas.device_plugin.plugin import Kubelet, Pace, Plugin
from gpuclusters.tenancy.objects import POD
from tests.caas.leasekit import PGPU, LeaseLab, lease_lab
from tests.caas.loops import in_loop
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.hosts import Hosts
from tests.fixtures.kubelet import Kubelets

pytestmark = pytest.mark.lab


@asynccontextmanager
async def plugged(lab: LeaseLab, kubelets: Kubelets) -> AsyncIterator[None]:
    """The host of the lab has a kubelet and a plugin."""
    kubelet = await asyncio.to_thread(kubelets, lab.host, unique_already=True)
    folder = kubelet.node()
    plugin = Plugin(
        lab.cluster,
        lab.settings.hosts[0],
        Kubelet(device_plugins=folder.device_plugins, pod_resources=folder.pod_resources),
        resource=PGPU,
        cdi_kind=PGPU,
        # A machine that pauses makes no lease stale, and no kubelet give a pod up.
        pace=Pace(reconcile=1, release=0.2, read=50, stale=600),
    )
    work = asyncio.create_task(plugin.run())
    try:
        yield
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def runs(lab: LeaseLab, pod: dict[str, Any]) -> dict[str, Any]:
    def running(body: dict[str, Any]) -> bool:
        assert body["status"]["phase"] != "Failed", body["status"]
        return bool(body["status"]["phase"] == "Running")

    return await lab.pod_when(pod, running)


@pytest.mark.parametrize("rounds", [1, pytest.param(3, marks=pytest.mark.long)])
@in_loop
async def test_gpus_pass_from_pod_to_pod_many_times(
    kube_api: KubeCluster, namespace: str, hosts: Hosts, kubelets: Kubelets, rounds: int
) -> None:
    """The pods of a round ask for more GPUs than there are."""
    (host,) = hosts()

    async def one(lab: LeaseLab, tenant: str, size: int) -> None:
        for _ in range(rounds):
            pod = await lab.pod(tenant, size)
            await runs(lab, pod)
            await lab.cluster.delete(POD, pod["metadata"]["name"], namespace)

    made = lease_lab(kube_api, namespace, [host], free=True)
    async with made as lab, plugged(lab, kubelets):
        acme, other = await lab.tenant(), await lab.tenant()
        await asyncio.gather(
            *(one(lab, tenant, size) for tenant in (acme, other) for size in (2, 4))
        )
        await lab.all_free()
