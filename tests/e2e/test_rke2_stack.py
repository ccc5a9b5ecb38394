"""The rke2 cluster of the lab, by commands: bare machines to GPUs that were shown to work, and back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.hosts import journal
from tests.e2e.conftest import Checkout, checkout

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]
MACHINES = ("cp-01", "gpu-01", "gpu-02")


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


def test_bare_machines_become_a_cluster_whose_nodes_offer_their_gpus(cluster: Checkout) -> None:
    assert resources(cluster) == {
        "cp-01": {},
        "gpu-01": {"nvidia.com/gpu": "8"},
        "gpu-02": {"nvidia.com/gpu": "56"},
    }
    for host in ("gpu-01", "gpu-02"):
        shown = cluster.on_host(host, "nvidia-smi --query-gpu=driver_version --format=csv,noheader")
        assert set(shown.split()) == {"580.178.04"}
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
    kept = list((cluster.lab / "state").rglob("*.json"))
    assert kept
    for path in kept:
        assert secret not in path.read_text(errors="replace"), path


def test_a_second_up_with_a_look_at_everything_changes_nothing(cluster: Checkout) -> None:
    cluster.up_again()


def test_destroy_takes_the_machines_out_of_the_cluster_and_ends_it(cluster: Checkout) -> None:
    cluster.destroy()
    names = {node["metadata"]["name"] for node in cluster.kubectl("get", "nodes")["items"]}
    assert not names.intersection(MACHINES)
    for host in MACHINES:
        left = "ls -d /var/lib/rancher/rke2 /usr/local/bin/rke2 2>/dev/null || true"
        assert cluster.on_host(host, left) == ""
