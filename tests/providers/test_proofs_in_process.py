"""Proofs and the plugin's gate in the SDK's provider process, on an API server that has no such node."""

from typing import Any

import pytest

from gpuclusters.proof.resource import PluginGateProvider, ProofRunProvider, TrainingProofProvider
from tests.fixtures.control_plane import KubeCluster
from tests.providers.conftest import StartProvider

pytestmark = pytest.mark.lab
RUN = {
    "level": "L1",
    "nodes": [{"name": "nowhere", "resources": {"nvidia.com/gpu": 8}}],
    "matmul": {"image": "registry.example.com/proof@sha256:" + "a" * 64, "cuda_major": 12},
}
LADDER = {
    "rung": 8,
    "nodes": [{"name": "nowhere", "gpus": 4}],
    "namespace": "gpu-ladder-of-nobody",
    "settle_seconds": 1,
}


@pytest.mark.parametrize(
    ("kind", "wanted", "said"),
    [
        (
            ProofRunProvider,
            RUN,
            (
                "proof L1 does not hold",
                "L0 cluster: the operator is reconciled and every node offers its GPUs: failed",
                "node nowhere is not in the cluster",
            ),
        ),
        (
            TrainingProofProvider,
            LADDER,
            (
                "the ladder up to rung 8 does not hold",
                "R5 nowhere: the node is Ready and has its external address: failed",
                "R8 cluster: a pod with one GPU calculates on it: not-tried",
            ),
        ),
        (
            PluginGateProvider,
            {"expected": {"nowhere": 4}, "timeout_seconds": 1},
            ("not ready after 1 s", "node nowhere: it is not in the cluster"),
        ),
    ],
    ids=["proof", "ladder", "gate"],
)
def test_a_cluster_without_its_nodes_is_not_proven_and_nothing_is_made(
    kube_api: KubeCluster,
    start_provider: StartProvider,
    kind: type[Any],
    wanted: dict[str, Any],
    said: tuple[str, ...],
) -> None:
    inputs = {"cluster": "prod", "kubeconfig": kube_api.kubeconfig.read_text(), **wanted}
    asked = start_provider().of(kind, inputs)
    assert "Traceback" not in asked.refused("create", f"API server {kube_api.url}", *said)
    with kube_api.api() as api:
        for namespace in ("gpu-proof", LADDER["namespace"]):
            assert api.request("GET", f"/api/v1/namespaces/{namespace}")[0] == 404
    if kind is ProofRunProvider:
        away = "https://127.0.0.1:1"
        elsewhere = inputs["kubeconfig"].replace(kube_api.url, away)
        asked.refused("create", f"API server {away}: could not ", kubeconfig=elsewhere)
