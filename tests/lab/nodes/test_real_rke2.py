"""A server and an agent of RKE2 that are real nodes: joined by our provider over SSH, restarted, taken out.

The tests of this file build on each other's cluster, which has an API server of its own: there is one
ClusterPolicy in a cluster.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

import lab.hosts
from gpuclusters.core.converge import Clock, Reporter
from gpuclusters.gpu_operator import crds
from gpuclusters.gpu_operator.crds import crd_documents
from gpuclusters.kube.objects import KubernetesObjects
from lab import control_plane, gpu_operator, images, nodes, tools
from lab.control_plane import NodeSpec
from lab.gpu_operator import faults, toolkit
from lab.gpu_operator.real_nodes import RealNodes
from lab.hosts import HostSpec
from lab.hosts.folder import HostsFolder
from lab.hosts.rke2 import real_machine
from lab.nodes import RunningNode, command_in
from lab.nodes.rke2 import CONFIGURATION, CONTAINERD
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.hosts import SimulatedHost
from tests.fixtures.waiting import eventually
from tests.lab.nodes.real_lab import BUILD_SECONDS, RealLab, only_where_possible, patient_get
from tests.providers.provider_process import provider_process
from tests.providers.rke2kit import Cluster

pytestmark = [
    pytest.mark.lab,
    pytest.mark.real_node,
    only_where_possible,
    pytest.mark.timeout(BUILD_SECONDS),
]

SERVER, AGENT = "cp-01", "gpu-01"
CHART = Path(__file__).resolve().parents[3] / "lab" / "charts" / "gpu-operator"
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
OPEN = "for d in nvidia0 nvidia1; do (: < /dev/$d) 2>&1; done; ls /dev/nvidia*; echo looked; sleep 1000"
STEP_SECONDS = 450


@dataclass
class World:
    """The cluster, its nodes, and what the provider made of them."""

    folder: Path
    lab: RealLab
    rke2: Cluster
    programs: dict[str, Path]

    @property
    def server(self) -> SimulatedHost:
        return self.rke2.hosts[SERVER]

    @property
    def agent(self) -> SimulatedHost:
        return self.rke2.hosts[AGENT]

    def inside(self, host: SimulatedHost, *command: str) -> str:
        """Output of a command in the namespaces of a host's node."""
        # Also while RKE2 is stopped there, and it is no node.
        machine = real_machine.read(HostsFolder(self.folder / "hosts").host(host.name))
        assert machine is not None
        node = RunningNode(host.name, machine.address, machine.pid, self.lab.folder / host.name)
        done = subprocess.run(
            command_in(node, command), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def handlers(self, host: SimulatedHost, configuration: str) -> dict[str, str]:
        """Programs of runtimes, by handler, as containerd itself reads them from a configuration."""
        containerd = str(self.programs["containerd"])
        said = self.inside(host, containerd, "--config", configuration, "config", "dump")
        runtime = tomllib.loads(said)["plugins"]["io.containerd.cri.v1.runtime"]
        found = runtime["containerd"]["runtimes"]
        return {
            name: str(one.get("options", {}).get("BinaryName", "")) for name, one in found.items()
        }

    def restart(self, host: SimulatedHost, role: str) -> None:
        done = host.sudo(f"systemctl restart rke2-{role}", timeout=STEP_SECONDS)
        assert done.returncode == 0, done.stderr

    def is_ready(self, host: SimulatedHost) -> bool:
        conditions = self.lab.node(host.name)["status"]["conditions"]
        return bool({c["type"]: c["status"] for c in conditions}["Ready"] == "True")

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
        status = patient_get(self.lab.cluster, path).get("status", {})
        ready = {c["type"]: c["reason"] for c in status.get("conditions", ())}.get("Ready", "")
        return f"{status.get('state', '')} {ready}"

    def offered(self) -> dict[str, str]:
        """What the agent offers of GPUs, beside nothing."""
        found = self.lab.node(AGENT)["status"]["allocatable"]
        return {k: v for k, v in found.items() if k.startswith("nvidia.com/") and v != "0"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("rke2") / "lab"
    programs = tools.ensure([*nodes.TOOLS, "kubectl", "helm"])
    archives = (*images.basic(print), images.stand_in(print).archive)
    specs = [HostSpec(SERVER, "plain-server"), HostSpec(AGENT, "plain-gpu-a100")]
    own = [NodeSpec(s.name, {}, nodes.OWN_CAPACITY, nodes.OWN_CAPACITY) for s in specs]
    with ExitStack() as stack:
        stack.callback(control_plane.stop, folder, print)
        control_plane.start(folder, print)
        stack.callback(lab.hosts.stop, folder / "hosts")
        lab.hosts.start(folder / "hosts", specs)
        stack.callback(nodes.stop, folder / "nodes")
        nodes.start(
            folder / "nodes",
            nodes.NodesSpec(
                control_plane=folder,
                nodes=tuple(own),
                images=tuple(archives),
                hosts=folder / "hosts",
                joins=tuple(spec.name for spec in specs),
            ),
        )
        endpoints = lab.hosts.status(folder / "hosts").hosts
        key = folder / "ssh" / "id_ed25519"
        machines = [SimulatedHost(s.name, folder / "hosts", endpoints[s.name], key) for s in specs]
        environment = {"GPU_CLUSTERS_SSH_KEY_FILE": str(key)}
        provider = stack.enter_context(provider_process(folder / "provider.err", environment))
        cluster = Cluster(machines, provider)
        for machine in machines:
            config = cluster.inputs(machine)["config"] | SETTINGS
            cluster.create(machine, config=config, join_timeout_seconds=STEP_SECONDS)
        kubeconfig = folder / "kubeconfig"
        client = (str(programs["kubectl"]), f"--kubeconfig={kubeconfig}")
        real = RealLab(
            folder / "nodes", KubeCluster(folder, kubeconfig, ""), (SERVER, AGENT), "", archives, {},
            (), open_to_all=True, client=client,
        )  # fmt: skip
        yield World(folder, real, cluster, dict(programs))


@pytest.fixture(scope="module")
def toolkit_files() -> dict[str, Path]:
    """NVIDIA's programs."""
    return dict(toolkit.ensure(print))


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
    world.restart(world.agent, "agent")
    eventually(lambda: "second" in world.handlers(world.agent, CONFIGURATION), "the drop-in counts")
    assert world.agent.path(CONFIGURATION).read_text().startswith("# File generated by rke2.")
    world.pod("after-restart")
    world.lab.ready("default", "after-restart")
    assert world.run("keeps-running") == before


def test_the_toolkit_is_found_at_the_next_start_of_rke2(
    world: World, toolkit_files: dict[str, Path]
) -> None:
    async def run(name: str, command: str) -> None:
        done = await asyncio.to_thread(world.rke2.hosts[name].run, command)
        assert done.returncode == 0, done.stderr

    real = RealNodes(world.folder / "hosts", run, toolkit_files)
    node = real.of(AGENT)
    assert node is not None
    asyncio.run(real.install_toolkit(node, default=False))
    # What the real `nvidia-ctk` wrote is a configuration for containerd, and none of RKE2's.
    assert world.handlers(world.agent, toolkit.MAIN)["nvidia"] == toolkit.RUNTIME
    assert "nvidia" not in world.handlers(world.agent, CONFIGURATION)
    world.restart(world.agent, "agent")
    assert world.handlers(world.agent, CONFIGURATION)["nvidia"] == toolkit.RUNTIME
    assert "second" in world.handlers(world.agent, CONFIGURATION)


def test_operands_are_containers_and_a_pod_sees_exactly_its_gpu(
    world: World, toolkit_files: dict[str, Path]
) -> None:
    assert toolkit_files
    install_operator(world, faults.ImagePull(operand="nvidia-dcgm-exporter"))
    eventually(lambda: reason(world, "nvidia-dcgm-exporter") == "ImagePullBackOff", "no image")
    faults.clear(world.folder / "gpu_operator")
    eventually(lambda: world.policy() == "ready Reconciled", "the policy is ready", STEP_SECONDS)
    eventually(lambda: world.offered() == {"nvidia.com/gpu": "8"}, "eight GPUs are offered")
    toolkit_pod = operand(world, "nvidia-container-toolkit-daemonset")
    assert toolkit_pod["status"]["containerStatuses"][0]["containerID"].startswith("containerd://")
    limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    world.pod("one-gpu", OPEN, container=limits, runtimeClassName="nvidia")
    world.lab.ready("default", "one-gpu")
    eventually(lambda: logs(world, "one-gpu").endswith("looked\n"), "it looked")
    seen = logs(world, "one-gpu")
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
        lambda: logs(world, "slice").count("caps/nvidia-cap") == 2, "it has two capabilities"
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
    eventually(lambda: "sleep 1000" not in world.inside(world.agent, "ps", "-ef"), "all have ended")
    # Restarted before, the service would find its programs stopped, and nobody to start them.
    eventually(lambda: AGENT not in nodes.status(world.lab.folder).nodes, "it is no node now")
    world.restart(world.agent, "agent")
    eventually(lambda: world.run("keeps-running")[1] > runs, "it was started again")
    world.lab.ready("default", "keeps-running")
    assert world.run("keeps-running")[0] != before


def test_a_machine_that_is_taken_out_is_no_node_and_runs_nothing(world: World) -> None:
    gpu_operator.stop(world.folder / "gpu_operator")
    world.rke2.delete(world.agent)
    assert [line.split()[0] for line in names(world)] == [SERVER]
    assert not world.agent.path("/var/lib/rancher/rke2").exists()
    eventually(
        lambda: "containerd" not in world.inside(world.agent, "ps", "-ef"), "it runs nothing"
    )
    assert world.is_ready(world.server)
    config = world.rke2.inputs(world.agent)["config"]
    world.rke2.create(world.agent, config=config, join_timeout_seconds=STEP_SECONDS)
    assert world.is_ready(world.agent)


def install_operator(world: World, fault: faults.Fault) -> None:
    """The lab's chart, and the process that plays it, with a fault from the start."""
    objects = KubernetesObjects((world.folder / "kubeconfig").read_text())
    world.lab.kubectl("create", "namespace", "gpu-operator")
    enforce = "pod-security.kubernetes.io/enforce=privileged"
    world.lab.kubectl("label", "namespace", "gpu-operator", enforce)
    documents = crd_documents(str(CHART), version="", repository="", sha256="")
    wanted = crds.definitions(documents, with_nfd=True)
    crds.apply(wanted, objects, Clock(), Reporter())
    gpu_operator.start(
        world.folder / "gpu_operator",
        gpu_operator.OperatorSpec(
            control_plane=world.folder,
            hosts=world.folder / "hosts",
            kubelets=world.folder / "kubelet",
            nodes=(AGENT,),
        ),
    )
    faults.inject(world.folder / "gpu_operator", fault)
    values = world.folder / "values.yaml"
    chosen = {
        "toolkit": {"env": [SOCKET]},
        "driver": {"enabled": False},
        "mig": {"strategy": "mixed"},
    }
    values.write_text(yaml.safe_dump(chosen))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HELM_")}
    subprocess.run(
        [
            *(str(world.programs["helm"]), "install", "gpu-operator", str(CHART), "--skip-crds"),
            *("-f", str(values), "-n", "gpu-operator"),
        ],
        env=environment | {"KUBECONFIG": str(world.folder / "kubeconfig")},
        capture_output=True,
        check=True,
    )


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
    found = patient_get(world.lab.cluster, path)
    pods: list[dict[str, Any]] = found["items"]
    return pods


def logs(world: World, pod: str) -> str:
    return world.lab.logs("default", pod)


def names(world: World) -> list[str]:
    """Lines of the cluster's nodes."""
    deadline = time.monotonic() + STEP_SECONDS
    while True:
        lines = world.lab.kubectl("get", "nodes", "--no-headers").splitlines()
        if len(lines) == 1 or time.monotonic() > deadline:
            return lines
        time.sleep(0.5)
