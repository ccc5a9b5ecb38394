"""GPUs of nodes that get lost and come back, on a real API server, with machines that answer or do not."""

import asyncio
from typing import Any

import pytest

from caas.api.store import Store
from gpuclusters.lease.placement import Why
from gpuclusters.tenancy.objects import POD
from lab.hosts import faults
from tests.caas.leasekit import PATIENCE_SECONDS, LeaseLab, lease_lab
from tests.caas.lognode import log_node
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.hosts import Hosts
from tests.fixtures.tenancies import Request
from tests.fixtures.waiting import comes

pytestmark = pytest.mark.lab

SILENCE = faults.CommandFails(exit=255, stderr="nobody answers here")


def node_is_ready(request: Request, name: str) -> bool:
    found = request.get(f"/api/v1/nodes/{name}") or {"status": {}}
    said = {one["type"]: one["status"] for one in found["status"].get("conditions", ())}
    return said.get("Ready") == "True"


async def still_waits(lab: LeaseLab, pod: dict[str, Any]) -> None:
    """Nothing is set aside for the pod, and no GPU is closed: by now the queue has looked at it."""
    for _ in range(3):
        await asyncio.sleep(0.3)
        body = await lab.cluster.get(POD, pod["metadata"]["name"], lab.namespace)
        assert body is not None
        assert body["spec"]["schedulingGates"]
        assert set((await lab.phases()).values()) == {"Free"}


def test_a_node_whose_kubelet_falls_silent_offers_nothing_until_it_speaks_again(
    kube_api: KubeCluster, namespace: str, hosts: Hosts, lease_api: Request
) -> None:
    """The node controller of a real control plane says that the node is lost."""
    (host,) = hosts()

    async def story(name: str, silent: Any) -> None:
        def serves() -> bool:
            assert lab.controller is not None
            return lab.controller.serves(name)

        async with lease_lab(kube_api, namespace, [host], free=True, node=name) as lab:
            await comes(serves)
            store = Store(lab.settings, lab.cluster)
            host.inject(SILENCE)
            silent.set()
            await comes(lambda: not serves())
            pod = await lab.pod(await lab.tenant(), 2)
            await still_waits(lab, pod)
            async with store.running(), asyncio.timeout(PATIENCE_SECONDS):
                while not (outage := store.outages([name])) or outage[name].why is Why.GONE:
                    await asyncio.sleep(0.05)
            assert outage[name].why is Why.NOT_READY
            assert outage[name].message.startswith(f"{name} is NotReady since 2")
            # Nor does another controller give them out, that begins while the node is away.
            await lab.stop()
            await lab.start()
            await still_waits(lab, pod)
            # The node is there again, but its machine does not answer yet.
            silent.clear()
            await comes(lambda: node_is_ready(lease_api, name))
            await still_waits(lab, pod)
            assert not serves()
            host.clear_faults()
            went = await lab.admitted(pod)
            assert went["spec"]["nodeSelector"] == {"kubernetes.io/hostname": name}

    with log_node(kube_api, lease_api) as node:
        asyncio.run(story(node.name, node.silent))
