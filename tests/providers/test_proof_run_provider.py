"""A proof in the SDK's own provider process, on a real API server that has no GPUs."""

from typing import Any

import pytest

from gpuclusters.proof.resource import ProofRunProvider
from tests.fixtures.control_plane import KubeCluster
from tests.providers.conftest import StartProvider
from tests.providers.provider_process import StepFailed

pytestmark = pytest.mark.lab
IMAGE = "registry.example.com/proof@sha256:" + "a" * 64


def inputs(cluster: KubeCluster, **changes: Any) -> dict[str, Any]:
    return {
        "cluster": "prod",
        "kubeconfig": cluster.kubeconfig.read_text(),
        "level": "L1",
        "nodes": [{"name": "nowhere", "resources": {"nvidia.com/gpu": 8}}],
        "matmul": {"image": IMAGE, "cuda_major": 12},
    } | changes


def test_a_cluster_without_its_gpus_is_not_proven_and_no_job_is_made(
    kube_api: KubeCluster, start_provider: StartProvider
) -> None:
    with pytest.raises(StepFailed) as failed:
        start_provider().create(ProofRunProvider, inputs(kube_api))
    text = str(failed.value)
    assert f"API server {kube_api.url}: proof L1 does not hold" in text
    assert "L0 cluster: the operator is reconciled and every node offers its GPUs: failed" in text
    assert "node nowhere is not in the cluster" in text
    assert "Traceback" not in text
    with kube_api.api() as api:
        assert api.request("GET", "/api/v1/namespaces/gpu-proof")[0] == 404


def test_an_api_server_that_is_away_is_named_in_one_sentence(
    kube_api: KubeCluster, start_provider: StartProvider
) -> None:
    elsewhere = kube_api.kubeconfig.read_text().replace(kube_api.url, "https://127.0.0.1:1")
    with pytest.raises(StepFailed) as failed:
        start_provider().create(ProofRunProvider, inputs(kube_api, kubeconfig=elsewhere))
    assert "API server https://127.0.0.1:1: could not " in str(failed.value)
