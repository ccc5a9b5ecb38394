"""A proof on a real API server: Jobs that are placed, run by the lab's kubelets, read and removed."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from gpuclusters.core.converge import Clock
from gpuclusters.core.errors import BusyError, CommandFailedError
from gpuclusters.core.ports import ObjectKind
from gpuclusters.gpu_operator.objects import CLUSTER_POLICY
from gpuclusters.kube.objects import PatientObjects
from gpuclusters.proof import manifests
from gpuclusters.proof import run as proof_run
from gpuclusters.proof.checks import proven
from gpuclusters.proof.manifests import CONFIG_MAP, JOB, texts
from gpuclusters.proof.model import ProofInputs
from gpuclusters.tenancy.objects import NAMESPACE, POD
from lab.control_plane.kube import KubeApi
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.kubelet import playing
from tests.fixtures.waiting import Waiting, eventually

pytestmark = pytest.mark.lab


class Reconciled(PatientObjects):
    """The cluster of the run, which has no GPU operator: only that is made up here."""

    def list(
        self, kind: ObjectKind, namespace: str = "", *, labels: str = ""
    ) -> Sequence[dict[str, Any]]:
        if kind == CLUSTER_POLICY:
            condition = {"type": "Ready", "status": "True", "reason": "Reconciled"}
            return [{"metadata": {"name": "p"}, "status": {"conditions": [condition]}}]
        return super().list(kind, namespace, labels=labels)


@dataclass
class World:
    cluster: Reconciled
    nodes: tuple[str, ...]
    namespace: str
    operator: str

    def inputs(self, **changes: Any) -> ProofInputs:
        given: dict[str, Any] = {
            "cluster": "lab",
            "kubeconfig": "unused",
            "level": "L1",
            "namespace": self.namespace,
            "operator_namespace": self.operator,
            "simulated": True,
            "nodes": [{"name": n, "resources": {"nvidia.com/gpu": 2}} for n in self.nodes],
            "matmul": {
                "image": "registry.example.com/proof@sha256:" + "0" * 64,
                "cuda_major": 12,
                "timeout_seconds": 250,
            },
        }
        return ProofInputs.model_validate(given | changes, by_name=True)

    def run(self, **changes: Any) -> proof_run.ProofResult:
        wanted = self.inputs(**changes)
        return proof_run.run(wanted, self.cluster, Quick(), Waiting(), texts())

    def left(self) -> list[str]:
        kinds = (JOB, CONFIG_MAP, POD)
        names = [
            o["metadata"]["name"] for kind in kinds for o in self.cluster.list(kind, self.namespace)
        ]
        return [name for name in names if name != "kube-root-ca.crt"]


class Quick(Clock):
    """Looks more often: nothing here takes its time."""

    def sleep(self, seconds: float) -> None:
        super().sleep(min(seconds, 0.2))


@pytest.fixture
def world(kube_api: KubeCluster, prepared: tuple[tuple[str, ...], str]) -> World:
    """A proof of its own on the nodes of all."""
    nodes, operator = prepared
    cluster = Reconciled(kube_api.kubeconfig.read_text())
    return World(cluster, nodes, f"proof-{secrets.token_hex(3)}", operator)


@pytest.fixture(scope="module")
def prepared(kube_api: KubeCluster) -> Iterator[tuple[tuple[str, ...], str]]:
    """Two nodes that offer two GPUs each, as an operator would have made them, and its namespace."""
    operator = f"op-{secrets.token_hex(3)}"
    with playing(kube_api) as make:
        nodes = make("gpu-a", "gpu-b").names
        prepare(kube_api, nodes, operator)
        yield nodes, operator
        with kube_api.api() as api:
            api.delete(f"/api/v1/namespaces/{operator}")


def prepare(kube_api: KubeCluster, nodes: Sequence[str], operator: str) -> None:
    with kube_api.api() as api:
        api.request("POST", "/api/v1/namespaces", {"metadata": {"name": operator}})
        merge = "application/merge-patch+json"
        for node in nodes:
            body: dict[str, Any] = {"metadata": {"labels": {"nvidia.com/gpu.present": "true"}}}
            api.request("PATCH", f"/api/v1/nodes/{node}", body, content_type=merge)
            amount = {"nvidia.com/gpu": "2"}
            api.request(
                "PATCH",
                f"/api/v1/nodes/{node}/status",
                {"status": {"capacity": amount, "allocatable": amount}},
                content_type=merge,
            )
            pods = f"/api/v1/namespaces/{operator}/pods"
            account = f"/api/v1/namespaces/{operator}/serviceaccounts/default"
            eventually(lambda account=account: api.request("GET", account)[0] == 200)
            validator = {
                "metadata": {"name": f"v-{node}", "labels": {"app": "nvidia-operator-validator"}},
                "spec": {"nodeName": node, "containers": [{"name": "v", "image": "v"}]},
            }
            assert api.request("POST", pods, validator)[0] == 201
            eventually(partial(ready, api, f"{pods}/v-{node}"))


def ready(api: KubeApi, path: str) -> bool:
    conditions = ((api.get(path) or {}).get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def test_every_gpu_of_every_node_calculates_and_nothing_stays_behind(world: World) -> None:
    result = world.run()
    assert proven(result.checks), result.checks
    assert [check.subject for check in result.checks] == [
        "cluster",
        *(name for node in world.nodes for name in (node, f"{node} cpu-0", f"{node} cpu-1")),
    ]
    assert "on this machine's processor" in result.remarks[0]
    assert set(result.observed) == set(world.nodes)
    eventually(lambda: world.cluster.get(NAMESPACE, world.namespace) is None)
    assert world.left() == []


def test_what_a_killed_run_left_is_cleared_away_and_a_namespace_of_ones_own_is_kept(
    world: World, kube_api: KubeCluster
) -> None:
    with kube_api.api() as api:
        api.request("POST", "/api/v1/namespaces", {"metadata": {"name": world.namespace}})
        jobs = f"/apis/batch/v1/namespaces/{world.namespace}/jobs"
        inputs = world.inputs()
        body = manifests.job(
            inputs,
            inputs.tests[0],
            inputs.nodes[0],
            config_map="gone",
            image="any@sha256:" + "1" * 64,
        )
        assert api.request("POST", jobs, body)[0] == 201
        with pytest.raises(BusyError):
            world.cluster.create(JOB, body)
        assert proven(world.run().checks)
        assert world.cluster.get(NAMESPACE, world.namespace) is not None
        assert world.left() == []
        api.delete(f"/api/v1/namespaces/{world.namespace}")


def test_a_service_is_asked_through_the_api_server(world: World) -> None:
    with pytest.raises(CommandFailedError, match="ask the service kube-system/nobody"):
        world.cluster.ask("kube-system", "nobody", 9090, "api/v1/query", {"query": "up"})
