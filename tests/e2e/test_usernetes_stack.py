"""The usernetes cluster of the lab, by commands: bare machines to a training over all of them, and back."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from lab import hosts
from lab.hosts import journal, rootless_faults
from tests.e2e.conftest import Checkout, checkout

pytestmark = pytest.mark.lab
MACHINES = ("u7s-01", "u7s-02")
THIRD = {"host": "u7s-03", "number": 3}
BACK_SECONDS = 60
AS_OWNER = "sudo -n -H -u ubuntu"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """The lab of all tests here, up: a control plane and a worker with four GPUs each."""
    with checkout(tmp_path_factory.mktemp("u7s")) as dev:
        dev.only("usernetes", "caas")
        dev.up()
        yield dev


def offered(dev: Checkout) -> dict[str, str]:
    """GPUs that each node of this cluster offers."""
    return {
        node["metadata"]["name"]: node["status"]["allocatable"].get("nvidia.com/gpu", "0")
        for node in dev.kubectl("get", "nodes")["items"]
        if node["metadata"]["name"].startswith("u7s-")
    }


def changes(steps: list[dict[str, Any]]) -> set[str]:
    """`create UsernetesNode u7s-03-node`, one for each step that is no component."""
    return {
        f"{step['op']} {step['urn'].split('::')[2].split(':')[-1]} {step['urn'].split('::')[-1]}"
        for step in steps
        if "gpu-clusters:usernetes:" not in step["urn"].split("::")[2].split("$")[-1]
    }


def uuids(dev: Checkout, host: str) -> set[str]:
    """Those of the machine's GPUs, and those that its node container knows."""
    shown = dev.on_host(host, "nvidia-smi --query-gpu=uuid --format=csv,noheader").split()
    listed = dev.on_host(host, f"{AS_OWNER} docker exec usernetes-node nvidia-ctk cdi list")
    known = {line.removeprefix("nvidia.com/gpu=") for line in listed.split()}
    assert known == {*shown, "all"}
    return set(shown)


def reboot(dev: Checkout, host: str) -> None:
    """Restart a machine, and wait until its node is in the cluster again."""
    boot_id = "cat /proc/sys/kernel/random/boot_id"
    before = dev.on_host(host, boot_id)
    with contextlib.suppress(asyncssh.Error, OSError, AssertionError):
        dev.on_host(host, "sudo -n systemctl reboot")
    until = time.monotonic() + BACK_SECONDS

    def is_back() -> bool:
        try:
            again = dev.on_host(host, boot_id) != before
        except (asyncssh.Error, OSError, AssertionError):
            return False  # it is down, or on its way
        node = dev.kubectl("get", "node", host)
        ready = {one["type"]: one["status"] for one in node["status"]["conditions"]}["Ready"]
        return again and ready == "True" and offered(dev)[host] != "0"

    while not is_back():
        assert time.monotonic() < until, f"{host} is not back"
        time.sleep(0.5)


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
    for path in (cluster.lab / "state").rglob("*.json"):
        text = path.read_text(errors="replace")
        assert "client-key-data" not in text, path
        assert "kubeadm join" not in text, path


def test_every_rung_is_climbed_again_and_kept_as_evidence(
    cluster: Checkout, tmp_path: Path
) -> None:
    done = cluster.run("verify", "--json", "--evidence", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    (bundle,) = tmp_path.glob("ladder-*.json")
    assert cluster.run("verify", "--check", str(bundle)).returncode == 0
    told = cluster.run("training-times", str(bundle), "--json")
    runs: Mapping[str, Any] = json.loads(told.stdout)
    assert "simulated" in json.dumps(runs)


def test_a_third_worker_comes_and_goes_alone(cluster: Checkout) -> None:
    workers = [{"host": "u7s-02", "number": 2}, THIRD]
    cluster.configure("usernetes", workers=workers)
    cluster.run("lab", "start")
    assert changes(cluster.plan()) == {
        "create GpuDriver u7s-03-driver",
        "create RootlessHost u7s-03-rootless",
        "create UsernetesNode u7s-03-node",
        # What looks at all nodes.
        "update PluginGate gpus-gate",
        "update TrainingProof proof",
    }
    cluster.up()
    assert offered(cluster) == {"u7s-01": "4", "u7s-02": "4", "u7s-03": "4"}
    cluster.configure("usernetes", workers=workers[:1])
    assert changes(cluster.plan()) == {
        "delete GpuDriver u7s-03-driver",
        "delete RootlessHost u7s-03-rootless",
        "delete UsernetesNode u7s-03-node",
        "update PluginGate gpus-gate",
        "update TrainingProof proof",
    }
    cluster.up()
    assert offered(cluster) == {"u7s-01": "4", "u7s-02": "4"}


def test_a_machine_that_was_rebooted_has_its_gpus_again_and_nothing_to_do(
    cluster: Checkout,
) -> None:
    before = uuids(cluster, "u7s-02")
    reboot(cluster, "u7s-02")
    done = cluster.engine("up", "--yes", "--skip-preview", "--refresh", "--expect-no-changes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert offered(cluster) == {"u7s-01": "4", "u7s-02": "4"}
    assert uuids(cluster, "u7s-02") == before


def test_a_machine_that_was_replaced_gets_its_node_anew(cluster: Checkout) -> None:
    before = uuids(cluster, "u7s-02")
    done = cluster.run("lab", "reinstall", "u7s-02")
    assert done.returncode == 0, done.stdout + done.stderr
    hosts.faults.inject(cluster.lab / "hosts", "u7s-02", rootless_faults.GpusReplaced())
    cluster.up()
    assert uuids(cluster, "u7s-02").isdisjoint(before), "another machine has other GPUs"
    assert offered(cluster) == {"u7s-01": "4", "u7s-02": "4"}
    assert cluster.plan("--refresh") == []


def test_another_type_of_cluster_would_take_this_one_away_and_destroy_does(
    cluster: Checkout,
) -> None:
    cluster.choose("caas")
    gone = {
        step["oldState"]["type"].split(":")[-1] for step in cluster.plan() if step["op"] == "delete"
    }
    assert {"UsernetesNode", "RootlessHost", "GpuDriver"} <= gone, "a preview says what goes"
    # That another type then comes: test_rke2_stack.py.
    done = cluster.engine("destroy", "--yes", "--skip-preview")
    assert done.returncode == 0, done.stdout + done.stderr
    assert cluster.state() == []
    for host in MACHINES:
        assert "usernetes-node" not in cluster.on_host(
            host, f"{AS_OWNER} docker ps -a 2>&1 || true"
        )
