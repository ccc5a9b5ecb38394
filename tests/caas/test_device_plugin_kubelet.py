"""The plugin and a kubelet over their real sockets, in one process, with leases in memory."""

import asyncio
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from caas.device_plugin.plugin import Kubelet, Pace, Plugin
from gpuclusters.core.ports import ObjectKind
from lab.kubelet.device_manager import AdmissionError, DeviceManager
from lab.kubelet.folder import NodeFolder
from lab.kubelet.pod_resources import PodResources
from tests.caas.loops import in_loop
from tests.caas.test_device_plugin_allocation import HOST, LeaseCluster
from tests.fixtures.waiting import Clock, comes

RESOURCE = "nvidia.com/pgpu"


class Leases(LeaseCluster):
    """Remembers events."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Mapping[str, Any]] = []

    async def create(self, kind: ObjectKind, body: Mapping[str, Any], **_: Any) -> dict[str, Any]:
        self.events.append(body)
        return await super().create(kind, body)


class Node:
    """A kubelet without an API server."""

    def __init__(self, path: Path) -> None:
        self.folder = NodeFolder(path)
        self.pods: list[Mapping[str, Any]] = []
        self.devices = DeviceManager(self.folder, lambda: None)
        self._resources = PodResources(self.folder, self.devices, self._list)
        self._listed = 0

    def _list(self) -> list[Mapping[str, Any]]:
        self._listed += 1
        return self.pods

    async def was_heard(self) -> None:
        """The plugin has asked for what there is now, and thought about it: it asks one after the other."""
        before = self._listed
        await comes(lambda: self._listed >= before + 3)

    async def open(self) -> None:
        await self.devices.open()
        await self._resources.open()

    async def close(self) -> None:
        await self._resources.close()
        await self.devices.close()

    async def admit(self, name: str, gpus: int) -> tuple[str, ...]:
        pod = {
            "metadata": {"name": name, "namespace": "t-a", "uid": f"uid-{name}"},
            "spec": {
                "containers": [{"name": "main", "resources": {"limits": {RESOURCE: str(gpus)}}}]
            },
        }
        (allocation,) = await self.devices.admit(pod)
        self.pods.append(pod)
        return allocation.cdi

    def end(self, name: str) -> None:
        self.pods = [pod for pod in self.pods if pod["metadata"]["name"] != name]
        self.devices.free(f"uid-{name}")

    def offers(self, total: int, healthy: int) -> Callable[[], bool]:
        return lambda: self.devices.capacity().get(RESOURCE) == (total, healthy)


@pytest.fixture
def folder() -> Iterator[Path]:
    # Short: sockets lie in it.
    path = Path(tempfile.mkdtemp(prefix="gcp-"))
    yield path
    shutil.rmtree(path)


@asynccontextmanager
async def running(cluster: Leases, node: Node, clock: Clock | None = None) -> AsyncIterator[Plugin]:
    plugin = Plugin(
        cluster,  # type: ignore[arg-type]
        HOST,
        Kubelet(device_plugins=node.folder.device_plugins, pod_resources=node.folder.pod_resources),
        resource=RESOURCE,
        cdi_kind=RESOURCE,
        pace=Pace(confirm=0.05, reconcile=0.05, release=0.05, read=120),
        clock=clock or Clock(),
    )
    work = asyncio.create_task(plugin.run())
    try:
        yield plugin
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


def told(story: Callable[[Leases, Node], Awaitable[None]]) -> Callable[[Path], None]:
    """A test with leases and a kubelet that serves."""

    async def act(folder: Path) -> None:
        node = Node(folder / "hgx-01")
        await node.open()
        try:
            await story(Leases(), node)
        finally:
            await node.close()

    def run(folder: Path) -> None:
        asyncio.run(act(folder))

    return run


@told
async def test_a_pod_gets_the_gpus_of_its_lease_and_no_others_and_they_come_back(
    cluster: Leases, node: Node
) -> None:
    async with running(cluster, node):
        await comes(node.offers(8, 8))
        with pytest.raises(AdmissionError, match=r"code = FailedPrecondition.*is Free, not leased"):
            await node.admit("p", 2)
        cluster.lease(6, "p")
        assert await node.admit("p", 2) == (f"{RESOURCE}=16", f"{RESOURCE}=18")
        assert cluster.allocated() == {6, 8}
        await asyncio.sleep(0.2)
        assert cluster.allocated() == {6, 8}
        cluster.write(6, 8, phase="Releasing")
        await comes(node.offers(8, 6))
        await asyncio.sleep(0.2)
        assert cluster.allocated() == {6, 8}, "the kubelet still lists them"
        node.end("p")
        await comes(lambda: cluster.allocated() == set())
        cluster.write(8, phase="Quarantined")
        cluster.write(6, phase="Free")
        await comes(node.offers(8, 7))


@told
async def test_a_plugin_that_restarts_announces_everything_anew(
    cluster: Leases, node: Node
) -> None:
    cluster.lease(3, "p")
    async with running(cluster, node):
        await comes(node.offers(8, 8))
        await node.admit("p", 2)
    await comes(node.offers(8, 0))
    stale = node.folder.device_plugins / "gpu-clusters-dead.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(stale))
    async with running(cluster, node):
        await comes(node.offers(8, 8))
        assert not stale.exists()
        assert cluster.allocated() == {1, 3}


@in_loop
async def test_a_plugin_that_starts_before_the_kubelet_waits_for_it(folder: Path) -> None:
    node = Node(folder / "hgx-01")
    async with running(Leases(), node) as plugin:
        await asyncio.sleep(0.2)
        assert not plugin.ready
        await node.open()
        await comes(node.offers(8, 8))
    await node.close()


@told
async def test_without_the_api_server_free_gpus_are_withdrawn_in_time_and_nothing_is_given(
    cluster: Leases, node: Node
) -> None:
    clock = Clock()
    async with running(cluster, node, clock):
        cluster.lease(3, "running")
        cluster.lease(4, "waiting")
        await comes(node.offers(8, 8))
        await node.admit("running", 2)
        cluster.down = True
        with pytest.raises(AdmissionError, match="did not answer"):
            await node.admit("waiting", 2)
        clock.now += 29
        await asyncio.sleep(0.2)
        assert node.offers(8, 8)()
        clock.now += 2
        await comes(node.offers(8, 2))
        cluster.down = False
        await comes(node.offers(8, 8))


@told
async def test_a_gpu_that_was_just_given_is_not_taken_for_released(
    cluster: Leases, node: Node
) -> None:
    """The pod is deleted while the kubelet is still at it: it has the GPU, but does not list it yet."""
    clock = Clock()
    async with running(cluster, node, clock):
        cluster.lease(7, "p")
        await comes(node.offers(8, 8))
        await node.admit("p", 1)
        pods, node.pods = node.pods, []
        cluster.write(1, phase="Releasing")
        await node.was_heard()
        assert cluster.allocated() == {1}
        node.pods = pods
        await node.was_heard()
        assert cluster.allocated() == {1}
        # Of one that never takes it there is no more to wait for after a while.
        node.pods = []
        clock.now += 31
        await comes(lambda: cluster.allocated() == set())


@told
async def test_a_gpu_that_the_kubelet_gave_to_another_pod_is_marked_and_offered_to_nobody(
    cluster: Leases, node: Node
) -> None:
    async with running(cluster, node):
        cluster.lease(7, "p")
        await comes(node.offers(8, 8))
        await node.admit("p", 1)
        # The lease is lost, as when somebody forced it free by hand.
        cluster.write(1, phase="Free", holder=None)
        await comes(node.offers(8, 7))
        await comes(lambda: cluster.status(1).get("conditions"))
        (condition,) = cluster.status(1)["conditions"]
        assert (condition["type"], condition["status"]) == ("KubeletAgrees", "False")
        assert "t-a/p" in condition["message"]
        await comes(lambda: cluster.events)
        assert [event["reason"] for event in cluster.events] == ["HeldByAnotherPod"]
        node.end("p")
        await comes(node.offers(8, 8))
        # The mark stays until the lease controller has seen it.
        await asyncio.sleep(0.2)
        assert cluster.status(1)["conditions"][0]["status"] == "False"
        cluster.write(1, phase="Quarantined")
        await comes(lambda: cluster.status(1)["conditions"][0]["status"] == "True")
