"""One stack through two types: caas on a cluster that it makes with RKE2, then usernetes, which grows."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from lab.hosts import faults, injecting, journal
from lab.hosts.rke2 import rke2_release
from tests.e2e.conftest import Checkout, checkout
from tests.e2e.test_usernetes_stack import offered, uuids

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.timeout(900)]

VERSION = "v1.35.7+rke2r1"
KUBERNETES = {
    "source": "rke2",
    "version": VERSION,
    "artifacts": {"source": "download", "checksum": rke2_release.checksum(VERSION)},
    "servers": [{"name": "cp-01"}],
    "cis-profile": True,
}
THIRD = {"host": "u7s-03", "number": 3}
BACK_SECONDS = 240
"""For what takes some seconds: a test waits for what it looks at, however slow the machine."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """The lab of all tests here: one server, one machine, one tenant; up."""
    with checkout(tmp_path_factory.mktemp("types")) as dev:
        dev.only("caas", "usernetes")
        dev.configure(
            kubernetes=KUBERNETES,
            nodes=[{"name": "hgx-01"}],
            tenants=[{"name": "acme", "gpus": 4}],
            proof=None,
        )
        dev.up()
        yield dev


def nodes(dev: Checkout) -> dict[str, dict[str, object]]:
    """Taints, labels and whether it is Ready, of each node of the API."""
    return {
        node["metadata"]["name"]: {
            "ready": {c["type"]: c["status"] for c in node["status"]["conditions"]}["Ready"],
            "control-plane": "node-role.kubernetes.io/control-plane" in node["metadata"]["labels"],
            "taints": [taint["key"] for taint in node["spec"].get("taints", [])],
        }
        for node in dev.kubectl("get", "nodes")["items"]
    }


def test_machines_join_and_get_kata_and_tenants(cluster: Checkout) -> None:
    assert nodes(cluster) == {
        "cp-01": {"ready": "True", "control-plane": True, "taints": ["CriticalAddonsOnly"]},
        "hgx-01": {"ready": "True", "control-plane": False, "taints": []},
    }
    (tenancy,) = cluster.kubectl("get", "tenancies")["items"]
    assert {c["type"]: c["status"] for c in tenancy["status"]["conditions"]}["Ready"] == "True"
    assert cluster.comes_to("hgx-01", [1, 5, 12, 14]) == [1, 5, 12, 14]
    for host in ("cp-01", "hgx-01"):
        assert journal.read(cluster.lab / "hosts", host, "harm") == []


def test_with_the_cis_profile_every_namespace_of_ours_says_what_its_pods_may(
    cluster: Checkout,
) -> None:
    enforced = {
        item["metadata"]["name"]: item["metadata"]["labels"].get(
            "pod-security.kubernetes.io/enforce"
        )
        for item in cluster.kubectl("get", "namespaces")["items"]
        if not item["metadata"]["name"].startswith(("kube-", "default"))
    }
    assert enforced == {
        "gpu-clusters-controllers": "restricted",
        "gpu-clusters-device-plugin": "privileged",
        "gpu-clusters-system": "restricted",
        "kata-system": "privileged",
        "tenant-acme": "restricted",
    }


def test_a_second_up_with_a_look_at_everything_changes_nothing(cluster: Checkout) -> None:
    cluster.up_again()


def goes(cluster: Checkout) -> set[str]:
    """The classes of what an `up` would delete, as a preview says it."""
    return {
        step["oldState"]["type"].split(":")[-1] for step in cluster.plan() if step["op"] == "delete"
    }


def test_another_type_of_cluster_comes_and_this_one_goes(cluster: Checkout) -> None:
    cluster.choose("usernetes")
    assert {"Rke2Node", "VfioBinding", "Release", "TenancyPolicy"} <= goes(cluster)
    cluster.up()
    assert not [r["urn"] for r in cluster.state() if ":caas:" in r["urn"]]
    assert offered(cluster) == {"u7s-01": "4", "u7s-02": "4"}
    assert nodes(cluster).keys() == {"u7s-01", "u7s-02"}
    for host in ("cp-01", "hgx-01"):
        assert (
            cluster.on_host(host, "ls -d /var/lib/rancher/rke2 /usr/local/bin/rke2 || true") == ""
        )


def changes(steps: list[dict[str, Any]]) -> set[str]:
    """`create UsernetesNode u7s-03-node`, one for each step that is no component."""
    return {
        f"{step['op']} {step['urn'].split('::')[2].split(':')[-1]} {step['urn'].split('::')[-1]}"
        for step in steps
        if "gpu-clusters:usernetes:" not in step["urn"].split("::")[2].split("$")[-1]
    }


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
    cluster.up_again()
    assert offered(cluster) == {"u7s-01": "4", "u7s-02": "4"}
    assert uuids(cluster, "u7s-02") == before


def test_a_machine_that_was_replaced_gets_its_node_anew(cluster: Checkout) -> None:
    before = uuids(cluster, "u7s-02")
    done = cluster.run("lab", "reinstall", "u7s-02")
    assert done.returncode == 0, done.stdout + done.stderr
    injecting.inject(cluster.lab / "hosts", "u7s-02", faults.GpusReplaced())
    cluster.up()
    assert uuids(cluster, "u7s-02").isdisjoint(before), "another machine has other GPUs"
    assert offered(cluster) == {"u7s-01": "4", "u7s-02": "4"}
    assert cluster.plan("--refresh") == []


def test_the_type_from_before_would_take_this_one_away(cluster: Checkout) -> None:
    cluster.choose("caas")
    assert {"UsernetesNode", "RootlessHost", "GpuDriver"} <= goes(cluster)
