"""The lab's GPU Operator against what is documented of the real one, and our gates against it.

One release on two nodes: installed by Helm, shared, broken, updated (divided: e2e/test_types_of_cluster.py).
The tests of this file build on each other's cluster, each leaves it ready.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuclusters.core.converge import Clock, Reporter
from gpuclusters.core.finding import Refused
from gpuclusters.gpu_operator import crds, readiness
from gpuclusters.gpu_operator.crds import crd_documents
from gpuclusters.gpu_operator.objects import CLUSTER_POLICY
from gpuclusters.gpu_operator.readiness import ReadinessInputs
from gpuclusters.kube.objects import KubernetesObjects
from gpuclusters.tenancy.objects import NODE, POD
from lab.control_plane.layout import Layout
from lab.gpu_operator import faults
from lab.gpu_operator.operator import Operator
from lab.hosts import GpuState
from lab.kubelet.folder import KubeletFolder
from lab.kubelet.kube import Kube
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.kubelet import KubeletStandIn, playing
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.lab

CHART = Path(__file__).resolve().parents[2] / "lab" / "charts" / "gpu-operator"
SOCKET = {"name": "CONTAINERD_SOCKET", "value": "/run/k3s/containerd/containerd.sock"}
STEP_SECONDS = 0.25
"""With less it looks so often that all others wait for it."""
MARK = "gpu-clusters.dev/test-nodes"
RELEASE = "gpu-operator"
A100 = GpuState("NVIDIA A100-SXM4-80GB", 8, 8, "580.178.04", "580.178.04", {}, nouveau=False)


@dataclass
class Machines:
    """Machines by name, whose GPUs stay whole."""

    states: dict[str, GpuState]

    def gpus(self) -> Mapping[str, GpuState]:
        return dict(self.states)

    def divide(self, node: str, layout: object) -> None:
        assert not layout, node

    async def restart_rke2(self, node: str) -> None:
        """Its containerd takes a hangup call."""


@dataclass
class World:
    """A cluster with one release of the operator."""

    kubelet: KubeletStandIn
    folder: Path
    machines: Machines
    token: str
    objects: KubernetesObjects

    @property
    def namespace(self) -> str:
        return f"gpu-operator-{self.token}"

    def install(self, chart: Path = CHART, **values: Any) -> None:
        base: dict[str, Any] = {
            "toolkit": {"env": [SOCKET]},
            "driver": {"enabled": False},
            "mig": {"strategy": "mixed"},
            "operator": {"nodeSelector": {MARK: self.token}},
            "node-feature-discovery": {"worker": {"nodeSelector": {MARK: self.token}}},
        }
        file = self.folder / "values.yaml"
        file.write_text(yaml.safe_dump(base | values))
        where = (f"--namespace={self.namespace}", "--skip-crds", "-f", file, "--wait")
        self.kubelet.cluster.run("helm", "upgrade", "--install", RELEASE, chart, *where)

    def ready(self, seconds: float = 3000) -> None:
        """Our gate, for eight GPUs on both nodes."""
        inputs = ReadinessInputs(
            cluster="c",
            kubeconfig=self.kubelet.cluster.kubeconfig.read_text(),
            namespace=self.namespace,
            expected={node: {"nvidia.com/gpu": 8} for node in self.kubelet.names},
            timeout_seconds=seconds,
        )
        readiness.wait(inputs, self.objects, Quick(), Reporter())

    def refused(self, *words: str) -> str:
        """What our gate says of eight GPUs on each node, once it says all of this; so does the policy."""
        text = ""
        eventually(lambda: self.policy()["status"]["state"] == "notReady", "it is not ready")

        def says() -> bool:
            nonlocal text
            with pytest.raises(Refused) as failed:
                self.ready(seconds=10)
            text = str(failed.value)
            return all(word in text for word in words)

        eventually(says, f"the gate says {words}")
        return text

    def policy(self) -> dict[str, Any]:
        return self.objects.get(CLUSTER_POLICY, "cluster-policy") or {}

    def pods(self, app: str) -> list[dict[str, Any]]:
        """Of an operand."""
        found = self.objects.list(POD, self.namespace)
        return [one for one in found if (one["metadata"].get("labels") or {}).get("app") == app]

    def label(self, node: str, wanted: Mapping[str, str]) -> None:
        metadata: dict[str, Any] = {"name": node, "labels": dict(wanted)}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
        self.objects.take(NODE, body, manager="test")


class Quick(Clock):
    """Ten seconds of our gates in one."""

    def now(self) -> float:
        return 10 * time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds / 10)


@pytest.fixture(scope="module")
def world(kube_api: KubeCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    token = secrets.token_hex(4)
    folder = tmp_path_factory.mktemp("operator")
    objects = KubernetesObjects(kube_api.kubeconfig.read_text())
    enforce = {"pod-security.kubernetes.io/enforce": "privileged"}
    documents = crd_documents(str(CHART), version="", repository="", sha256="")
    crds.apply(crds.definitions(documents, with_nfd=True), objects, Clock(), Reporter())
    with playing(kube_api) as make:
        kubelet = make("gpu-a", "gpu-b", labels={MARK: token})
        machines = Machines(dict.fromkeys(kubelet.names, A100))
        made = World(kubelet, folder, machines, token, objects)
        metadata = {"name": made.namespace, "labels": enforce}
        with kube_api.api() as api:
            api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        with operating(made):
            yield made
            where = (f"--namespace={made.namespace}", "--ignore-not-found", "--no-hooks")
            kube_api.run("helm", "uninstall", RELEASE, *where)
        with kube_api.api() as api:
            api.delete(f"/api/v1/namespaces/{made.namespace}")


@contextmanager
def operating(world: World) -> Iterator[None]:
    """The operator in a thread of this process, for machines that are values."""
    loop, stop = asyncio.new_event_loop(), asyncio.Event()

    async def play() -> None:
        kubelets = KubeletFolder(world.kubelet.folder)
        async with Kube(Layout.of(world.kubelet.cluster.folder), "admin") as kube:
            await Operator(kube, world.machines, world.folder, kubelets, STEP_SECONDS).run(stop)

    thread = threading.Thread(target=lambda: loop.run_until_complete(play()), daemon=True)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(100)


def test_time_slicing_hands_out_each_gpu_several_times_on_the_labelled_node_alone(
    world: World,
) -> None:
    first, second = world.kubelet.names
    rules = {"renameByDefault": True, "resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}
    text = yaml.safe_dump({"version": "v1", "sharing": {"timeSlicing": rules}})
    config = {"create": True, "name": "sliced-1", "data": {"sliced": text}}
    world.install(devicePlugin={"config": config})
    world.label(first, {"nvidia.com/device-plugin.config": "sliced"})

    def offered(node: str, resource: str) -> str:
        found = world.objects.get(NODE, node) or {}
        return str(found["status"]["allocatable"].get(resource, "0"))

    eventually(lambda: offered(first, "nvidia.com/gpu.shared") == "32", "32 shared GPUs")
    assert offered(first, "nvidia.com/gpu") == "0"
    eventually(lambda: offered(second, "nvidia.com/gpu") == "8", "whole GPUs on the other node")
    assert offered(second, "nvidia.com/gpu.shared") == "0"
    world.label(first, {})
    world.ready()


def test_a_node_that_fails_is_named_with_what_is_wrong_with_it_and_recovers(world: World) -> None:
    first, second = world.kubelet.names
    with world.kubelet.cluster.api() as api:
        faults.inject(world.folder, faults.NodeFails(node=first))
        for pod in world.pods("nvidia-device-plugin-daemonset"):
            if pod["spec"]["nodeName"] == first:
                name = pod["metadata"]["name"]
                api.delete(f"/api/v1/namespaces/{world.namespace}/pods/{name}")
    text = world.refused(
        *("OperandNotReady", "states not ready: [", "too many open files"),
        *(f"node {first}: 0 of 8 nvidia.com/gpu allocatable", "fs.inotify.max_user_instances"),
    )
    assert f"node {second}:" not in text
    faults.clear(world.folder)
    world.ready()


def test_a_toolkit_that_is_not_told_where_rke2s_containerd_listens_is_explained(
    world: World,
) -> None:
    world.install(toolkit={"env": []})
    world.refused(
        "error signaling containerd", "CONTAINERD_SOCKET=/run/k3s/containerd/containerd.sock"
    )
    world.install()
    world.ready()


def test_the_operators_driver_is_updated_on_both_nodes(world: World, tmp_path: Path) -> None:
    for node in world.kubelet.names:
        bare = replace(world.machines.states[node], driver_version=None, usable=0)
        world.machines.states[node] = bare
    older = tmp_path / "gpu-operator"
    shutil.copytree(CHART, older)
    chart = (older / "Chart.yaml").read_text().replace("v26.7.0", "v26.3.2")
    (older / "Chart.yaml").write_text(chart)
    world.install(older, driver={"enabled": True, "version": "580.178.04"})
    world.ready()
    faults.inject(world.folder, faults.DriverSlow(seconds=0.5))

    def images() -> set[str]:
        pods = world.pods("nvidia-driver-daemonset")
        return {pod["spec"]["containers"][0]["image"] for pod in pods}

    world.install(driver={"enabled": True, "version": "595.91.07"})
    wanted = {"nvcr.io/nvidia/driver:595.91.07-ubuntu24.04"}
    eventually(lambda: images() == wanted, "both nodes have the new driver")
    faults.clear(world.folder)
    world.ready()
    assert world.policy()["metadata"]["labels"]["app.kubernetes.io/version"] == "v26.7.0"
