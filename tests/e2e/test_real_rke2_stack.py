"""The rke2 stack on machines that are real nodes: joined, restarted, broken, taken out and back.

A server, an agent with GPUs and a plain one: what needs no GPU is done to that. The tests follow one another.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from lab import nodes
from lab.gpu_operator import faults, toolkit
from lab.hosts.rke2.rke2_release import CONFIG_FOLDER
from lab.nodes.rke2 import CONFIGURATION, CONTAINERD
from tests.e2e.conftest import Checkout, checkout
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.waiting import eventually
from tests.lab.nodes.real_lab import REAL_NODE, RealLab

pytestmark = REAL_NODE

SERVER, AGENT, PLAIN = "cp-01", "gpu-01", "worker-01"
GPUS = {"name": "gpus", "nodes": [AGENT], "gpu": {"product": "a100-sxm4-80gb", "count": 8}}
OTHERS = {
    "name": "others",
    "nodes": [PLAIN],
    "labels": {"example.com/rack": "7"},
    "taints": ["example.com/kept=yes:PreferNoSchedule"],
}
GPU, SLICE = "nvidia.com/gpu", "nvidia.com/mig-4g.40gb"
OFFERED = {SERVER: {}, AGENT: {GPU: "8"}, PLAIN: {}}
DIVIDED = {SERVER: {}, AGENT: {SLICE: "8"}}
PLUGIN, DISCOVERY = "nvidia-device-plugin-daemonset", "gpu-feature-discovery"
OPERANDS = "--namespace=gpu-operator"
PODS = "/api/v1/namespaces/gpu-operator/pods"
WAITS = ".status.containerStatuses[0].state.waiting.reason"
SECOND = """\
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.second]
  runtime_type = 'io.containerd.runc.v2'
"""
STEP_SECONDS = 450


@dataclass(frozen=True)
class World:
    dev: Checkout
    lab: RealLab

    def handlers(self, node: str, configuration: str = CONFIGURATION) -> dict[str, str]:
        """Programs of runtimes, by handler, as containerd of a node reads them from a configuration."""
        read = tomllib.loads(self.lab.containerd(node, configuration))["plugins"]
        found = read["io.containerd.cri.v1.runtime"]["containerd"]["runtimes"]
        return {
            name: str(one.get("options", {}).get("BinaryName", "")) for name, one in found.items()
        }

    def as_root(self, command: str, given: str = "") -> None:
        """On the machine without GPUs."""
        done = self.dev.host(PLAIN).sudo(command, stdin=given, timeout=STEP_SECONDS)
        assert done.returncode == 0, done.stderr

    def pod(self, name: str, node: str = PLAIN, script: str = "sleep 1000", **spec: Any) -> None:
        selector = {"kubernetes.io/hostname": node}
        self.lab.pod("default", name, script, nodeSelector=selector, **spec)
        self.lab.ready("default", name)

    def looked(self, name: str, resource: str, script: str) -> str:
        """What a container with one of these says of what it sees."""
        limits = {"resources": {"limits": {resource: "1"}}}
        script = f"{script}; echo looked; sleep 1000"
        self.pod(name, AGENT, script, container=limits, runtimeClassName="nvidia")
        eventually(lambda: self.lab.logs("default", name).endswith("looked\n"), "it looked")
        said = self.lab.logs("default", name)
        self.lab.kubectl("delete", "pod", name, "--now")
        return said

    def run(self, name: str) -> tuple[str, int]:
        """Which run of its container a pod has, and how many were before."""
        status = self.lab.found("default", name)["status"]["containerStatuses"][0]
        return status.get("containerID", ""), status["restartCount"]

    def comes(self, what: str, path: str, value: str) -> None:
        """Wait for this of objects by a watch: it takes its time."""
        condition = f"--for=jsonpath={path}={value}"
        self.lab.kubectl("wait", *what.split(), OPERANDS, condition, f"--timeout={STEP_SECONDS}s")

    def changed_to(
        self, *pools: dict[str, Any], proof: dict[str, Any], options: Sequence[str] = ()
    ) -> dict[str, int]:
        """How many resources changed, by what became of them."""
        self.dev.configure("rke2", pools=list(pools), proof=proof)
        done = self.dev.engine("up", "--yes", "--skip-preview", *options)
        assert done.returncode == 0, done.stdout + done.stderr
        found = re.findall(r"^ +\S (\d+) (\w+)$", done.stdout, re.MULTILINE)
        return {what: int(number) for number, what in found}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with checkout(tmp_path_factory.mktemp("rke2r"), "rke2", nodes="real") as dev:
        # Of what is called `latest` the kubelet asks the registry each time.
        values = {"gfd": {"version": "latest"}, "dcgmExporter": {"enabled": False}}
        dev.configure(
            "rke2",
            pools=[GPUS, OTHERS],
            operator={"version": "v26.7.0", "values": values},
            sharing={"kind": "mig", "strategy": "mixed"},
        )
        dev.up()
        cluster = KubeCluster(dev.lab, dev.lab / "kubeconfig", "")
        yield World(dev, RealLab(dev.lab / "nodes", cluster, (SERVER, AGENT, PLAIN)))


def test_bare_machines_become_real_nodes_whose_gpus_are_proven_in_containers(world: World) -> None:
    dev = world.dev
    assert dev.gpus() == OFFERED
    found = dev.nodes_of_api()
    for node in found.values():
        runtime = node["status"]["nodeInfo"]["containerRuntimeVersion"]
        assert runtime.startswith("containerd://2.")
    labels = {name: node["metadata"]["labels"] for name, node in found.items()}
    assert labels[SERVER]["node-role.kubernetes.io/control-plane"] == "true"
    assert labels[PLAIN]["example.com/rack"] == "7"
    taint = {"key": "example.com/kept", "value": "yes", "effect": "PreferNoSchedule"}
    assert taint in found[PLAIN]["spec"]["taints"]
    # The kubectl that RKE2 brings asks the same API server, and tells the release of the host.
    kubectl = "/var/lib/rancher/rke2/bin/kubectl --kubeconfig /etc/rancher/rke2/rke2.yaml"
    said = json.loads(dev.on_host(SERVER, f"sudo -n {kubectl} get node {PLAIN} --output json"))
    assert said["status"]["nodeInfo"]["kubeletVersion"] == "v1.35.7+rke2r1"
    assert said["metadata"]["uid"] == found[PLAIN]["metadata"]["uid"]
    # The operands are containers.
    assert all(
        status["containerID"].startswith("containerd://")
        for pod in dev.objects(PODS)
        for status in pod["status"]["containerStatuses"]
    )


def test_the_toolkit_is_found_at_the_next_start_of_rke2(world: World) -> None:
    # What the real `nvidia-ctk` wrote is a configuration for containerd, and none of RKE2's.
    assert world.handlers(AGENT, toolkit.MAIN)["nvidia"] == toolkit.RUNTIME
    assert world.lab.got("/apis/node.k8s.io/v1/runtimeclasses/nvidia")["handler"] == "nvidia"
    assert world.handlers(AGENT)["nvidia"] == toolkit.RUNTIME
    assert "nvidia" not in world.handlers(PLAIN)


def test_a_start_writes_containerds_configuration_anew_and_keeps_drop_ins_and_containers(
    world: World,
) -> None:
    world.pod("keeps-running")
    before = world.run("keeps-running")
    world.as_root(f"printf 'version = 3' >{CONFIGURATION}")
    world.as_root(f"cat >{CONTAINERD}/config-v3.toml.d/60-test.toml", SECOND)
    world.as_root(f"cat >{CONFIG_FOLDER}/60-test.yaml", "kubelet-arg: [max-pods=77]")
    world.as_root("systemctl restart rke2-agent")
    eventually(lambda: "second" in world.handlers(PLAIN), "the drop-in counts")
    written = world.dev.host(PLAIN).path(CONFIGURATION).read_text()
    assert written.startswith("# File generated by rke2.")
    world.comes(f"node/{PLAIN}", "{.status.capacity.pods}", "77")
    world.pod("after-restart")
    assert world.run("keeps-running") == before


def test_a_pod_sees_exactly_its_gpu(world: World) -> None:
    gpus = [f"/dev/nvidia{number}" for number in range(8)]
    ask = f"for d in {' '.join(gpus)}; do (: < $d) 2>&1; done; ls /dev/nvidia*"
    seen = world.looked("one-gpu", GPU, ask)
    (given,) = [line for line in seen.splitlines() if line in gpus]
    wanted = {given, "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"}
    assert {line for line in seen.splitlines() if line.startswith("/dev/")} == wanted
    # No driver answers, but the container may ask; of the others it knows nothing.
    assert seen.count("No such device or address") == 1
    assert seen.count("no such file") == 7


def test_what_a_fault_says_the_kubelet_tells(world: World) -> None:
    book = world.dev.lab / "gpu_operator"
    faults.inject(book, faults.ImagePull(operand=DISCOVERY))
    world.lab.kubectl("delete", "pod", OPERANDS, f"--selector=app={DISCOVERY}")
    world.comes(f"pod --selector=app={DISCOVERY}", f"{{{WAITS}}}", "ErrImagePull")
    faults.inject(book, faults.NodeFails(node=AGENT))
    world.comes(f"pod --selector=app={PLUGIN}", f"{{{WAITS}}}", "CrashLoopBackOff")
    world.comes(f"node/{AGENT}", "{.status.allocatable.nvidia\\.com/gpu}", "0")
    (pod,) = world.lab.got(f"{PODS}?labelSelector=app%3D{PLUGIN}")["items"]
    (status,) = pod["status"]["containerStatuses"]
    assert "too many open files" in status["lastState"]["terminated"]["message"]
    faults.clear(book)
    # New ones do not wait until a kubelet tries again.
    both = f"--selector=app in ({DISCOVERY}, {PLUGIN})"
    world.lab.kubectl("delete", "pod", OPERANDS, both)
    world.comes("clusterpolicy/cluster-policy", "{.status.state}", "ready")
    eventually(lambda: world.dev.gpus() == OFFERED, "it is offered again")


def test_killall_ends_containers_and_a_start_brings_them_back(world: World) -> None:
    before, runs = world.run("keeps-running")
    world.as_root("/usr/local/bin/rke2-killall.sh")
    eventually(lambda: "sleep 1000" not in world.lab.in_node(PLAIN, "ps", "-ef"), "all have ended")
    # Restarted before, the service would find its programs stopped, and nobody to start them.
    eventually(lambda: PLAIN not in nodes.status(world.lab.folder).nodes, "it is no node now")
    world.as_root("systemctl restart rke2-agent")
    eventually(lambda: world.run("keeps-running")[1] > runs, "it was started again")
    world.lab.ready("default", "keeps-running")
    assert world.run("keeps-running")[0] != before


def test_a_machine_is_taken_out_while_gpus_are_divided_and_comes_back(world: World) -> None:
    divided = {**GPUS, "mig": "all-4g.40gb"}
    with world.dev.configuration() as config:
        calculates = config["gpu-clusters:rke2"]["proof"]
    # That slices calculate is shown by `verify`, and once is enough.
    offers = {"level": "L0"}
    assert world.changed_to(divided, proof=offers) == {"updated": 3, "deleted": 1}
    assert world.dev.gpus() == DIVIDED
    assert not world.dev.host(PLAIN).path("/var/lib/rancher/rke2").exists()
    eventually(lambda: "containerd" not in world.lab.in_node(PLAIN, "ps", "-ef"), "it runs nothing")
    seen = world.looked("slice", SLICE, "ls -d /dev/nvidia[0-9] /dev/nvidia-caps/*")
    assert seen.count("caps/nvidia-cap") == 2
    assert seen.count("/dev/nvidia") == 3

    # With a look at everything: nothing else is to be changed.
    changed = world.changed_to(divided, OTHERS, proof=offers, options=["--refresh"])
    assert changed == {"created": 1}
    assert world.lab.is_ready(PLAIN)
    assert world.dev.gpus() == {**DIVIDED, PLAIN: {}}
    world.dev.configure("rke2", proof=calculates)
    done = world.dev.run("verify")
    assert done.returncode == 0, done.stdout + done.stderr
