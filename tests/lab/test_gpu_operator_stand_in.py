"""The lab's GPU Operator against what is documented of the real one, and our gates against it.

One release on two nodes through its life: installed by Helm, shared, divided, broken, updated, removed.
The tests of this file build on each other's cluster, each leaves it ready.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuclusters.core.converge import Clock, Reporter, converge
from gpuclusters.core.finding import Refused
from gpuclusters.gpu_operator import crds, readiness
from gpuclusters.gpu_operator.crds import crd_documents
from gpuclusters.gpu_operator.mig_node import MigInputs, MigNode, MigState
from gpuclusters.gpu_operator.objects import CLUSTER_POLICY, DAEMON_SET
from gpuclusters.gpu_operator.preflight import OperatorPreflightInputs, findings, read
from gpuclusters.gpu_operator.readiness import ReadinessInputs
from gpuclusters.kube.objects import KubernetesObjects
from gpuclusters.tenancy.objects import NODE, POD
from lab import tools
from lab.control_plane.layout import Layout
from lab.gpu_operator import faults
from lab.gpu_operator.operator import Operator
from lab.hosts import GpuState, HostsError
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
MOST = {"1g.10gb": 7, "2g.20gb": 3, "3g.40gb": 2}


@dataclass
class Machines:
    """Machines by name; MIG as the A100 of 80 GB has it."""

    states: dict[str, GpuState]
    restarted: list[str] = field(default_factory=list)

    def gpus(self) -> Mapping[str, GpuState]:
        return dict(self.states)

    def divide(self, node: str, layout: Mapping[int, Sequence[str]]) -> None:
        for slices in layout.values():
            if any(slices.count(profile) > MOST.get(profile, 0) for profile in slices):
                raise HostsError("Insufficient Resources")
        mig = {index: tuple(slices) for index, slices in layout.items()}
        self.states[node] = replace(self.states[node], mig=mig)

    async def restart_rke2(self, node: str) -> None:
        self.restarted.append(node)


@dataclass
class World:
    """A cluster with one release of the operator."""

    kubelet: KubeletStandIn
    folder: Path
    machines: Machines
    token: str
    objects: KubernetesObjects

    @property
    def cluster(self) -> KubeCluster:
        return self.kubelet.cluster

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.kubelet.names

    @property
    def namespace(self) -> str:
        return f"gpu-operator-{self.token}"

    @property
    def kubeconfig(self) -> str:
        return self.cluster.kubeconfig.read_text()

    def helm(self, *words: str) -> str:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("HELM_")}
        done = subprocess.run(
            [str(tools.resolve("helm")), *words, "-n", self.namespace],
            env=environment | {"KUBECONFIG": str(self.cluster.kubeconfig)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

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
        self.helm(
            "upgrade", "--install", RELEASE, str(chart), "--skip-crds", "-f", str(file), "--wait"
        )

    def of_this(self, **more: Any) -> dict[str, Any]:
        """Inputs of what looks at this release."""
        common = {"cluster": "c", "kubeconfig": self.kubeconfig, "namespace": self.namespace}
        return {**common, "timeout_seconds": 3000, **more}

    def ready(self, seconds: float = 3000) -> Mapping[str, Any]:
        """Our gate, for eight GPUs on both nodes."""
        expected = {node: {"nvidia.com/gpu": 8} for node in self.nodes}
        inputs = ReadinessInputs(**self.of_this(expected=expected, timeout_seconds=seconds))
        return readiness.wait(inputs, self.objects, Quick(), Reporter())

    def refused(self, *words: str) -> str:
        """What our gate says of eight GPUs on each node, once it says all of this."""
        text = ""

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

    def is_not_ready(self) -> None:
        """In the end, as its policy says."""
        eventually(lambda: self.policy()["status"]["state"] == "notReady", "it is not ready")

    def labels(self, node: str) -> dict[str, str]:
        found = self.objects.get(NODE, node)
        assert found is not None
        return dict(found["metadata"]["labels"])

    def pods(self, app: str) -> list[dict[str, Any]]:
        """Of an operand."""
        found = self.objects.list(POD, self.namespace)
        return [one for one in found if (one["metadata"].get("labels") or {}).get("app") == app]

    def divide(self, node: str, layout: str, expected: Mapping[str, int]) -> MigState:
        """As our resource does."""
        asked = self.of_this(node=node, layout=layout, expected=dict(expected))
        reporter = Reporter()
        node_ = MigNode(MigInputs(**asked), self.objects, Quick(), reporter)
        state = converge(node_, reporter)
        assert state is not None
        return state

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
            made.helm("uninstall", RELEASE, "--ignore-not-found", "--no-hooks")
        with kube_api.api() as api:
            api.delete(f"/api/v1/namespaces/{made.namespace}")


@contextmanager
def operating(world: World) -> Iterator[None]:
    """The operator in a thread of this process, for machines that are values."""
    loop, stop = asyncio.new_event_loop(), asyncio.Event()

    async def play() -> None:
        kubelets = KubeletFolder(world.kubelet.folder)
        async with Kube(Layout.of(world.cluster.folder), "admin") as kube:
            await Operator(kube, world.machines, world.folder, kubelets, STEP_SECONDS).run(stop)

    thread = threading.Thread(target=lambda: loop.run_until_complete(play()), daemon=True)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(100)


def test_gpus_are_ready_when_every_operand_is(world: World) -> None:
    world.install()
    found = world.ready()
    assert found["reason"] == "Reconciled"
    assert all(amounts["nvidia.com/gpu"] == 8 for amounts in found["allocatable"].values())
    # "the operator labels GPU nodes with nvidia.com/gpu.present=true" and where each operand comes.
    labels = world.labels(world.nodes[0])
    assert labels["feature.node.kubernetes.io/pci-10de.present"] == "true"
    assert labels["nvidia.com/gpu.deploy.device-plugin"] == "true"
    # "if left true the init container sees it and labels the node so the driver pod leaves".
    assert labels["nvidia.com/gpu.deploy.driver"] == "pre-installed"
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-80GB"
    # "restarts containerd with a hangup call which restarts RKE2", once for each node.
    assert sorted(world.machines.restarted) == sorted(world.nodes)
    conditions = {c["type"]: c for c in world.policy()["status"]["conditions"]}
    assert conditions["Error"]["status"] == "False"
    assert conditions["Ready"]["message"] == (
        "ClusterPolicy is ready as all resources have been successfully reconciled"
    )


def test_the_preflight_finds_nothing_wrong_with_our_own_release_and_what_is_wrong_with_others(
    world: World,
) -> None:
    asked = world.of_this(version="v26.7.1", nodes=world.nodes)
    del asked["timeout_seconds"]
    inputs = OperatorPreflightInputs(**asked)
    live = read(inputs, world.objects)
    assert (live.installed, findings(live, inputs)) == ("v26.7.0", ())
    other = inputs.model_copy(update={"version": "v26.3.0", "nodes": ("gpu-09",)})
    text = "\n".join(map(str, findings(read(other, world.objects), other)))
    assert "older than what is installed" in text
    assert "node gpu-09 is not in the cluster" in text


def test_another_layout_of_one_node_leaves_the_other_untouched(world: World) -> None:
    first, second = world.nodes
    eventually(lambda: "nvidia.com/mig.config" in world.labels(first), "the operator's own default")
    # "the operator sets all-disabled itself when capable and unlabelled".
    assert world.labels(first)["nvidia.com/mig.config"] == "all-disabled"
    before = world.labels(second)
    slices = {"nvidia.com/mig-1g.10gb": 56, "nvidia.com/gpu": 0}
    state = world.divide(first, "all-1g.10gb", slices)
    assert state.outputs()["state"] == "success"
    assert world.machines.states[first].mig == dict.fromkeys(range(8), ("1g.10gb",) * 7)
    assert world.machines.states[second].mig == {}
    assert world.labels(second) == before
    with pytest.raises(Refused, match=r"could not make layout 'all-9g\.99gb'"):
        world.divide(second, "all-9g.99gb", {"nvidia.com/gpu": 8})
    for node in world.nodes:
        world.divide(node, "all-disabled", {"nvidia.com/gpu": 8})
    world.ready()


def test_time_slicing_hands_out_each_gpu_several_times_on_the_labelled_node_alone(
    world: World,
) -> None:
    first, second = world.nodes
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
    first, second = world.nodes
    with world.cluster.api() as api:
        faults.inject(world.folder, faults.NodeFails(node=first))
        for pod in world.pods("nvidia-device-plugin-daemonset"):
            if pod["spec"]["nodeName"] == first:
                name = pod["metadata"]["name"]
                api.delete(f"/api/v1/namespaces/{world.namespace}/pods/{name}")
    world.is_not_ready()
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
    world.is_not_ready()
    world.refused(
        "error signaling containerd", "CONTAINERD_SOCKET=/run/k3s/containerd/containerd.sock"
    )
    world.install()
    world.ready()


def test_the_operators_driver_is_updated_on_both_nodes(world: World, tmp_path: Path) -> None:
    for node in world.nodes:
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


def test_definitions_labels_and_toolkits_stay_when_the_release_goes(world: World) -> None:
    world.helm("uninstall", RELEASE, "--no-hooks", "--wait")

    def operands() -> list[str]:
        found = world.objects.list(DAEMON_SET, world.namespace)
        names = [one["metadata"]["name"] for one in found]
        return [name for name in names if name.startswith("nvidia-")]

    eventually(lambda: not operands(), "the operands are collected with their policy")
    # "Default uninstall leaves CRDs, loaded kernel modules, /usr/local/nvidia, NFD labels."
    assert world.objects.get(CLUSTER_POLICY, "cluster-policy") is None
    marks = {"clusterpolicies.nvidia.com": ""}
    assert crds.observe({"marks": marks}, world.objects) is not None
    assert world.labels(world.nodes[0])["feature.node.kubernetes.io/pci-10de.present"] == "true"
