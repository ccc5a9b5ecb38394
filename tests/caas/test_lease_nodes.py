"""GPUs of nodes that get lost and come back, on a real API server, with machines that answer or do not."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from caas.api.store import Store
from gpuclusters.lease.placement import Why
from gpuclusters.tenancy.objects import POD
from lab.hosts import faults
from tests.caas.leasekit import PATIENCE_SECONDS, LeaseLab, Nodes, lease_lab
from tests.caas.lognode import log_node
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.hosts import Hosts
from tests.fixtures.tenancies import Request

pytestmark = pytest.mark.lab

Story = Callable[[LeaseLab, Nodes], Awaitable[None]]
SILENCE = faults.CommandFails(exit=255, stderr="nobody answers here")


def told(kube_api: KubeCluster, namespace: str, hosts: list[Any], story: Story) -> None:
    """Run a story beside a controller of these machines, whose GPUs are free when it begins."""

    async def run() -> None:
        async with lease_lab(kube_api, namespace, hosts, free=True) as lab:
            assert lab.nodes is not None
            await story(lab, lab.nodes)

    asyncio.run(run())


async def still_waits(lab: LeaseLab, pod: dict[str, Any]) -> None:
    """Nothing is set aside for the pod, and no GPU is closed: by now the queue has looked at it."""
    for _ in range(3):
        await asyncio.sleep(0.3)
        body = await lab.cluster.get(POD, pod["metadata"]["name"], lab.namespace)
        assert body is not None
        assert body["spec"]["schedulingGates"]
        assert set((await lab.phases()).values()) == {"Free"}


def test_a_node_that_is_lost_offers_nothing_and_once_it_is_back_it_does_by_itself(
    kube_api: KubeCluster, namespace: str, hosts: Hosts
) -> None:
    (host,) = hosts()

    async def story(lab: LeaseLab, nodes: Nodes) -> None:
        host.inject(SILENCE)
        nodes.say(lab.host, ready="Unknown")
        await lab.serves(lab.host, served=False)
        pod = await lab.pod(await lab.tenant(), 8)
        await still_waits(lab, pod)
        # Nor does another controller give them out, that begins while the node is away.
        await lab.stop()
        await lab.start()
        await still_waits(lab, pod)
        # The node is there again, but its machine does not answer yet.
        nodes.say(lab.host)
        await still_waits(lab, pod)
        assert lab.controller is not None
        assert not lab.controller.serves(lab.host)
        host.clear_faults()
        await lab.admitted(pod)

    told(kube_api, namespace, [host], story)


def test_a_node_whose_kubelet_falls_silent_offers_nothing_until_it_speaks_again(
    kube_api: KubeCluster, namespace: str, hosts: Hosts, lease_api: Request
) -> None:
    """The node controller of a real control plane says that the node is lost."""
    (host,) = hosts()

    async def story(name: str, silent: Any) -> None:
        async with lease_lab(kube_api, namespace, [host], free=True, node=name) as lab:
            await lab.serves(name)
            store = Store(lab.settings, lab.cluster)
            silent.set()
            await lab.serves(name, served=False)
            pod = await lab.pod(await lab.tenant(), 2)
            await still_waits(lab, pod)
            async with store.running(), asyncio.timeout(PATIENCE_SECONDS):
                while not (outage := store.outages([name])) or outage[name].why is Why.GONE:
                    await asyncio.sleep(0.05)
            assert outage[name].why is Why.NOT_READY
            assert outage[name].message.startswith(f"{name} is NotReady since 2")
            silent.clear()
            went = await lab.admitted(pod)
            assert went["spec"]["nodeSelector"] == {"kubernetes.io/hostname": name}

    with log_node(kube_api, lease_api) as node:
        asyncio.run(story(node.name, node.silent))
