"""The ladder and the plugin's gate in the SDK's provider process, on an API server without these nodes."""

from typing import Any

import pytest

from gpuclusters.proof.resource import PluginGateProvider, TrainingProofProvider
from tests.fixtures.control_plane import KubeCluster
from tests.providers.conftest import StartProvider
from tests.providers.provider_process import StepFailed

pytestmark = pytest.mark.lab


def ladder(cluster: KubeCluster, **changes: Any) -> dict[str, Any]:
    return {
        "cluster": "v100",
        "kubeconfig": cluster.kubeconfig.read_text(),
        "rung": 8,
        "nodes": [{"name": "nowhere", "gpus": 4}],
        "namespace": "gpu-ladder-of-nobody",
        "settle_seconds": 1,
    } | changes


def test_a_cluster_without_its_nodes_is_not_proven_and_nothing_is_made(
    kube_api: KubeCluster, start_provider: StartProvider
) -> None:
    with pytest.raises(StepFailed) as failed:
        start_provider().create(TrainingProofProvider, ladder(kube_api))
    text = str(failed.value)
    assert f"API server {kube_api.url}: the ladder up to rung 8 does not hold" in text
    assert "R5 nowhere: the node is Ready and has its external address: failed" in text
    assert "R8 cluster: a pod with one GPU calculates on it: not-tried" in text
    assert "Traceback" not in text
    with kube_api.api() as api:
        assert api.request("GET", "/api/v1/namespaces/gpu-ladder-of-nobody")[0] == 404


def test_the_gate_names_the_node_that_is_missing(
    kube_api: KubeCluster, start_provider: StartProvider
) -> None:
    inputs = ladder(kube_api)
    wanted = {
        "cluster": "v100",
        "kubeconfig": inputs["kubeconfig"],
        "expected": {"nowhere": 4},
        "timeout_seconds": 1,
    }
    with pytest.raises(StepFailed) as failed:
        start_provider().create(PluginGateProvider, wanted)
    text = str(failed.value)
    assert "not ready after 1 s" in text
    assert "node nowhere: it is not in the cluster" in text


@pytest.mark.parametrize("provider", [TrainingProofProvider, PluginGateProvider])
def test_what_is_wrong_with_inputs_is_said_before_anything_is_asked(
    start_provider: StartProvider, provider: type[Any]
) -> None:
    failures = provider().check({}, {"cluster": "v100", "kubeconfig": "x"}).failures
    assert {failure.property for failure in failures} >= (
        {"rung", "nodes"} if provider is TrainingProofProvider else {"expected"}
    )
