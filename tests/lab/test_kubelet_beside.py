"""What is played beside a real kubelet: the test is the kubelet, as far as the API server sees one."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import pytest

import lab.hosts
import lab.kubelet
from caas.kubelet_api import podresources_pb2 as api
from gpuclusters.container_api.container import LEASE_ANNOTATION
from lab.files import read_json
from lab.hosts.folder import HostsFolder
from lab.hosts.hardware import tenant
from lab.kubelet.real_devices import pod_resources
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.kubelet import KubeletStandIn, playing
from tests.fixtures.waiting import eventually
from tests.lab.test_kubelet_pods import post

pytestmark = pytest.mark.lab

_RESOURCE = "nvidia.com/pgpu"
_PARTITION = 6
_BEGIN = {"startedAt": "2026-11-22T10:00:00Z"}
_STARTED = {"running": _BEGIN}
_ENDED = {"terminated": {"exitCode": 0, **_BEGIN, "finishedAt": "2026-11-22T10:01:00Z"}}


class RealKubelet:
    """The PodResources socket of a kubelet that gave these devices to pods, by namespace and name."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self.pods: dict[tuple[str, str], Sequence[str]] = {}
        self._server: grpc.Server | None = None

    def start(self) -> None:
        self._socket.parent.mkdir(parents=True, exist_ok=True)
        handler = grpc.unary_unary_rpc_method_handler(
            self._list,
            request_deserializer=api.ListPodResourcesRequest.FromString,
            response_serializer=api.ListPodResourcesResponse.SerializeToString,
        )
        self._server = grpc.server(ThreadPoolExecutor(1))
        service = grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": handler})
        self._server.add_generic_rpc_handlers((service,))
        self._server.add_insecure_port(f"unix:{self._socket}")
        self._server.start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop(grace=0).wait()

    def _list(self, request: object, context: object) -> api.ListPodResourcesResponse:
        def container(devices: Sequence[str]) -> api.ContainerResources:
            given = api.ContainerDevices(resource_name=_RESOURCE, device_ids=[*devices])
            return api.ContainerResources(name="main", devices=[given])

        return api.ListPodResourcesResponse(
            pod_resources=[
                api.PodResources(namespace=namespace, name=name, containers=[container(devices)])
                for (namespace, name), devices in self.pods.items()
            ]
        )


@dataclass(frozen=True)
class Beside:
    """A real node, as far as anything beside it can tell."""

    played: KubeletStandIn
    """What is beside it."""
    hosts: Path
    kubelet: RealKubelet
    namespace: str = "default"

    @property
    def cluster(self) -> KubeCluster:
        return self.played.cluster

    @property
    def name(self) -> str:
        return self.played.name

    def register(self) -> None:
        """As a kubelet registers its node, Ready."""
        metadata = {"name": self.name, "labels": {"kubernetes.io/hostname": self.name}}
        with self.cluster.api() as client:
            post(client, "/api/v1/nodes", {"metadata": metadata})
        ready = {"type": "Ready", "status": "True", "reason": "test"}
        self._write(f"/api/v1/nodes/{self.name}", {"conditions": [ready]})

    def _write(self, path: str, status: dict[str, Any]) -> None:
        """Put this status in place of whatever is there; somebody else may write meanwhile."""

        def written() -> bool:
            with self.cluster.api() as client:
                body = {**client.get(path), "status": status}
                return bool(client.request("PUT", f"{path}/status", body)[0] == 200)

        eventually(written)

    def pod(self, name: str) -> None:
        """A tenant's pod, bound to the node."""
        container = {"name": "main", "image": "any:1", "resources": {"limits": {_RESOURCE: "2"}}}
        body = {
            "metadata": {"name": name, "annotations": {LEASE_ANNOTATION: f"{self.name}/{_PARTITION}"}},
            "spec": {"nodeName": self.name, "containers": [container]},
        }  # fmt: skip
        with self.cluster.api() as client:
            post(client, self._pods, body)

    def status(self, name: str, phase: str, state: dict[str, Any]) -> None:
        """What the kubelet says of a pod whose containers are all in this state."""
        path = f"{self._pods}/{name}"
        with self.cluster.api() as client:
            containers = client.get(path)["spec"]["containers"]
        common = {"imageID": "", "ready": False, "restartCount": 0, "state": state}
        told = [{"name": c["name"], "image": c["image"], **common} for c in containers]
        self._write(path, {"phase": phase, "containerStatuses": told})

    def delete(self, name: str, grace: int = 30) -> None:
        with self.cluster.api() as client:
            client.delete(f"{self._pods}/{name}?gracePeriodSeconds={grace}")

    @property
    def _pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def users(self) -> list[str]:
        """Who uses partitions of the host."""
        users = read_json(HostsFolder(self.hosts).host(self.name).virtual_machines) or {}
        return [user["holder"] for user in users.values()]


@pytest.fixture(scope="module")
def node(kube_api: KubeCluster) -> Iterator[Beside]:
    """One node for all tests: none of them leaves anything on it."""
    name = f"real-{secrets.token_hex(4)}"
    # A short path: gRPC's own server listens on a socket below it.
    folder = Path(tempfile.mkdtemp(prefix="gcb-"))
    hosts, real = folder / "hosts", folder / "real"
    lab.hosts.start(hosts, [lab.hosts.HostSpec(name)])
    kubelet = RealKubelet(pod_resources(real, name))
    kubelet.start()

    def register(played: KubeletStandIn) -> None:
        Beside(played, hosts, kubelet).register()

    with playing(kube_api) as make:
        how = {"beside": (name,), "real": real, "hosts": hosts}
        yield Beside(make(name, unique_already=True, before=register, **how), hosts, kubelet)
    kubelet.stop()
    lab.hosts.stop(hosts)
    shutil.rmtree(folder)


@pytest.fixture
def beside(node: Beside, namespace: str) -> Beside:
    return replace(node, namespace=namespace)


def test_a_pod_with_gpus_is_a_virtual_machine_as_long_as_its_container_runs(
    beside: Beside,
) -> None:
    holder = f"{beside.namespace}/p"
    assert beside.played.playing() == [], "a real node is not played"
    beside.pod("p")
    beside.kubelet.pods[beside.namespace, "p"] = ("3", "4")
    beside.status("p", "Running", _STARTED)
    eventually(lambda: beside.users() == [holder])
    eventually(lambda: tenant.state(beside.hosts, beside.name, 4).data_of == beside.namespace)
    assert tenant.state(beside.hosts, beside.name, 5).data_of is None
    # Told to end is not ended.
    beside.delete("p")
    beside.status("p", "Running", _STARTED)
    assert beside.users() == [holder]
    beside.status("p", "Running", _ENDED)
    eventually(lambda: beside.users() == [])
    beside.delete("p", grace=0)

    # The kubelet is just being restarted when the container starts.
    beside.pod("p")
    beside.kubelet.stop()
    beside.status("p", "Running", _STARTED)
    beside.kubelet.start()
    eventually(lambda: beside.users() == [holder])
    # A pod that is deleted behind its kubelet's back leaves its VM.
    beside.kubelet.stop()
    beside.delete("p", grace=0)
    eventually(lambda: f"{holder}: " in beside.played.log().rpartition("has GPUs")[2])
    assert beside.users() == [holder]
    beside.kubelet.pods.clear()
    beside.kubelet.start()
    eventually(lambda: beside.users() == [])
