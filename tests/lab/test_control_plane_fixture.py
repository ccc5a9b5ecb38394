"""The shared control plane of the tests is a usable cluster."""

from __future__ import annotations

import pytest

from tests.fixtures.control_plane import KubeCluster

pytestmark = pytest.mark.lab


def test_the_shared_cluster_has_ready_nodes_with_eight_gpus(kube_api: KubeCluster) -> None:
    with kube_api.api() as api:
        for name in kube_api.nodes:
            node = api.get(f"/api/v1/nodes/{name}")
            assert node["status"]["allocatable"]["nvidia.com/pgpu"] == "8"


def test_each_test_gets_a_namespace_of_its_own(kube_api: KubeCluster, namespace: str) -> None:
    with kube_api.api() as api:
        assert api.get(f"/api/v1/namespaces/{namespace}")["status"]["phase"] == "Active"
