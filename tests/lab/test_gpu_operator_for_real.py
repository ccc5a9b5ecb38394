"""NVIDIA's own operator, built from its module, over played nodes; the lab's stand-in is held to it.

The module is of September 2025 (25.3.4 with what came after), the newest that there is as a Go module. Its
API server allows privileged pods, which those of labs do not.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab.control_plane import lifecycle
from lab.control_plane.commands import API_SERVER
from lab.gpu_operator import labelling, operands, policy
from lab.gpu_operator.view import Memory, View
from lab.hosts import GpuState
from lab.tools.go_program import module_folder
from tests.fixtures import go_programs
from tests.fixtures.control_plane import KubeCluster, start_cluster, stop_cluster
from tests.fixtures.waiting import eventually

pytestmark = [
    pytest.mark.lab,
    pytest.mark.long,
    pytest.mark.timeout(go_programs.BUILD_SECONDS + 300),
    pytest.mark.skipif(
        os.geteuid() != 0, reason="it looks below /opt, so it runs in a root of its own"
    ),
]

SOURCE = Path(__file__).resolve().parents[1] / "gpu_operator"
MODULE = "github.com/NVIDIA/gpu-operator"
NAMESPACE = "gpu-operator"
NODE = "gpu-01"
SERVERS = ("metrics", "health-probe")
DISCOVERED = {
    "feature.node.kubernetes.io/pci-10de.present": "true",
    "feature.node.kubernetes.io/system-os_release.ID": "ubuntu",
    "feature.node.kubernetes.io/system-os_release.VERSION_ID": "24.04",
    "feature.node.kubernetes.io/kernel-version.full": "6.8.0-60-generic",
}
NOT_PLAYED = {"nvidia-device-plugin-mps-control-daemon"}
"""MPS: the stand-in offers its replicas, and no daemon."""
V100 = GpuState("Tesla V100-SXM2-16GB", 8, 8, None, None, None, nouveau=False)


@dataclass(frozen=True, slots=True)
class World:
    cluster: KubeCluster
    chart: Path

    def install(self, **values: str) -> None:
        """With these values, and again with others."""
        settings = [f"--set={key.replace('_', '.')}={value}" for key, value in values.items()]
        how = ("--namespace", NAMESPACE, "--create-namespace", "--no-hooks", "--server-side=false")
        self.cluster.run(
            "helm", "upgrade", "--install", "gpu-operator", self.chart, *how, *settings
        )

    def get(self, path: str) -> dict[str, Any]:
        with self.cluster.api() as api:
            return api.get(path)

    def policy(self) -> dict[str, Any]:
        (found,) = self.get("/apis/nvidia.com/v1/clusterpolicies")["items"]
        return found

    def is_reconciled(self) -> None:
        def reasons() -> list[str]:
            conditions = self.policy().get("status", {}).get("conditions", ())
            return [c["reason"] for c in conditions if c["status"] == "True"]

        eventually(lambda: reasons() == ["Reconciled"], what="all operands are ready", seconds=90)

    def daemon_sets(self) -> dict[str, dict[str, Any]]:
        """Those of operands."""
        found = self.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets")["items"]
        return {one["metadata"]["name"]: one for one in found if "app" in one["metadata"]["labels"]}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, tools_at_hand: None) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("operator")
    sources = module_folder(SOURCE, MODULE, print)
    program = go_programs.built("gpu-operator", SOURCE, f"{MODULE}/cmd/gpu-operator")
    root = folder / "root"
    shutil.copytree(sources / "assets", root / "opt" / "gpu-operator")
    shutil.copytree(sources / "manifests", root / "opt" / "gpu-operator" / "manifests")
    shutil.copy(program, root / "gpu-operator")
    (root / "host-etc").mkdir()
    (root / "host-etc" / "os-release").write_text('ID=ubuntu\nVERSION_ID="24.04"\n')
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        patch.setattr(lifecycle, "command_lines", privileged)
        stack.callback(stop_cluster, folder / "lab")
        cluster = start_cluster(folder / "lab", NODE)
        metadata = {"name": NODE, "labels": DISCOVERED}
        with cluster.api() as api:
            api.apply({"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        shutil.copy(cluster.kubeconfig, root / "kubeconfig")
        made = World(cluster, sources / "deployments" / "gpu-operator")
        made.install()
        stack.enter_context(operating(root, folder / "operator.log"))
        yield made


def privileged(*given: Any) -> dict[str, list[str]]:
    lines = COMMAND_LINES(*given)
    lines[API_SERVER].append("--allow-privileged=true")
    return lines


COMMAND_LINES = lifecycle.command_lines


@contextlib.contextmanager
def operating(root: Path, log: Path) -> Iterator[None]:
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["chroot", root, "/gpu-operator", *(f"--{of}-bind-address=0" for of in SERVERS)],
            env={
                "PATH": os.environ["PATH"],
                "HOME": "/",
                "KUBECONFIG": "/kubeconfig",
                "OPERATOR_NAMESPACE": NAMESPACE,
                "DRIVER_MANAGER_IMAGE": "example.com/k8s-driver-manager:1",
            },
            stdout=out,
            stderr=out,
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


def shape(daemon_set: Mapping[str, Any]) -> dict[str, Any]:
    """What the product and its operators read of an operand's DaemonSet."""
    spec = daemon_set["spec"]
    pod = spec["template"]["spec"]
    return {
        "app": daemon_set["metadata"]["labels"]["app"],
        "chosen": spec["selector"]["matchLabels"],
        "owners": [owner["kind"] for owner in daemon_set["metadata"]["ownerReferences"]],
        "update": spec["updateStrategy"]["type"],
        "nodes": pod["nodeSelector"],
        "first": [one["name"] for one in pod["initContainers"]],
        "container": pod["containers"][0]["name"],
        "priority": pod["priorityClassName"],
    }


@pytest.mark.parametrize("driver", ["true", "false"])
def test_the_stand_in_makes_says_and_labels_what_the_operator_does(
    world: World, driver: str
) -> None:
    world.install(driver_enabled=driver)
    eventually(
        lambda: ("nvidia-driver-daemonset" in world.daemon_sets()) == (driver == "true"),
        what="the operator has read the policy",
        seconds=90,
    )
    world.is_reconciled()
    read = world.policy()
    played = {one.name: operands.daemon_set(one, read, NAMESPACE) for one in operands.wanted(read)}
    real = {name: one for name, one in world.daemon_sets().items() if name not in NOT_PLAYED}
    assert {name: shape(one) for name, one in real.items()} == {
        name: shape(one) for name, one in played.items()
    }

    def said(status: Mapping[str, Any]) -> dict[str, Any]:
        told = {c["type"]: (c["status"], c["reason"], c["message"]) for c in status["conditions"]}
        return {"state": status["state"], "namespace": status["namespace"], **told}

    status = policy.status(read, NAMESPACE, has_nfd_labels=True, has_gpu_nodes=True, not_ready=())
    assert said(read["status"]) == said(status)

    node = world.get(f"/api/v1/nodes/{NODE}")
    view = View(
        namespace=NAMESPACE,
        policy=read,
        nodes={NODE: node},
        machines={NODE: V100},
        pods=(),
        configs={},
        faults=(),
        memory=Memory(Path("none")),
    )
    labels = node["metadata"]["labels"].items()
    sent = {key: value for key, value in labels if key.startswith("nvidia.com/gpu.")}
    # An operand that only tells metrics of the others, and that no chart of ours turns on.
    sent.pop("nvidia.com/gpu.deploy.node-status-exporter")
    assert labelling.deployed(view, NODE) == sent
