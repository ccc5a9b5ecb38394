"""What is played beside a real kubelet: the test is the kubelet, as far as the API server sees one."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
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
    namespace: str

    def register(self) -> None:
        """As a kubelet registers its node, Ready."""
        name = self.played.name
        metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
        with self.played.cluster.api() as client:
            post(client, "/api/v1/nodes", {"metadata": metadata})
        ready = {"type": "Ready", "status": "True", "reason": "test"}
        self._write(f"/api/v1/nodes/{name}", {"conditions": [ready]})

    def _write(self, path: str, status: dict[str, Any]) -> None:
        """Put this status in place of whatever is there; somebody else may write meanwhile."""

        def written() -> bool:
            with self.played.cluster.api() as client:
                body = {**client.get(path), "status": status}
                return bool(client.request("PUT", f"{path}/status", body)[0] == 200)

        eventually(written)

    @property
    def _pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def pod(self) -> None:
        """A tenant's pod, bound to the node."""
        container = {"name": "main", "image": "any:1", "resources": {"limits": {_RESOURCE: "2"}}}
        notes = {LEASE_ANNOTATION: f"{self.played.name}/6"}
        body = {
            "metadata": {"name": "p", "annotations": notes},
            "spec": {"nodeName": self.played.name, "containers": [container]},
        }
        with self.played.cluster.api() as client:
            post(client, self._pods, body)

    def status(self, state: dict[str, Any]) -> None:
        """What the kubelet says of the pod's container."""
        common = {"imageID": "", "ready": False, "restartCount": 0, "state": state}
        told = [{"name": "main", "image": "any:1", **common}]
        self._write(f"{self._pods}/p", {"phase": "Running", "containerStatuses": told})

    def delete(self, grace: int = 30) -> None:
        with self.played.cluster.api() as client:
            client.delete(f"{self._pods}/p?gracePeriodSeconds={grace}")

    def users(self) -> list[str]:
        """Who uses partitions of the host."""
        host = HostsFolder(self.hosts).host(self.played.name)
        return [user["holder"] for user in (read_json(host.virtual_machines) or {}).values()]


@pytest.fixture
def beside(kube_api: KubeCluster, namespace: str) -> Iterator[Beside]:
    name = f"real-{secrets.token_hex(4)}"
    # A short path: gRPC's own server listens on a socket below it.
    folder = Path(tempfile.mkdtemp(prefix="gcb-"))
    hosts, real = folder / "hosts", folder / "real"
    lab.hosts.start(hosts, [lab.hosts.HostSpec(name)])
    kubelet = RealKubelet(pod_resources(real, name))
    kubelet.start()

    def register(played: KubeletStandIn) -> None:
        Beside(played, hosts, kubelet, namespace).register()

    with playing(kube_api) as make:
        how = {"beside": (name,), "real": real, "hosts": hosts}
        played = make(name, unique_already=True, before=register, **how)
        yield Beside(played, hosts, kubelet, namespace)
    kubelet.stop()
    lab.hosts.stop(hosts)
    shutil.rmtree(folder)


def test_a_pod_with_gpus_is_a_virtual_machine_as_long_as_its_container_runs(
    beside: Beside,
) -> None:
    holder = f"{beside.namespace}/p"
    assert beside.played.playing() == [], "a real node is not played"
    beside.pod()
    beside.kubelet.pods[beside.namespace, "p"] = ("3", "4")
    beside.status(_STARTED)
    eventually(lambda: beside.users() == [holder])
    eventually(
        lambda: tenant.state(beside.hosts, beside.played.name, 4).data_of == beside.namespace
    )
    assert tenant.state(beside.hosts, beside.played.name, 5).data_of is None
    # Told to end is not ended.
    beside.delete()
    beside.status(_STARTED)
    assert beside.users() == [holder]
    beside.status(_ENDED)
    eventually(lambda: beside.users() == [])
    beside.delete(grace=0)

    # The kubelet is just being restarted when the container starts.
    beside.pod()
    beside.kubelet.stop()
    beside.status(_STARTED)
    beside.kubelet.start()
    eventually(lambda: beside.users() == [holder])
    # A pod that is deleted behind its kubelet's back leaves its VM.
    beside.kubelet.stop()
    beside.delete(grace=0)
    eventually(lambda: f"{holder}: " in beside.played.log().rpartition("has GPUs")[2])
    assert beside.users() == [holder]
    beside.kubelet.pods.clear()
    beside.kubelet.start()
    eventually(lambda: beside.users() == [])
