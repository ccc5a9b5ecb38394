"""The ladder's upper rungs in the lab: a real API server, real processes, and a fault for every rung.

One cluster of two rootless nodes for the whole file; each test leaves it without faults.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuclusters.compat.usernetes_versions import version_set
from gpuclusters.core.finding import Refused
from gpuclusters.core.ports import ObjectKind
from gpuclusters.gpu_operator.objects import DAEMON_SET
from gpuclusters.gpu_operator.readiness import wait
from gpuclusters.kube.objects import PatientObjects
from gpuclusters.proof import ladder_run
from gpuclusters.proof.checks import Outcome, ProofResult
from gpuclusters.proof.manifests import LADDER_PROGRAMS, texts
from gpuclusters.proof.model import WHOLE, LadderInputs
from gpuclusters.proof.nodes import PluginGateInputs
from gpuclusters.tenancy.objects import NODE, POD
from gpuclusters.usernetes import device_plugin as device_plugin_manifest
from lab.hosts import NodeState
from lab.usernetes.faults import (
    Fault,
    GpuLost,
    NamesByIndex,
    NetworkClosed,
    RuntimeNotDefault,
)
from lab.usernetes.server import inside, tell
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.kubelet import KubeletStandIn, playing
from tests.fixtures.waiting import Quick, Waiting, eventually

pytestmark = pytest.mark.lab
GPUS = 2
TRAINING = f"registry.example.com/train@sha256:{'a' * 64}"
STRATEGIC = "application/strategic-merge-patch+json"


class Own(PatientObjects):
    """The cluster of the run without the nodes of other tests."""

    nodes: tuple[str, ...] = ()

    def list(
        self, kind: ObjectKind, namespace: str = "", *, labels: str = ""
    ) -> Sequence[dict[str, Any]]:
        found = super().list(kind, namespace, labels=labels)
        return [one for one in found if kind != NODE or one["metadata"]["name"] in self.nodes]


@dataclass
class World:
    cluster: Own
    kubelets: Path
    namespace: str

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.cluster.nodes

    def tell(self, *faults: Fault) -> None:
        """What the stand-in tells the kubelets of both nodes."""
        told = {}
        for number, name in enumerate(self.nodes):
            gpus = tuple(f"GPU-{number}000000{n}-0000-4000-8000-000000000000" for n in range(GPUS))
            state = NodeState(name, True, gpus, "nvidia", True, "worker", True)
            told[name] = inside(state, faults)
        tell(self.kubelets, told)

    def restart_plugins(self) -> None:
        """As the unit inside the node does with containerd: its pods start anew."""
        for pod in self.plugins():
            self.cluster.delete(POD, pod["metadata"]["name"], "kube-system")

    def plugins(self) -> list[dict[str, Any]]:
        wanted = device_plugin_manifest.PLUGIN_LABELS.items()
        return [
            pod
            for pod in self.cluster.list(POD, "kube-system")
            if wanted <= (pod["metadata"].get("labels") or {}).items()
            and pod["spec"].get("nodeName") in self.nodes
        ]

    def offered(self, node: str) -> int:
        body = self.cluster.get(NODE, node) or {}
        return int(body["status"]["allocatable"].get(WHOLE, "0"))

    def inputs(self, rung: int, **changes: Any) -> LadderInputs:
        given: dict[str, Any] = {
            "cluster": "lab",
            "kubeconfig": "unused",
            "rung": rung,
            "nodes": [{"name": name, "gpus": GPUS} for name in self.nodes],
            "namespace": self.namespace,
            "rung_seconds": 300,
            "training": {"image": TRAINING, "accuracy_floor_percent": 80, "timeout_seconds": 300},
            "settle_seconds": 100,
            "simulated": True,
        }
        return LadderInputs.model_validate(given | changes, by_name=True)

    def climb(self, rung: int = 9, **changes: Any) -> ProofResult:
        found = texts(LADDER_PROGRAMS)
        return ladder_run.run(self.inputs(rung, **changes), self.cluster, Quick(), Waiting(), found)

    def gate(self, seconds: int = 150) -> dict[str, Any]:
        wanted = PluginGateInputs(
            cluster="lab",
            kubeconfig="unused",
            expected=dict.fromkeys(self.nodes, GPUS),
            timeout_seconds=seconds,
        )
        return dict(wait(wanted, self.cluster, Quick(), Waiting()))


@pytest.fixture(scope="module")
def world(kube_api: KubeCluster) -> Iterator[World]:
    token = secrets.token_hex(3)
    mark = {"gpu-clusters.dev/test": token}
    cluster = Own(kube_api.kubeconfig.read_text())

    def tell(kubelet: KubeletStandIn) -> None:
        cluster.nodes = kubelet.names
        World(cluster, kubelet.folder, "").tell()

    body = device_plugin_manifest.device_plugin(version_set("current").device_plugin_image)
    # The cluster is shared with other tests, whose nodes are not to get a plugin.
    body["metadata"]["name"] += f"-{token}"
    body["spec"]["template"]["spec"]["nodeSelector"] = mark
    with playing(kube_api) as make:
        kubelet = make("un-a", "un-b", labels=mark, before=tell)
        with kube_api.api() as api:
            for number, name in enumerate(kubelet.names):
                address = {"type": "ExternalIP", "address": f"203.0.113.{number + 1}"}
                status = {"status": {"addresses": [address]}}
                path = f"/api/v1/nodes/{name}/status"
                assert api.request("PATCH", path, status, content_type=STRATEGIC)[0] == 200
        cluster.create(DAEMON_SET, body)
        yield World(cluster, kubelet.folder, f"ladder-{token}")
        cluster.delete(DAEMON_SET, body["metadata"]["name"], "kube-system")


@pytest.fixture(autouse=True)
def healed(world: World) -> Iterator[None]:
    yield
    world.tell()


@pytest.mark.parametrize(
    ("fault", "rung", "said"),
    [
        pytest.param(NetworkClosed, 6, "timed out", marks=pytest.mark.long),
        (GpuLost, 7, f"{WHOLE}: {GPUS - 1}, wanted {GPUS}"),
        pytest.param(
            *(NamesByIndex, 8, "no names by UUID, or those of other GPUs"), marks=pytest.mark.long
        ),
    ],
)
def test_a_climb_fails_at_the_rung_of_its_fault(
    world: World, fault: type[Any], rung: int, said: str
) -> None:
    node = world.nodes[1]
    world.gate()
    world.tell(fault(node=node))
    if fault is GpuLost:
        # The climb does not wait for a plugin to notice it.
        eventually(lambda: world.offered(node) == GPUS - 1)
    # Packets that do not come are waited for to the end; what comes is there sooner.
    patience = 20 if fault is NetworkClosed else 300
    result = world.climb(rung, settle_seconds=2, rung_seconds=patience)
    failed = [check for check in result.checks if check.outcome is Outcome.FAILED]
    assert {check.level for check in failed} == {f"R{rung}"}, failed
    assert any(said in check.said for check in failed), failed
    if rung > 6:
        assert [check.subject for check in failed] == [node]


def test_the_gate_names_node_rung_and_cause(world: World) -> None:
    node = world.nodes[0]
    world.gate()
    world.tell(RuntimeNotDefault(node=node))
    world.restart_plugins()
    text = ""

    def refused() -> bool:
        nonlocal text
        with pytest.raises(Refused) as error:
            world.gate(1)
        text = str(error.value)
        return "could not load NVML" in text

    eventually(refused)
    assert "not ready after" in text
    assert f"node {node}: {WHOLE}: 0, wanted {GPUS}" in text
    assert "nvidia is not the default runtime inside the node" in text
    world.tell()
    world.restart_plugins()
    assert world.gate()["drift"] == []
