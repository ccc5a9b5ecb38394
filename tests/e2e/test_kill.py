"""A cluster made by an `up` that is killed at every kind of its steps; it is changed, then drifts by hand.

That what acts may die anywhere is shown where it can be killed at each of its commands, writes and waits:
tests/providers/test_killed_at_every_command.py, tests/engine/test_reference.py, tests/engine/test_saving.py
and tests/caas/test_killed_at_every_await.py. Here one step of each kind is killed, among all the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import yaml

from lab.hosts import faults, injecting
from tests.e2e.conftest import Checkout, checkout
from tests.e2e.drifting import by_hand, check, drift, told
from tests.e2e.killing import ENDS, Kill, up_through_kills

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.timeout(900)]

KILLS = (
    Kill("CustomResourceDefinition", "engine"),
    Kill("HostFile", "engine", event=ENDS),
    Kill("HostBoot", "everything", seconds=1),  # the machine is on its way down
    Kill("ServiceVm", "ctrl-c"),
    Kill("FabricPartitions", "engine", by_hand="kata-system/kata-deploy"),
    Kill("Release", "everything", seconds=0.5),  # Helm is at work
    Kill("TenancyPolicy", "engine"),
)
BOTH = ("hgx-01", "hgx-02")
COMMITTED = [1, 5, 12, 14]
"""Of the layout 4, 2, 1, 1."""
PAIRS = [3, 4, 5, 6]
# Changes nothing but files on the machines, so that what fails there is all that the test waits for.
LONGER = {"source": "lab", "kubelet": {"runtime-request-timeout-seconds": 2040}}
KUBELET = "/etc/kubernetes/kubelet.conf.d/50-gpu-clusters.conf"
BOOT_ID = "cat /proc/sys/kernel/random/boot_id"


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """The lab of all tests here, which follow one another."""
    with checkout(tmp_path_factory.mktemp("kill"), "caas") as made:
        met = up_through_kills(made, KILLS)
        assert len(met) >= len(KILLS) - 1, met
        yield made


def test_an_up_killed_at_every_kind_of_step_converges(dev: Checkout) -> None:
    assert dev.plan("--refresh") == []
    urns = [resource["urn"] for resource in dev.state()]
    assert len(set(urns)) == len(urns)
    assert len([urn for urn in urns if ":FabricPartitions::" in urn]) == 2
    dev.comes_to(COMMITTED, *BOTH)
    dev.unharmed(*BOTH)
    for host in BOTH:
        # Written whole or not at all: no temporary file of a killed write is left.
        assert dev.on_host(host, "ls -A /etc/cdi").split() == ["nvidia.com-pgpu.json"]


def failed(dev: Checkout, *named: str) -> None:
    done = dev.run("up")
    said = done.stdout + done.stderr
    assert done.returncode == 1
    assert "Traceback" not in said
    assert all(name in said for name in named), said


def request_timeout(dev: Checkout, host: str) -> str:
    text = dev.on_host(host, f"sudo -n cat {KUBELET}")
    return str(yaml.safe_load(text)["runtimeRequestTimeout"])


def test_a_machine_with_a_partition_in_use_or_out_of_reach_fails_alone(dev: Checkout) -> None:
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
    injecting.inject(folder, "hgx-02", faults.RefuseConnections())
    failed(dev, "hgx-02")
    dev.comes_to(PAIRS, "hgx-01")
    injecting.clear(folder, "hgx-02")
    injecting.inject(folder, "hgx-02", faults.WrongHostKey())
    failed(dev, "is pinned for it")
    injecting.clear(folder, "hgx-02")
    assert request_timeout(dev, "hgx-01") == "2040s"
    assert request_timeout(dev, "hgx-02") == before, "a stranger got a command"
    dev.up()
    assert request_timeout(dev, "hgx-02") == "2040s"


def test_a_machine_is_drained_installed_anew_and_brought_back_without_touching_the_others(
    dev: Checkout,
) -> None:
    dev.reset()
    dev.configure(nodes=[{"name": "hgx-01"}, {"name": "hgx-02", "maintenance": "evict"}])
    dev.up()
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
