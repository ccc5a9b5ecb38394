"""A server and an agent of RKE2 that are real nodes: joined by our provider over SSH, restarted, taken out.

The tests of this file build on each other's cluster, which has an API server of its own: there is one
ClusterPolicy in a cluster.
"""

from __future__ import annotations

import asyncio
import json
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuclusters.core.converge import Clock, Reporter
from gpuclusters.gpu_operator import crds
from gpuclusters.kube.objects import KubernetesObjects
from lab import images, nodes
from lab.gpu_operator import faults, toolkit
from lab.gpu_operator.real_nodes import RealNodes
from lab.nodes.rke2 import CONFIGURATION, CONTAINERD
from tests.fixtures.hosts import SimulatedHost
from tests.fixtures.waiting import eventually
from tests.lab.nodes.real_lab import (
    CHARTS,
    REAL_NODE,
    RealLab,
    own_cluster,
    played_operator,
    simulated,
)
from tests.providers.provider_process import provider_process
from tests.providers.rke2kit import Cluster

pytestmark = REAL_NODE

SERVER, AGENT = "cp-01", "gpu-01"
SOCKET = {"name": "CONTAINERD_SOCKET", "value": "/run/k3s/containerd/containerd.sock"}
DROP_IN = f"{CONTAINERD}/config-v3.toml.d/60-test.toml"
SECOND = """\
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.second]
  runtime_type = 'io.containerd.runc.v2'
"""
SETTINGS = {
    "node-taint": ["example.com/kept=yes:PreferNoSchedule"],
    "node-label": ["example.com/rack=7"],
    "kubelet-arg": ["max-pods=77"],
}
VALUES = {
    "toolkit": {"env": [SOCKET]},
    "driver": {"enabled": False},
    "mig": {"strategy": "mixed"},
}
OPEN = "for d in nvidia0 nvidia1; do (: < /dev/$d) 2>&1; done; ls /dev/nvidia*; echo looked; sleep 1000"
STEP_SECONDS = 450


@dataclass
class World:
    """The cluster, its nodes, and what the provider made of them."""

    folder: Path
    lab: RealLab
    rke2: Cluster

    @property
    def server(self) -> SimulatedHost:
        return self.rke2.hosts[SERVER]

    @property
    def agent(self) -> SimulatedHost:
        return self.rke2.hosts[AGENT]

    def handlers(self, configuration: str = CONFIGURATION) -> dict[str, str]:
        """Programs of runtimes, by handler, as containerd of the agent reads them from a configuration."""
        read = tomllib.loads(self.lab.containerd(AGENT, configuration))["plugins"]
        found = read["io.containerd.cri.v1.runtime"]["containerd"]["runtimes"]
        return {
            name: str(one.get("options", {}).get("BinaryName", "")) for name, one in found.items()
        }

    def restart(self) -> None:
        done = self.agent.sudo("systemctl restart rke2-agent", timeout=STEP_SECONDS)
        assert done.returncode == 0, done.stderr

    def pod(self, name: str, script: str = "sleep 1000", **spec: Any) -> None:
        """A pod on the agent."""
        self.lab.pod(
            "default", name, script, nodeSelector={"kubernetes.io/hostname": AGENT}, **spec
        )

    def run(self, name: str) -> tuple[str, int]:
        """Which run of its container a pod has, and how many were before."""
        status = self.lab.found("default", name)["status"]["containerStatuses"][0]
        return status.get("containerID", ""), status["restartCount"]

    def policy(self) -> str:
        """State and reason of the ClusterPolicy."""
        path = "/apis/nvidia.com/v1/clusterpolicies/cluster-policy"
        status = self.lab.got(path).get("status", {})
        ready = {c["type"]: c["reason"] for c in status.get("conditions", ())}.get("Ready", "")
        return f"{status.get('state', '')} {ready}"

    def offered(self) -> dict[str, str]:
        """What the agent offers of GPUs, beside nothing."""
        found = self.lab.node(AGENT)["status"]["allocatable"]
        return {k: v for k, v in found.items() if k.startswith("nvidia.com/") and v != "0"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("rke2") / "lab"
    names, platforms = (SERVER, AGENT), ("plain-server", "plain-gpu-a100")
    archives = [images.stand_in(print).archive]
    with ExitStack() as stack:
        real = stack.enter_context(
            own_cluster(folder, names, archives=archives, platforms=platforms, joins=names)
        )
        machines = [simulated(folder, name) for name in names]
        environment = {"GPU_CLUSTERS_SSH_KEY_FILE": str(machines[0].client_key)}
        provider = stack.enter_context(provider_process(folder / "provider.err", environment))
        cluster = Cluster(machines, provider)
        for machine in machines:
            config = cluster.inputs(machine)["config"] | SETTINGS
            cluster.create(machine, config=config, join_timeout_seconds=STEP_SECONDS)
        yield World(folder, real, cluster)


@pytest.fixture(scope="module")
def operator() -> Iterator[ExitStack]:
    """For who plays it, until the end or until a test ends it."""
    with ExitStack() as stack:
        yield stack


def test_hosts_that_joined_are_nodes_as_their_configuration_says(world: World) -> None:
    for host in (world.server, world.agent):
        node = world.lab.node(host.name)
        assert node["metadata"]["labels"]["example.com/rack"] == "7"
        assert {"key": "example.com/kept", "value": "yes", "effect": "PreferNoSchedule"} in node[
            "spec"
        ]["taints"]
        assert node["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("containerd://2.")
        assert node["status"]["capacity"]["pods"] == "77"
    labels = world.lab.node(SERVER)["metadata"]["labels"]
    assert labels["node-role.kubernetes.io/control-plane"] == "true"
    # The kubectl that RKE2 brings asks the same API server, and tells the release of the host.
    kubectl = "/var/lib/rancher/rke2/bin/kubectl --kubeconfig /etc/rancher/rke2/rke2.yaml"
    said = json.loads(world.server.sudo(f"{kubectl} get node {AGENT} --output json").stdout)
    assert said["status"]["nodeInfo"]["kubeletVersion"] == "v1.35.7+rke2r1"
    assert said["metadata"]["uid"] == world.lab.node(AGENT)["metadata"]["uid"]


def test_a_start_writes_containerds_configuration_anew_and_keeps_drop_ins_and_containers(
    world: World,
) -> None:
    world.pod("keeps-running")
    world.lab.ready("default", "keeps-running")
    before = world.run("keeps-running")
    world.agent.sudo(f"printf 'version = 3' >{CONFIGURATION}")
    done = world.agent.sudo(f"cat >{DROP_IN}", stdin=SECOND)
    assert done.returncode == 0, done.stderr
    world.restart()
    eventually(lambda: "second" in world.handlers(), "the drop-in counts")
    assert world.agent.path(CONFIGURATION).read_text().startswith("# File generated by rke2.")
    world.pod("after-restart")
    world.lab.ready("default", "after-restart")
    assert world.run("keeps-running") == before


def test_the_toolkit_is_found_at_the_next_start_of_rke2(
    world: World,
) -> None:
    async def run(name: str, command: str) -> None:
        done = await asyncio.to_thread(world.rke2.hosts[name].run, command)
        assert done.returncode == 0, done.stderr

    real = RealNodes(world.folder / "hosts", run, toolkit.ensure(print))
    node = real.of(AGENT)
    assert node is not None
    asyncio.run(real.install_toolkit(node, default=False))
    # What the real `nvidia-ctk` wrote is a configuration for containerd, and none of RKE2's.
    assert world.handlers(toolkit.MAIN)["nvidia"] == toolkit.RUNTIME
    assert "nvidia" not in world.handlers()
    world.restart()
    assert world.handlers()["nvidia"] == toolkit.RUNTIME
    assert "second" in world.handlers()


def test_operands_are_containers_and_a_pod_sees_exactly_its_gpu(
    world: World, operator: ExitStack
) -> None:
    world.lab.kubectl("create", "namespace", "gpu-operator")
    enforce = "pod-security.kubernetes.io/enforce=privileged"
    world.lab.kubectl("label", "namespace", "gpu-operator", enforce)
    chart = str(CHARTS / "gpu-operator")
    documents = crds.crd_documents(chart, version="", repository="", sha256="")
    objects = KubernetesObjects(world.lab.cluster.kubeconfig.read_text())
    crds.apply(crds.definitions(documents, with_nfd=True), objects, Clock(), Reporter())
    its = operator.enter_context(played_operator(world.folder, AGENT))
    faults.inject(its, faults.ImagePull(operand="nvidia-dcgm-exporter"))
    file = world.folder / "values.json"
    file.write_text(json.dumps(VALUES))
    install = ("install", "gpu-operator", chart, "--skip-crds", "-f", file, "-n", "gpu-operator")
    world.lab.cluster.run("helm", *install)
    eventually(lambda: reason(world, "nvidia-dcgm-exporter") == "ImagePullBackOff", "no image")
    faults.clear(world.folder / "gpu_operator")
    eventually(lambda: world.policy() == "ready Reconciled", "the policy is ready", STEP_SECONDS)
    eventually(lambda: world.offered() == {"nvidia.com/gpu": "8"}, "eight GPUs are offered")
    toolkit_pod = operand(world, "nvidia-container-toolkit-daemonset")
    assert toolkit_pod["status"]["containerStatuses"][0]["containerID"].startswith("containerd://")
    limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    world.pod("one-gpu", OPEN, container=limits, runtimeClassName="nvidia")
    world.lab.ready("default", "one-gpu")
    eventually(lambda: world.lab.logs("default", "one-gpu").endswith("looked\n"), "it looked")
    seen = world.lab.logs("default", "one-gpu")
    (given,) = [line for line in seen.split() if line in {f"/dev/nvidia{n}" for n in range(8)}]
    wanted = {given, "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"}
    assert {line for line in seen.splitlines() if line.startswith("/dev/")} == wanted
    # No driver answers, but the container may ask; of the other one it knows nothing.
    assert seen.count("No such device or address") == 1
    assert "no such file" in seen


def test_gpus_are_divided_and_a_pod_has_its_slice(world: World) -> None:
    world.lab.kubectl("delete", "pod", "one-gpu")
    world.lab.kubectl("label", "node", AGENT, "nvidia.com/mig.config=all-1g.10gb", "--overwrite")
    eventually(lambda: world.offered() == {"nvidia.com/mig-1g.10gb": "56"}, "slices are offered")
    limits = {"resources": {"limits": {"nvidia.com/mig-1g.10gb": "1"}}}
    world.pod("slice", "ls -d /dev/nvidia-caps/*; sleep 1000", container=limits)
    world.lab.ready("default", "slice")
    eventually(
        lambda: world.lab.logs("default", "slice").count("caps/nvidia-cap") == 2,
        "it has two capabilities",
    )
    world.lab.kubectl("delete", "pod", "slice")


def test_what_a_fault_says_the_kubelet_tells(world: World) -> None:
    name = "nvidia-device-plugin-daemonset"
    faults.inject(world.folder / "gpu_operator", faults.NodeFails(node=AGENT))

    eventually(lambda: reason(world, name) == "CrashLoopBackOff", "it fails again and again")
    ended = operand(world, name)["status"]["containerStatuses"][0]["lastState"]["terminated"]
    assert "too many open files" in ended["message"]
    eventually(lambda: world.offered() == {}, "nothing is offered")
    faults.clear(world.folder / "gpu_operator")
    eventually(lambda: world.offered() != {}, "it is offered again", STEP_SECONDS)


def test_killall_ends_containers_and_a_start_brings_them_back(world: World) -> None:
    before, runs = world.run("keeps-running")
    done = world.agent.sudo("/usr/local/bin/rke2-killall.sh", timeout=STEP_SECONDS)
    assert done.returncode == 0, done.stderr
    eventually(lambda: "sleep 1000" not in world.lab.in_node(AGENT, "ps", "-ef"), "all have ended")
    # Restarted before, the service would find its programs stopped, and nobody to start them.
    eventually(lambda: AGENT not in nodes.status(world.lab.folder).nodes, "it is no node now")
    world.restart()
    eventually(lambda: world.run("keeps-running")[1] > runs, "it was started again")
    world.lab.ready("default", "keeps-running")
    assert world.run("keeps-running")[0] != before


def test_a_machine_that_is_taken_out_is_no_node_and_runs_nothing(
    world: World, operator: ExitStack
) -> None:
    operator.close()
    world.rke2.node(world.agent).delete()
    nodes_of_it = ("get", "nodes", "--output=name")
    eventually(
        lambda: world.lab.kubectl(*nodes_of_it).split() == [f"node/{SERVER}"],
        "it is no node",
        STEP_SECONDS,
    )
    assert not world.agent.path("/var/lib/rancher/rke2").exists()
    eventually(lambda: "containerd" not in world.lab.in_node(AGENT, "ps", "-ef"), "it runs nothing")
    assert world.lab.is_ready(SERVER)
    config = world.rke2.inputs(world.agent)["config"]
    world.rke2.create(world.agent, config=config, join_timeout_seconds=STEP_SECONDS)
    assert world.lab.is_ready(AGENT)


def reason(world: World, app: str) -> str:
    """Why the container of an operand waits; empty if it does not, or there is none yet."""
    pods = operands(world, app)
    statuses = pods[0]["status"].get("containerStatuses", []) if pods else []
    return str(statuses[0]["state"].get("waiting", {}).get("reason", "")) if statuses else ""


def operand(world: World, app: str) -> dict[str, Any]:
    """The pod of an operand."""
    (pod,) = operands(world, app)
    return pod


def operands(world: World, app: str) -> list[dict[str, Any]]:
    path = f"/api/v1/namespaces/gpu-operator/pods?labelSelector=app%3D{app}"
    found = world.lab.got(path)
    pods: list[dict[str, Any]] = found["items"]
    return pods
