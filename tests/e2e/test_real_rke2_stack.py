"""The rke2 cluster of the lab on real nodes: RKE2 joins them, the operator's operands run in them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.conftest import Checkout, checkout
from tests.e2e.test_rke2_stack import MACHINES, resources
from tests.lab.nodes.real_lab import BUILD_SECONDS, only_where_possible

pytestmark = [
    pytest.mark.lab,
    pytest.mark.real_node,
    only_where_possible,
    pytest.mark.timeout(BUILD_SECONDS),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    with checkout(tmp_path_factory.mktemp("rke2r"), nodes="real") as dev:
        dev.only("rke2", "lab")
        dev.up()
        yield dev


def test_bare_machines_become_real_nodes_whose_gpus_are_proven_in_containers(
    cluster: Checkout,
) -> None:
    nodes = {node["metadata"]["name"]: node for node in cluster.kubectl("get", "nodes")["items"]}
    assert set(nodes) == set(MACHINES)
    for node in nodes.values():
        assert node["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("containerd://2.")
    assert resources(cluster) == {
        "cp-01": {},
        "gpu-01": {"nvidia.com/gpu": "8"},
        "gpu-02": {"nvidia.com/gpu": "56"},
    }
    # The operands are containers.
    pods = cluster.kubectl("get", "pods", "-n", "gpu-operator")["items"]
    assert all(
        status["containerID"].startswith("containerd://")
        for pod in pods
        for status in pod["status"]["containerStatuses"]
    )
    assert cluster.kubectl("get", "runtimeclass", "nvidia")["handler"] == "nvidia"


def test_a_second_up_with_a_look_at_everything_changes_nothing(cluster: Checkout) -> None:
    assert cluster.plan("--refresh") == []


def test_the_proof_runs_once_more_in_containers(cluster: Checkout) -> None:
    done = cluster.run("verify")
    assert done.returncode == 0, done.stdout + done.stderr
