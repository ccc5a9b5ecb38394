"""A proof on a real API server: Jobs that are placed, run by the lab's kubelets, read and removed."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

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
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.kubelet import playing
from tests.fixtures.waiting import Quick, Waiting

pytestmark = pytest.mark.lab
OPERATOR = "made-up-operator"


class Reconciled(PatientObjects):
    """The cluster of the run, which has no GPU operator: only that is made up here."""

    nodes: tuple[str, ...] = ()

    def list(
        self, kind: ObjectKind, namespace: str = "", *, labels: str = ""
    ) -> Sequence[dict[str, Any]]:
        ready = {"type": "Ready", "status": "True", "reason": "Reconciled"}
        status = {"conditions": [ready]}
        if kind == CLUSTER_POLICY:
            return [{"metadata": {"name": "p"}, "status": status}]
        if (kind, namespace) == (POD, OPERATOR):
            metadata = {"name": "v", "labels": {"app": "nvidia-operator-validator"}}
            return [
                {"metadata": metadata, "spec": {"nodeName": node}, "status": status}
                for node in self.nodes
            ]
        return super().list(kind, namespace, labels=labels)

    def left(self, namespace: str) -> Sequence[str]:
        """Of a proof."""
        found = [one for kind in (JOB, CONFIG_MAP, POD) for one in self.list(kind, namespace)]
        names = [one["metadata"]["name"] for one in found]
        return [name for name in names if name != "kube-root-ca.crt"]


@pytest.fixture
def cluster(kube_api: KubeCluster) -> Iterator[Reconciled]:
    """Two nodes that offer two GPUs each, as an operator would have made them."""
    made = Reconciled(kube_api.kubeconfig.read_text())
    with playing(kube_api) as make, kube_api.api() as api:
        made.nodes = make("gpu-a", "gpu-b", labels={"nvidia.com/gpu.present": "true"}).names
        amount = {"nvidia.com/gpu": "2"}
        for name in made.nodes:
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
            node["status"] = {"capacity": amount, "allocatable": amount}
            api.apply(node, subresource="/status")
        yield made


def test_every_gpu_of_every_node_calculates_and_nothing_stays_behind(
    kube_api: KubeCluster, cluster: Reconciled
) -> None:
    namespace = f"proof-{secrets.token_hex(3)}"
    image = {"image": "registry.example.com/proof@sha256:" + "0" * 64, "cuda_major": 12}
    inputs = ProofInputs.model_validate(
        {
            "cluster": "lab",
            "kubeconfig": "unused",
            "level": "L1",
            "namespace": namespace,
            "operator_namespace": OPERATOR,
            "simulated": True,
            "nodes": [{"name": n, "resources": {"nvidia.com/gpu": 2}} for n in cluster.nodes],
            "matmul": {**image, "timeout_seconds": 250},
        },
        by_name=True,
    )

    # What a killed run left is cleared away, and a namespace of one's own is kept.
    with kube_api.api() as api:
        api.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        other = "any@sha256:" + "1" * 64
        job = manifests.job(inputs, inputs.tests[0], inputs.nodes[0], config_map="c", image=other)
        cluster.create(JOB, job)
        with pytest.raises(BusyError):
            cluster.create(JOB, job)
        result = proof_run.run(inputs, cluster, Quick(), Waiting(), texts())
        assert cluster.get(NAMESPACE, namespace) is not None
        assert cluster.left(namespace) == []
        api.delete(f"/api/v1/namespaces/{namespace}")
    assert proven(result.checks), result.checks
    assert [check.subject for check in result.checks] == [
        "cluster",
        *(name for node in cluster.nodes for name in (node, f"{node} cpu-0", f"{node} cpu-1")),
    ]
    assert "on this machine's processor" in result.remarks[0]
    assert set(result.observed) == set(cluster.nodes)
    with pytest.raises(CommandFailedError, match="ask the service kube-system/nobody"):
        cluster.ask("kube-system", "nobody", 9090, "api/v1/query", {"query": "up"})
