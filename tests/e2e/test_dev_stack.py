"""The dev stack from nothing to a cluster and back, by the commands of the README."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuclusters.container_api.client import Answer
from lab import issuer
from tests.e2e.conftest import Checkout, checkout
from tests.e2e.story import (
    Tenants,
    computed_in_containers,
    every_output_says_once_what_stands_for_kata,
    two_tenants_on_one_machine_and_a_gpu_that_was_tampered_with,
)
from tests.fixtures.waiting import eventually

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]

KUBELET = "/etc/kubernetes/kubelet.conf.d/50-gpu-clusters.conf"
BINDING = (
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    "/gpu-clusters-tenant-pods"
)


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """As it is committed but for the other types, up; the tests follow one another."""
    with checkout(tmp_path_factory.mktemp("e2e"), "caas") as made:
        made.up()
        yield made


def test_machines_and_cluster_are_what_the_configuration_says(dev: Checkout) -> None:
    tenancies = dev.kubectl("get", "tenancies")["items"]
    assert {t["metadata"]["name"]: t["spec"]["gpus"] for t in tenancies} == {
        "acme": 4,
        "globex": 8,
    }
    for tenancy in tenancies:
        conditions = {c["type"]: c["status"] for c in tenancy["status"]["conditions"]}
        assert conditions["Ready"] == "True"
    quota = dev.kubectl("get", "resourcequota", "tenant", "-n", "tenant-acme")
    assert quota["status"]["hard"]["requests.nvidia.com/pgpu"] == "4"
    policies = dev.kubectl("get", "ciliumnetworkpolicies", "-n", "tenant-acme")["items"]
    assert {p["metadata"]["name"] for p in policies} == {"isolate"}
    dev.comes_to([1, 5, 12, 14], "hgx-01", "hgx-02")
    for host in ("hgx-01", "hgx-02"):
        spec = json.loads(dev.on_host(host, "sudo -n cat /etc/cdi/nvidia.com-pgpu.json"))
        assert [device["name"] for device in spec["devices"]] == [str(n) for n in range(1, 9)]
    key = (dev.lab / "ssh" / "id_ed25519").read_text().splitlines()[2]
    dev.not_in_state(key, "client-key-data")


def test_an_up_with_nothing_to_do_says_so_and_every_output_that_pods_of_kata_are_played(
    dev: Checkout,
) -> None:
    every_output_says_once_what_stands_for_kata(Tenants.of(dev))


def test_a_file_changed_and_a_door_opened_by_hand_are_told_and_put_back(
    dev: Checkout, tmp_path: Path
) -> None:
    before = dev.on_host("hgx-02", f"sudo -n cat {KUBELET}")
    dev.on_host("hgx-02", f"sudo -n sh -c 'echo runtimeRequestTimeout: 2m >> {KUBELET}'")
    with dev.api() as api:
        api.delete(BINDING)

    def opened() -> str:
        done = dev.run("verify", "--level", "isolation", "--evidence", str(tmp_path))
        lines = done.stdout.splitlines()
        assert done.returncode == (0 if lines[-1].endswith(": isolation holds") else 1), lines
        # The API server drops a deleted policy a moment later; until then pods are refused.
        door = "succeeded pods acme: a container without a VM (accepted)"
        return lines[-1] if door in lines else ""

    verdict = eventually(opened, "a pod that is let in")
    assert re.fullmatch(r"[1-9]\d* of \d+ attempts succeeded.*: isolation does not hold", verdict)
    shown = dev.run("preview", "--refresh", "--expect-no-changes")
    assert shown.returncode == 7
    assert re.search(r"~ .*hgx-02-kubelet update", shown.stdout), shown.stdout
    assert "+ 1 to create\n    ~ 3 to update\n" in shown.stdout
    dev.up("--refresh")
    assert dev.on_host("hgx-02", f"sudo -n cat {KUBELET}") == before


def test_the_story_of_two_tenants_after_which_nothing_is_left_to_do(
    dev: Checkout, tmp_path: Path
) -> None:
    two_tenants_on_one_machine_and_a_gpu_that_was_tampered_with(Tenants.of(dev), tmp_path)


def test_an_up_ends_with_the_proof_and_a_tenant_whom_nobody_declared_gets_a_tenancy_by_asking(
    dev: Checkout,
) -> None:
    def call(who: str, method: str, path: str, body: Any = None) -> Answer:
        api = Tenants.of(dev).api  # whose pod is another one after a change of its settings
        return api.call(method, path, issuer.token(dev.lab / "issuer", who, 600), body)

    assert call("initech", "GET", "/v1/tenancy").status == 403
    # One board in one piece, so that 8 GPUs are possible too.
    layouts = {"hgx-01": [8], "hgx-02": [4, 2, 1, 1]}
    dev.configure(
        partition_layout="mixed",
        nodes=[{"name": name, "partition-layout": layout} for name, layout in layouts.items()],
        proof={"tenant": "globex", "image": "lab.local/python:1", "after-up": True},
        tenants_on_demand={"most": 1, "gpus": 1, "images": {"allowed": ["registry.example.com"]}},
    )
    dev.up()
    computed_in_containers(Tenants.of(dev), dev.folder / "evidence", sizes=(1, 2, 4, 8))

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
    assert refused.status == 403
    assert refused.body["title"] == "The token's tenant has no tenancy here"
    assert "all 1 on demand are taken" in refused.body["detail"]

    # Neither Pulumi nor drift minds.
    found = dev.run("drift")
    assert found.returncode == 0, found.stdout
    (container,) = call("initech", "GET", "/v1/containers").body["items"]

    # Without the template it goes, but not while it has GPUs.
    def leased() -> bool:
        return bool(Tenants.of(dev).held_by("initech"))

    eventually(leased, "a GPU of initech")
    dev.reset()
    done = dev.run("up")
    assert done.returncode != 0
    assert "tenant initech: it still holds GPUs" in done.stdout + done.stderr
    call("initech", "DELETE", f"/v1/containers/{container['id']}")
    eventually(lambda: not leased(), "initech's GPU back")
    dev.up()
    assert "initech" not in dev.kubectl_text("get", "tenancies")
    assert call("initech", "GET", "/v1/tenancy").status == 403


def test_destroy_removes_what_up_made_from_hosts_and_cluster(dev: Checkout) -> None:
    dev.destroy()
    assert dev.on_host("hgx-01", "sudo -n virsh list --all --name").split() == []
    assert "intel_iommu" not in dev.on_host("hgx-01", "cat /boot/grub/grub.cfg")
    assert "nvidia.com-pgpu.json" not in dev.on_host("hgx-01", "ls /etc/cdi || true")
    names = {n["metadata"]["name"] for n in dev.kubectl("get", "namespaces")["items"]}
    assert not {name for name in names if name.startswith(("tenant-", "gpu-clusters-"))}
    kinds = "clusterroles,clusterrolebindings,customresourcedefinitions,validatingadmissionpolicies"
    left = {item["metadata"]["name"] for item in dev.kubectl("get", kinds)["items"]}
    # The lab has roles of its own, for what plays kubelets.
    lab = "gpu-clusters-kubelet"
    assert not [n for n in left if "gpu-clusters" in n and not n.startswith(lab)]
