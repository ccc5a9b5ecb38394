"""A caas stack that makes its own cluster with RKE2: bare machines to tenants, and back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.hosts import journal, rke2_release
from tests.e2e.conftest import Checkout, checkout

pytestmark = pytest.mark.lab

VERSION = "v1.35.7+rke2r1"
KUBERNETES = {
    "source": "rke2",
    "version": VERSION,
    "artifacts": {"source": "download", "checksum": rke2_release.checksum(VERSION)},
    "servers": [{"name": "cp-01"}],
    "cis-profile": True,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """The lab of all tests here: one server, one machine, one tenant; up."""
    with checkout(tmp_path_factory.mktemp("rke2")) as dev:
        dev.configure(
            kubernetes=KUBERNETES, nodes=[{"name": "hgx-01"}], tenants=[{"name": "acme", "gpus": 4}]
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


def test_machines_join_and_get_kata_and_tenants(made: Checkout) -> None:
    assert nodes(made) == {
        "cp-01": {"ready": "True", "control-plane": True, "taints": ["CriticalAddonsOnly"]},
        "hgx-01": {"ready": "True", "control-plane": False, "taints": []},
    }
    (tenancy,) = made.kubectl("get", "tenancies")["items"]
    assert {c["type"]: c["status"] for c in tenancy["status"]["conditions"]}["Ready"] == "True"
    assert made.comes_to("hgx-01", [1, 5, 12, 14]) == [1, 5, 12, 14]
    for host in ("cp-01", "hgx-01"):
        assert journal.read(made.lab / "hosts", host, "harm") == []


def test_with_the_cis_profile_every_namespace_of_ours_says_what_its_pods_may(
    made: Checkout,
) -> None:
    enforced = {
        item["metadata"]["name"]: item["metadata"]["labels"].get(
            "pod-security.kubernetes.io/enforce"
        )
        for item in made.kubectl("get", "namespaces")["items"]
        if not item["metadata"]["name"].startswith(("kube-", "default"))
    }
    assert enforced == {
        "gpu-clusters-system": "privileged",
        "kata-system": "privileged",
        "tenant-acme": "restricted",
    }


def test_a_second_up_with_a_look_at_everything_changes_nothing(made: Checkout) -> None:
    done = made.engine("up", "--yes", "--skip-preview", "--refresh", "--expect-no-changes")
    assert done.returncode == 0, done.stdout + done.stderr


def test_destroy_takes_the_machines_out_of_the_cluster_and_ends_it(made: Checkout) -> None:
    done = made.engine("destroy", "--yes", "--skip-preview")
    assert done.returncode == 0, done.stdout + done.stderr
    assert made.state() == []
    assert nodes(made) == {}
    for host in ("cp-01", "hgx-01"):
        assert made.on_host(host, "ls -d /var/lib/rancher/rke2 /usr/local/bin/rke2 || true") == ""
