"""The rke2 cluster of the lab on real nodes: RKE2 joins them, the operator's operands run in them."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import checkout
from tests.lab.nodes.real_lab import REAL_NODE

pytestmark = REAL_NODE


def test_bare_machines_become_real_nodes_whose_gpus_are_proven_in_containers(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with checkout(tmp_path_factory.mktemp("rke2r"), "rke2", nodes="real") as dev:
        dev.up()
        assert dev.gpus() == {
            "cp-01": {},
            "gpu-01": {"nvidia.com/gpu": "8"},
            "gpu-02": {"nvidia.com/gpu": "56"},
        }
        for node in dev.nodes_of_api().values():
            runtime = node["status"]["nodeInfo"]["containerRuntimeVersion"]
            assert runtime.startswith("containerd://2.")
        # The operands are containers.
        pods = dev.kubectl("get", "pods", "-n", "gpu-operator")["items"]
        assert all(
            status["containerID"].startswith("containerd://")
            for pod in pods
            for status in pod["status"]["containerStatuses"]
        )
        assert dev.kubectl("get", "runtimeclass", "nvidia")["handler"] == "nvidia"
        assert dev.plan("--refresh") == []
        done = dev.run("verify")
        assert done.returncode == 0, done.stdout + done.stderr
