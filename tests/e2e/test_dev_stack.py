"""The dev stack from nothing to a cluster and back, by the commands of the README."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gpuclusters.container_api.client import Answer, ContainerApi
from lab import issuer
from lab.control_plane.kube import KubeApi
from lab.control_plane.layout import Layout
from lab.control_plane.ports import kept
from tests.e2e.conftest import Checkout
from tests.e2e.story import (
    Tenants,
    computed_in_containers,
    every_output_says_once_what_stands_for_kata,
    two_tenants_on_one_machine_and_a_gpu_that_was_tampered_with,
)
from tests.fixtures.waiting import eventually

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]

COMMITTED = [1, 5, 12, 14]
"""Of the layout 4, 2, 1, 1."""
KUBELET_DROP_IN = "/etc/kubernetes/kubelet.conf.d/50-gpu-clusters.conf"


def test_a_second_up_changes_nothing_and_says_so_between_its_first_line_and_what_to_try(
    cluster: Checkout,
) -> None:
    before = (cluster.folder / "Pulumi.dev.yaml").read_bytes()
    printed = cluster.up()
    assert (cluster.folder / "Pulumi.dev.yaml").read_bytes() == before
    lines = printed.splitlines()
    assert lines[0].startswith("engine: embedded")
    assert "no changes: everything is as the configuration says" in lines
    assert re.search(r"kubeconfig\s", printed)
    assert "try" in lines


def test_the_cluster_is_what_the_configuration_says(cluster: Checkout) -> None:
    tenancies = cluster.kubectl("get", "tenancies")["items"]
    assert {t["metadata"]["name"]: t["spec"]["gpus"] for t in tenancies} == {
        "acme": 4,
        "globex": 8,
    }
    for tenancy in tenancies:
        conditions = {c["type"]: c["status"] for c in tenancy["status"]["conditions"]}
        assert conditions["Ready"] == "True"
    (runtime,) = cluster.kubectl("get", "runtimeclasses")["items"]
    assert runtime["metadata"]["name"] == "kata-qemu-nvidia-gpu"
    assert runtime["overhead"]["podFixed"]["memory"] == "10Gi"
    quota = cluster.kubectl("get", "resourcequota", "tenant", "-n", "tenant-acme")
    assert quota["status"]["hard"]["requests.nvidia.com/pgpu"] == "4"
    policies = cluster.kubectl("get", "ciliumnetworkpolicies", "-n", "tenant-acme")["items"]
    assert {p["metadata"]["name"] for p in policies} == {"isolate"}


@pytest.mark.parametrize("host", ["hgx-01", "hgx-02"])
def test_each_machine_has_its_partitions_active_and_its_gpus_described(
    cluster: Checkout, host: str
) -> None:
    assert cluster.comes_to(host, COMMITTED) == COMMITTED
    spec = json.loads(cluster.on_host(host, "sudo -n cat /etc/cdi/nvidia.com-pgpu.json"))
    assert spec["kind"] == "nvidia.com/pgpu"
    assert [device["name"] for device in spec["devices"]] == [str(n) for n in range(1, 9)]
    for device in spec["devices"]:
        (node,) = device["containerEdits"]["deviceNodes"]
        assert re.fullmatch(r"/dev/vfio/\d+", node["path"])


def test_a_host_file_changed_by_hand_is_named_by_a_refresh_and_put_back(dev: Checkout) -> None:
    path = KUBELET_DROP_IN
    before = dev.on_host("hgx-02", f"sudo -n cat {path}")
    dev.on_host("hgx-02", f"sudo -n sh -c 'echo runtimeRequestTimeout: 2m >> {path}'")
    shown = dev.run("preview", "--refresh", "--expect-no-changes")
    assert shown.returncode == 7
    assert re.search(r"~ .*hgx-02-kubelet update", shown.stdout), shown.stdout
    assert re.search(r"~ 1 to update\n *\d+ unchanged", shown.stdout), shown.stdout
    dev.up("--refresh")
    assert dev.on_host("hgx-02", f"sudo -n cat {path}") == before
    dev.restored = True


def test_verify_reports_a_door_that_somebody_opened(dev: Checkout, tmp_path: Path) -> None:
    binding = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    layout = Layout.of(dev.lab)
    with KubeApi(layout, kept(layout.ports)["kube-apiserver"]) as api:
        api.delete(f"{binding}/gpu-clusters-tenant-pods")

    def opened() -> str:
        done = dev.run("verify", "--level", "isolation", "--evidence", str(tmp_path))
        lines = done.stdout.splitlines()
        assert done.returncode == (0 if lines[-1].endswith(": isolation holds") else 1), lines
        # The API server drops a deleted policy a moment later; until then pods are refused.
        door = "succeeded pods acme: a container without a VM (accepted)"
        return lines[-1] if door in lines else ""

    verdict = eventually(opened, "a pod that is let in")
    assert re.fullmatch(r"[1-9]\d* of \d+ attempts succeeded.*: isolation does not hold", verdict)
    dev.up("--refresh")
    dev.restored = True
    done = dev.run("verify", "--level", "isolation", "--evidence", str(tmp_path))
    assert done.returncode == 0, done.stdout


def test_an_up_that_ends_with_the_proof_shows_in_containers_of_every_size_that_gpus_compute(
    dev: Checkout,
) -> None:
    # One board in one piece, so that 8 GPUs are possible too.
    layouts = {"hgx-01": [8], "hgx-02": [4, 2, 1, 1]}
    nodes = [{"name": name, "partition-layout": layout} for name, layout in layouts.items()]
    proof = {"tenant": "globex", "image": "lab.local/python:1", "after-up": True}
    dev.configure(partition_layout="mixed", nodes=nodes, proof=proof)
    dev.up()
    computed_in_containers(Tenants.of(dev), dev.folder / "evidence", sizes=(1, 2, 4, 8))


def test_a_tenant_whom_nobody_declared_gets_a_tenancy_by_asking_where_that_is_allowed(
    dev: Checkout,
) -> None:
    def call(who: str, method: str, path: str, body: Any = None) -> Answer:
        return api().call(method, path, issuer.token(dev.lab / "issuer", who, 600), body)

    def api() -> ContainerApi:
        return Tenants.of(dev).api  # whose pod is another one after a change of its settings

    assert call("initech", "GET", "/v1/tenancy").status == 403
    template = {"most": 1, "gpus": 1, "images": {"allowed": ["registry.example.com"]}}
    dev.configure(tenants_on_demand=template)
    dev.up()

    body = {"image": "registry.example.com/train:1", "gpus": 1}
    answers = []

    def runs() -> bool:
        answers.append(call("initech", "POST", "/v1/containers", body).status)
        return answers[-1] == 201

    eventually(runs, "a container of initech")
    assert set(answers[:-1]) <= {503}
    made = dev.kubectl("get", "tenancy", "initech")
    assert made["spec"]["namespace"] == "tenant-initech"
    assert made["spec"]["quota"]["hard"]["requests.nvidia.com/pgpu"] == "1"
    refused = call("hooli", "GET", "/v1/tenancy")
    assert (refused.status, refused.body["title"]) == (
        403,
        "The token's tenant has no tenancy here",
    )
    assert "all 1 on demand are taken" in refused.body["detail"]

    # Neither Pulumi nor drift minds, and what a hostile tenant would try is tried as this one too.
    assert dev.plan("--refresh") == []
    found = dev.run("drift")
    assert found.returncode == 0, found.stdout
    (container,) = call("initech", "GET", "/v1/containers").body["items"]

    # Without the template it goes, but not while it has GPUs.
    def leased() -> bool:
        holders = [(s.get("holder") or {}).get("tenant") for s in Tenants.of(dev).leases().values()]
        return "initech" in holders

    eventually(leased, "a GPU of initech")
    dev.reset()
    dev.only("caas")
    done = dev.run("up")
    assert done.returncode != 0
    assert "tenant initech: it still holds GPUs" in done.stdout + done.stderr
    call("initech", "DELETE", f"/v1/containers/{container['id']}")
    eventually(lambda: not leased(), "initech's GPU back")
    dev.up()
    assert "initech" not in dev.kubectl_text("get", "tenancies")
    assert call("initech", "GET", "/v1/tenancy").status == 403


def test_wrong_configuration_ends_with_all_faults_before_anything_starts(
    cluster: Checkout,
) -> None:
    cluster.configure(partition_layout=[3, 5], nodes=[{"name": "hgx_01"}], tenant=[])
    try:
        for verb in ("up", "preview"):
            done = cluster.run(verb)
            assert done.returncode == 2
            for part in ("caas.partition-layout", "caas.nodes[0].name", "caas.tenant"):
                assert part in done.stderr, done.stderr
            assert "Traceback" not in done.stderr
    finally:
        cluster.reset()


def test_no_secret_of_the_lab_stands_in_clear_in_its_state(cluster: Checkout) -> None:
    key = (cluster.lab / "ssh" / "id_ed25519").read_text().splitlines()[2]
    kept = list((cluster.lab / "state").rglob("*.json"))
    assert kept
    for path in kept:
        if path.is_file():
            text = path.read_text(errors="replace")
            assert key not in text, path
            assert "client-key-data" not in text, path


def test_every_output_says_that_pods_of_kata_are_played(cluster: Checkout, tmp_path: Path) -> None:
    every_output_says_once_what_stands_for_kata(Tenants.of(cluster), tmp_path)


def test_the_story_of_two_tenants_after_which_nothing_is_left_to_do(
    cluster: Checkout, tmp_path: Path
) -> None:
    two_tenants_on_one_machine_and_a_gpu_that_was_tampered_with(Tenants.of(cluster), tmp_path)


def test_destroy_removes_what_up_made_from_hosts_and_cluster(cluster: Checkout) -> None:
    dev = cluster  # the last test: nothing is left
    dev.destroy()
    assert dev.on_host("hgx-01", "sudo -n virsh list --all --name").split() == []
    assert "intel_iommu" not in dev.on_host("hgx-01", "cat /boot/grub/grub.cfg")
    assert "nvidia.com-pgpu.json" not in dev.on_host("hgx-01", "ls /etc/cdi || true")
    names = {n["metadata"]["name"] for n in dev.kubectl("get", "namespaces")["items"]}
    assert not {name for name in names if name.startswith(("tenant-", "gpu-clusters-"))}
    assert cluster_wide(dev) == []


def cluster_wide(dev: Checkout) -> list[str]:
    """What of ours is left in the cluster outside of namespaces."""
    kinds = "clusterroles,clusterrolebindings,customresourcedefinitions,validatingadmissionpolicies"
    found = dev.kubectl("get", kinds)["items"]
    names = [item["metadata"]["name"] for item in found]
    # The lab has roles of its own, for what plays kubelets.
    return [n for n in names if "gpu-clusters" in n and not n.startswith("gpu-clusters-kubelet")]
