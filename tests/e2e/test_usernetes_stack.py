"""The usernetes cluster of the lab, by commands: bare machines to a training over all of them, and back."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from lab.hosts import journal
from tests.e2e.conftest import Checkout, checkout

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]
MACHINES = ("u7s-01", "u7s-02")
AS_OWNER = "sudo -n -H -u ubuntu"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """The lab of all tests here, up: a control plane and a worker with four GPUs each."""
    with checkout(tmp_path_factory.mktemp("u7s")) as dev:
        dev.only("usernetes")
        dev.up()
        yield dev


def offered(dev: Checkout) -> dict[str, str]:
    """GPUs that each node of this cluster offers."""
    return {
        node["metadata"]["name"]: node["status"]["allocatable"].get("nvidia.com/gpu", "0")
        for node in dev.kubectl("get", "nodes")["items"]
        if node["metadata"]["name"].startswith("u7s-")
    }


def uuids(dev: Checkout, host: str) -> set[str]:
    """Those of the machine's GPUs, and those that its node container knows."""
    shown = dev.on_host(host, "nvidia-smi --query-gpu=uuid --format=csv,noheader").split()
    listed = dev.on_host(host, f"{AS_OWNER} docker exec usernetes-node nvidia-ctk cdi list")
    known = {line.removeprefix("nvidia.com/gpu=") for line in listed.split()}
    assert known == {*shown, "all"}
    return set(shown)


def test_bare_machines_become_a_cluster_of_one_account_without_privileges(
    cluster: Checkout,
) -> None:
    assert offered(cluster) == {"u7s-01": "4", "u7s-02": "4"}
    for host in MACHINES:
        information = cluster.on_host(host, f"{AS_OWNER} docker info")
        assert "rootless" in information
        assert uuids(cluster, host)
        assert journal.read(cluster.lab / "hosts", host, "harm") == []


def test_no_kubeconfig_and_no_token_stand_in_clear_in_the_state(cluster: Checkout) -> None:
    exported = cluster.engine("stack", "export").stdout
    assert "client-key-data" not in exported
    kept = list((cluster.lab / "state").rglob("*.json"))
    assert kept
    for path in kept:
        text = path.read_text(errors="replace")
        assert "client-key-data" not in text, path
        assert "kubeadm join" not in text, path


def test_a_second_up_with_a_look_at_everything_changes_nothing(cluster: Checkout) -> None:
    cluster.up_again()


def test_destroy_ends_the_cluster_and_takes_its_node_from_each_machine(cluster: Checkout) -> None:
    cluster.destroy()
    assert offered(cluster) == {}
    for host in MACHINES:
        containers = cluster.on_host(host, f"{AS_OWNER} docker ps -a 2>&1 || true")
        assert re.search("CONTAINER ID|not found|Cannot connect", containers), containers
        assert "usernetes-node" not in containers
