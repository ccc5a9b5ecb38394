"""The dev stack, made by an `up` that is killed again and again; it is changed, then drifts by hand.

That what acts may die anywhere is shown where it can be killed at each of its commands, writes and waits:
tests/providers/test_killed_at_every_command.py, tests/engine/test_reference.py, tests/engine/test_saving.py
and tests/caas/test_killed_at_every_await.py. Here a run is ended in each way, among all its steps.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuclusters.container_api.client import Answer
from lab import issuer
from lab.hosts import faults, injecting
from tests.e2e.conftest import Checkout, checkout
from tests.e2e.drifting import by_hand, check, drift, told
from tests.e2e.killing import Kill, up_through_kills
from tests.e2e.tenants import (
    Tenants,
    computed_in_containers,
    every_output_says_once_what_stands_for_kata,
)
from tests.fixtures.waiting import eventually

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.timeout(900)]

KILLS = (
    Kill("HostBoot", "everything", seconds=1),  # the machine is on its way down
    Kill("ServiceVm", "ctrl-c"),
    Kill("FabricPartitions", "engine", by_hand="kata-system/kata-deploy"),
    Kill("Release", "everything", seconds=0.5),  # Helm is at work
)
BOTH = ("hgx-01", "hgx-02")
COMMITTED = [1, 5, 12, 14]
"""Of the layout 4, 2, 1, 1."""
PAIRS = [3, 4, 5, 6]
# Changes nothing but files on the machines, so that what fails there is all that the test waits for.
LONGER = {"source": "lab", "kubelet": {"runtime-request-timeout-seconds": 2040}}
KUBELET = "/etc/kubernetes/kubelet.conf.d/50-gpu-clusters.conf"
BINDING = (
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    "/gpu-clusters-tenant-pods"
)
BOOT_ID = "cat /proc/sys/kernel/random/boot_id"


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """The lab of all tests here, which follow one another."""
    with checkout(tmp_path_factory.mktemp("kill"), "caas") as made:
        met = up_through_kills(made, KILLS)
        assert len(met) >= len(KILLS) - 1, met
        yield made


def test_an_up_killed_in_every_way_converges(dev: Checkout) -> None:
    assert dev.plan("--refresh") == []
    urns = [resource["urn"] for resource in dev.state()]
    assert len(set(urns)) == len(urns)
    assert len([urn for urn in urns if ":FabricPartitions::" in urn]) == 2
    dev.comes_to(COMMITTED, *BOTH)
    dev.unharmed(*BOTH)
    for host in BOTH:
        # Written whole or not at all: no temporary file of a killed write is left.
        assert dev.on_host(host, "ls -A /etc/cdi").split() == ["nvidia.com-pgpu.json"]


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
    for host in BOTH:
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


def failed(dev: Checkout, *named: str) -> None:
    # By default an error ends the run before steps that have not begun.
    done = dev.engine("up", "--yes", "--skip-preview", "--continue-on-error")
    said = done.stdout + done.stderr
    assert done.returncode == 1
    assert "Traceback" not in said
    assert all(name in said for name in named), said


def request_timeout(dev: Checkout, host: str) -> str:
    text = dev.on_host(host, f"sudo -n cat {KUBELET}")
    return str(yaml.safe_load(text)["runtimeRequestTimeout"])


def test_a_machine_with_a_partition_in_use_or_a_strange_host_key_fails_alone(dev: Checkout) -> None:
    folder = dev.lab / "hosts"
    dev.configure(partition_layout=[2, 2, 2, 2])
    assert dev.plan() == [
        # The programs read which partitions may be leased; their pods carry the digest of the settings.
        "update ConfigMap system-api-settings",
        "update ConfigMap system-controllers-settings",
        "update ConfigMap system-device-plugin-settings",
        "update DaemonSet programs-device-plugin",
        "update Deployment programs-api",
        "update Deployment programs-controllers",
        "update FabricPartitions hgx-01-fabric",
        "update FabricPartitions hgx-02-fabric",
        # How many GPUs a container may ask for follows the layout.
        "update TenancyPolicy acme-policy",
        "update TenancyPolicy globex-policy",
    ]
    injecting.set_partition_in_use(folder, "hgx-01", 1, "vm-acme")
    failed(dev, "hgx-01", "in use")
    assert 1 in dev.active_partitions("hgx-01")
    dev.comes_to(PAIRS, "hgx-02")
    injecting.set_partition_in_use(folder, "hgx-01", 1, None)

    before = request_timeout(dev, "hgx-02")
    dev.configure(kubernetes=LONGER)
    injecting.inject(folder, "hgx-02", faults.WrongHostKey())
    failed(dev, "hgx-02", "is pinned for it")
    dev.comes_to(PAIRS, "hgx-01")
    injecting.clear(folder, "hgx-02")
    assert request_timeout(dev, "hgx-01") == "2040s"
    assert request_timeout(dev, "hgx-02") == before, "a stranger got a command"
    dev.up()
    assert request_timeout(dev, "hgx-02") == "2040s"


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
    dev.configure(nodes=[{"name": "hgx-01"}, {"name": "hgx-02", "maintenance": "evict"}])
    dev.up()
    assert "initech" not in dev.kubectl_text("get", "tenancies")
    assert call("initech", "GET", "/v1/tenancy").status == 403


def test_a_machine_is_drained_installed_anew_and_brought_back_without_touching_the_others(
    dev: Checkout,
) -> None:
    """The last `up` has begun its maintenance."""
    dev.comes_to(COMMITTED, *BOTH)
    assert dev.nodes_of_api()["hgx-02"]["spec"]["unschedulable"] is True

    before = dev.on_host("hgx-01", BOOT_ID)
    assert dev.run("lab", "reinstall", "hgx-02").returncode == 0
    steps = dev.plan()
    assert "update VfioBinding hgx-02-vfio" in steps
    assert [step for step in steps if "hgx-01" in step] == []
    dev.up()
    dev.comes_to(COMMITTED, "hgx-02")
    assert dev.on_host("hgx-01", BOOT_ID) == before

    dev.reset()
    assert dev.plan() == ["delete NodeMaintenance hgx-02-maintenance"]
    dev.up()
    assert "unschedulable" not in dev.nodes_of_api()["hgx-02"]["spec"]


def test_after_all_that_nothing_has_drifted(dev: Checkout) -> None:
    code, report = drift(dev)
    found = (code, report["findings"], report["not_looked_at"])
    assert found == (0, [], []), json.dumps(report, indent=1)
    assert report["up_would"] == []
    looked = report["looked_at"]
    assert looked["machines"] == looked["nodes"] == looked["firmware inventories"] == 2
    assert looked["leases"] == 16
    assert looked["tenants"] == 2
    assert looked["resources"] > 50
    assert looked["objects of Helm releases"] > 0


def test_drift_of_machines_tenants_and_helm_is_found_and_named(dev: Checkout) -> None:
    # The controllers end with the first: they would put partitions back as they found them.
    wanted = by_hand(dev, "of the cluster") | by_hand(dev, "of machines")
    firmware = faults.FirmwareChanged(module=3, version="96.00.XX.66.66")
    injecting.inject(dev.lab / "hosts", "hgx-01", firmware)
    code, report = drift(dev)
    assert code == 1, json.dumps(report, indent=1)
    # A fabric manager that has started anew is told nothing yet, so that nothing is active either.
    changed = ("host.firmware-changed", "hgx-01", "HGX_FW_GPU_SXM_3")
    check(report, wanted | {changed}, {"fabric.partition-inactive"})
    by = {one["id"]: one["changed_by"] for one in report["findings"]}
    assert "kubectl-patch" in by["helm.object-changed"]
    assert "kubectl-patch" in by["tenant.quota-changed"]
    up = {one["id"]: one["up_puts_it_back"] for one in report["findings"]}
    assert up["cdi.missing"] is up["vfio.unbound"] is True
    assert up["helm.object-missing"] is up["host.firmware-changed"] is False
    file = dev.folder / "report.json"
    file.write_text(json.dumps(report))
    ignored = ("--ignore", "host.unit-*", "--ignore", "*@hgx-01")
    again = told(drift(dev, "--from", str(file), *ignored)[1])
    assert {one[1] for one in again} & {"hgx-01"} == set()
    assert "host.unit-failed" not in {one[0] for one in again}
