"""The rke2 cluster of the lab, by commands: bare machines to GPUs that were shown to work, and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lab.hosts import journal
from tests.e2e.conftest import Checkout, checkout

pytestmark = pytest.mark.lab
MACHINES = ("cp-01", "gpu-01", "gpu-02")
POOL = {"gpu": {"product": "a100-sxm4-80gb", "count": 8}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """The lab of all tests here, up: one server, a machine with whole GPUs, one with slices."""
    with checkout(tmp_path_factory.mktemp("rke2s")) as dev:
        dev.choose("rke2")
        dev.up()
        yield dev


def resources(dev: Checkout) -> dict[str, dict[str, str]]:
    """GPUs that each node of this cluster offers, by resource."""
    return {
        node["metadata"]["name"]: {
            key: count
            for key, count in node["status"]["allocatable"].items()
            if key.startswith("nvidia.com/")
        }
        for node in dev.kubectl("get", "nodes")["items"]
        if node["metadata"]["name"] in MACHINES
    }


def changes(steps: list[dict[str, Any]]) -> list[str]:
    """`update MigLayout gpu-02-mig`, one for each step, sorted."""
    return sorted(
        f"{step['op']} {step['urn'].split('::')[2].split(':')[-1]} {step['urn'].split('::')[-1]}"
        for step in steps
    )


def test_bare_machines_become_a_cluster_whose_nodes_offer_their_gpus(cluster: Checkout) -> None:
    assert resources(cluster) == {
        "cp-01": {},
        "gpu-01": {"nvidia.com/gpu": "8"},
        "gpu-02": {"nvidia.com/gpu": "56"},
    }
    for host in ("gpu-01", "gpu-02"):
        shown = cluster.on_host(host, "nvidia-smi --query-gpu=driver_version --format=csv,noheader")
        assert set(shown.split()) == {"580.173.02"}
        assert "nouveau" not in cluster.on_host(host, "lsmod")
    for host in MACHINES:
        assert journal.read(cluster.lab / "hosts", host, "harm") == []


def test_every_machine_of_a_pool_has_its_label_and_the_namespace_may_what_it_must(
    cluster: Checkout,
) -> None:
    pools = {
        node["metadata"]["name"]: node["metadata"]["labels"].get("gpu-clusters.dev/pool")
        for node in cluster.kubectl("get", "nodes")["items"]
    }
    nobody = dict.fromkeys(("cp-01", "hgx-01", "hgx-02"))
    assert pools == {**nobody, "gpu-01": "whole", "gpu-02": "sliced"}
    namespace = cluster.kubectl("get", "namespace", "gpu-operator")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"


def test_no_token_stands_in_clear_in_the_state(cluster: Checkout) -> None:
    token = cluster.on_host("cp-01", "sudo -n cat /var/lib/rancher/rke2/server/token").strip()
    assert len(token) > 20
    secret = token.rsplit(":", 1)[-1]
    for path in (cluster.lab / "state").rglob("*.json"):
        assert secret not in path.read_text(errors="replace"), path


def test_another_layout_of_one_pool_leaves_the_other_alone(cluster: Checkout) -> None:
    pools = [
        {"name": "whole", "nodes": ["gpu-01"], **POOL},
        {"name": "sliced", "nodes": ["gpu-02"], **POOL, "mig": "all-2g.20gb"},
    ]
    cluster.configure("rke2", pools=pools)
    assert changes(cluster.plan()) == [
        "update GpuReadiness gpus-gate",
        "update MigLayout gpu-02-mig",
        "update ProofRun proof",
    ]
    cluster.up()
    assert resources(cluster)["gpu-01"] == {"nvidia.com/gpu": "8"}
    assert resources(cluster)["gpu-02"] == {"nvidia.com/gpu": "24"}


def test_another_type_of_cluster_comes_and_this_one_goes(cluster: Checkout) -> None:
    cluster.choose("caas")
    gone = {
        step["oldState"]["type"].split(":")[-1] for step in cluster.plan() if step["op"] == "delete"
    }
    assert {"Rke2Node", "GpuDriver", "Release", "MigLayout"} <= gone, "a preview says what goes"
    cluster.up()
    assert not [r["urn"] for r in cluster.state() if ":rke2:" in r["urn"]]
    assert {node["metadata"]["name"] for node in cluster.kubectl("get", "nodes")["items"]} == {
        "hgx-01",
        "hgx-02",
    }
    for host in MACHINES:
        left = "ls -d /var/lib/rancher/rke2 /usr/local/bin/rke2 2>/dev/null || true"
        assert cluster.on_host(host, left) == ""
